"""Other names and label values for a cluster's objects, with the same answers.

Every text is replaced but those of the fields that are listed here: a field that nobody thought of
is anonymous. Equal texts get equal replacements, wherever they stand, so whatever matched, selected
or owned still does, and domains stay as many as they were. A replacement is a keyed hash, whose key
is random and kept nowhere: nobody can find a text by trying.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message

from topospread.kube.demands import ALL_ADDRESSES
from topospread.kube.devices import selected_driver
from topospread.kube.volume_migration import MIGRATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import FieldDescriptor

M = TypeVar("M", bound=Message)

KEPT: Final[dict[str, set[str]]] = {
    "Container": {"restart_policy"},
    "ContainerPort": {"protocol"},
    "ContainerRestartRule": {"action"},
    "ExactDeviceRequest": {"allocation_mode"},
    "LabelSelectorRequirement": {"operator"},
    "NodeSelectorRequirement": {"operator"},
    "NodeStatus": {"declared_features"},
    "NodeSystemInfo": {"kubelet_version"},
    "ObjectMeta": {"resource_version"},
    "OwnerReference": {"kind", "api_version"},
    "PersistentVolumeClaimSpec": {"access_modes", "volume_mode"},
    "PersistentVolumeClaimStatus": {"phase"},
    "PersistentVolumeSpec": {"access_modes", "volume_mode"},
    "PersistentVolumeStatus": {"phase"},
    "PodCondition": {"type", "status", "reason"},
    "PodSpec": {"scheduler_name", "preemption_policy"},
    "PodStatus": {"phase"},
    "Quantity": {"string"},
    "StorageClass": {"volume_binding_mode"},
    "Taint": {"effect"},
    "Toleration": {"operator", "effect"},
    "TopologySpreadConstraint": {
        *("when_unsatisfiable", "node_affinity_policy", "node_taints_policy"),
    },
}
"""Fields whose texts stay: Kubernetes' own words, numbers, what tells workloads, profiles."""

DROPPED: Final[dict[str, set[str]]] = {"PodCondition": {"message"}}
"""Fields whose texts go: they are sentences about names, and decide nothing."""

_KEYS: Final = {"key", "match_label_keys", "mismatch_label_keys", "topology_key"}
"""Fields with keys of labels and taints. The texts beside a key are its values."""

_SHARED_KEYS: Final = re.compile(
    "app|component|controller-revision-hash|controller-uid|job-name|k8s-app|name|release|tier"
    "|version|pod-template-generation|pod-template-hash"
    "|metadata[.]name"  # the field by which node affinity names nodes
    "|([^/]*[.])?(kubernetes|k8s)[.]io/[^/]*"
    + "".join(f"|{re.escape(each.zone)}" for each in MIGRATIONS.values() if each.zone)
)
"""Keys that say nothing about who uses them."""

_ROLE: Final = "node-role.kubernetes.io/"
_SHARED_ROLES: Final = ("control-plane", "master", "worker")
_SHARED_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_PLAIN_VALUES: Final = ("kubernetes.io/os", "kubernetes.io/arch")
_NUMBER: Final = re.compile(r"-?\d{1,19}")
_KEPT_ANNOTATIONS: Final = (
    "controller.kubernetes.io/pod-deletion-cost",
    "storage.alpha.kubernetes.io/migrated-plugins",
    "storageclass.kubernetes.io/is-default-class",
)
_SHARED_DRIVERS: Final = re.compile(
    r"kubernetes[.]io/[^/]*|ebs[.]csi[.]aws[.]com|pd[.]csi[.]storage[.]gke[.]io"
    r"|(disk|file)[.]csi[.]azure[.]com|cinder[.]csi[.]openstack[.]org"
    r"|csi[.]vsphere[.]vmware[.]com|pxd[.]portworx[.]com"
)
"""Drivers and plugins that Kubernetes itself names: volumes of the second count for the first."""

_BETWEEN_ZONES: Final = "__"


class Anonymizer:
    """Replaces the texts of one cluster's objects, all of which tell what numbers are compared.

    The `key` of the hash is a random one unless it is given.
    """

    def __init__(self, objects: Iterable[Message], key: bytes | None = None) -> None:
        self._hash_key = secrets.token_bytes(32) if key is None else key
        shared = ("", ALL_ADDRESSES, *_SHARED_NAMESPACES)
        self._replacements = {each: each for each in shared}
        objects = list(objects)
        for each in objects:
            self._name_ephemeral(getattr(each, "persistent_volume_claim", None))
        parts = (part for each in objects for part in _parts(each))
        self._compared = {
            part.key for part in parts if getattr(part, "operator", "") in ("Gt", "Lt")
        }

    def _name_ephemeral(self, claim: Any) -> None:
        """Name the claim of an ephemeral volume by its pod, as Kubernetes does."""
        for owner in () if claim is None else claim.metadata.owner_references:
            name = claim.metadata.name
            if owner.controller and owner.kind == "Pod" and name.startswith(f"{owner.name}-"):
                volume = name.removeprefix(f"{owner.name}-")
                self._replacements[name] = f"{self.text(owner.name)}-{self.text(volume)}"

    def anonymized(self, message: M) -> M:
        """Return a copy with other texts."""
        copy = deepcopy(message)
        # From the inside out: the values of a map are moved to other keys with all that is in them.
        for part in reversed(list(_parts(copy))):
            self._replace(part)
        return copy

    def text(self, text: str) -> str:
        """Return a letter and hexadecimal digits in place of a name or value."""
        if text not in self._replacements and _SHARED_DRIVERS.fullmatch(text):
            self._replacements[text] = text
        elif text not in self._replacements and _BETWEEN_ZONES in text:
            # Of a volume that is in several: each is that of nodes.
            parts = map(self.text, text.split(_BETWEEN_ZONES))
            self._replacements[text] = _BETWEEN_ZONES.join(parts)
        elif text not in self._replacements and (driver := selected_driver(text)) is not None:
            self._replacements[text] = f"device.driver == '{self.text(driver)}'"
        elif text not in self._replacements:
            digest = hmac.digest(self._hash_key, text.encode(), hashlib.sha256)
            self._replacements[text] = f"x{digest.hex()[:16]}"
        return self._replacements[text]

    def key(self, key: str) -> str:
        """Return what replaces the key of a label or taint; one that many share stays."""
        if not _SHARED_KEYS.fullmatch(key):
            return self.text(key)
        own_role = key.startswith(_ROLE) and key.removeprefix(_ROLE) not in _SHARED_ROLES
        return f"{_ROLE}{self.text(key)}" if own_role else key

    def _value(self, key: str, value: str) -> str:
        number = key in self._compared and _NUMBER.fullmatch(value)
        return value if number or key in _PLAIN_VALUES else self.text(value)

    def _replace(self, message: Any) -> None:
        key = getattr(message, "key", "")
        kept = KEPT.get(message.DESCRIPTOR.name, ())
        for name in DROPPED.get(message.DESCRIPTOR.name, ()):
            message.ClearField(name)
        for field, value in message.ListFields():
            if _is_map(field):
                self._replace_entries(value)
            elif field.type == field.TYPE_BYTES:
                # Of these messages only the number counts.
                _change(message, field, value, lambda _: b"")
            elif field.type == field.TYPE_STRING and field.name not in kept:
                replaced = self.key if field.name in _KEYS else partial(self._value, key)
                _change(message, field, value, replaced)

    def _replace_entries(self, entries: Any) -> None:
        for key, value in deepcopy(dict(entries)).items():
            del entries[key]
            if isinstance(value, Message):  # by a resource: without a domain it is Kubernetes' own
                own = "/" in key and not _SHARED_KEYS.fullmatch(key)
                entries[f"example.com/{self.text(key)}" if own else key].CopyFrom(value)
            else:
                entries[self.key(key)] = (
                    value if key in _KEPT_ANNOTATIONS else self._value(key, value)
                )


def _change(message: Any, field: FieldDescriptor, value: Any, change: Any) -> None:
    if field.is_repeated:
        value[:] = map(change, value)
    else:
        setattr(message, field.name, change(value))


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _parts(message: Any) -> Iterator[Any]:
    """Yield a message and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in (
                value.values() if _is_map(field) else value if field.is_repeated else [value]
            ):
                if isinstance(each, Message):
                    yield from _parts(each)
