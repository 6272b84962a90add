"""Anonymization of a cluster: other names and label values, and the same answers.

Equal texts get equal replacements, wherever they stand, so whatever matched, selected or owned
still does, and domains stay as many as they were. A replacement is a keyed hash, whose key is
random and kept nowhere: nobody can find a text by trying.

What stays: the words of Kubernetes' own API and its own namespaces; kinds of owners with their
apiVersion, by which workloads are told; keys of labels, taints and
resources that Kubernetes or many of its users share; operating systems and architectures; numbers
that Gt or Lt compares; schedulerName, which chooses a profile; priorities, quantities, times and
resourceVersions.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Manifest = dict[str, Any]

_COMPARING: Final = frozenset({"Gt", "Lt"})
_INTEGER: Final = re.compile(r"-?\d{1,19}")
_DIGITS: Final = 16

_SHARED_DOMAINS: Final = ("kubernetes.io", "k8s.io")
_ROLE: Final = "node-role.kubernetes.io/"
_SHARED_KEYS: Final = frozenset(
    {
        "app",
        "component",
        "controller-revision-hash",
        "controller-uid",
        "job-name",
        "k8s-app",
        "name",
        "pod-template-generation",
        "pod-template-hash",
        "release",
        "tier",
        "version",
        f"{_ROLE}control-plane",
        f"{_ROLE}master",
        f"{_ROLE}worker",
        "metadata.name",
    }
)
"""Keys beside those of Kubernetes' domains that say nothing about who uses them. The last is a
field, by which node affinity names nodes.
"""

_SHARED_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Names that each cluster has; an object that names no namespace is in the first."""

_PLAIN_VALUES: Final = frozenset({"kubernetes.io/os", "kubernetes.io/arch"})
"""Keys of labels whose values stay."""

_WORDS: Final = frozenset(
    {
        "apiVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "effect",
        "kind",
        "lastTransitionTime",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "operator",
        "phase",
        "preemptionPolicy",
        "resourceVersion",
        "restartPolicy",
        "schedulerName",
        "status",
        "timeAdded",
        "type",
        "whenUnsatisfiable",
    }
)
"""Fields whose texts are Kubernetes' own words, or identify nobody."""

_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""The one annotation that is stored; its value is a number."""

_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_RESOURCES: Final = frozenset({"allocatable", "capacity", "limits", "overhead", "requests"})
_OF_A_KEY: Final = frozenset({"key", "value", "values"})
_KEYS: Final = frozenset({"matchLabelKeys", "topologyKey"})


class Anonymizer:
    """Replaces texts of one cluster's manifests consistently.

    Args:
        manifests: all of the cluster's, which tell what numbers are compared.
        key: of the hash; None for a random one.
    """

    def __init__(self, manifests: Iterable[Manifest], key: bytes | None = None) -> None:
        self._hash_key = secrets.token_bytes(32) if key is None else key
        self._replacements = {each: each for each in ("", *_SHARED_NAMESPACES)}
        self._compared = frozenset(_compared_keys(list(manifests)))

    def manifest(self, manifest: Manifest) -> Manifest:
        """The manifest with other names and values."""
        return {name: self._field(name, value) for name, value in manifest.items()}

    def text(self, text: str) -> str:
        """What stands instead of a name or value: a letter and hexadecimal digits."""
        found = self._replacements.get(text)
        if found is None:
            digest = hmac.digest(self._hash_key, text.encode(), hashlib.sha256)
            found = self._replacements[text] = f"x{digest.hex()[:_DIGITS]}"
        return found

    def key(self, key: str) -> str:
        """What stands instead of the key of a label, taint or resource: most stay."""
        if key in _SHARED_KEYS or not key:
            return key
        domain, slash, _ = key.rpartition("/")
        shared = any(domain == each or domain.endswith(f".{each}") for each in _SHARED_DOMAINS)
        if slash and shared:
            return f"{_ROLE}{self.text(key)}" if key.startswith(_ROLE) else key
        return self.text(key)

    def _resource(self, name: str) -> str:
        domain, slash, _ = name.rpartition("/")
        if not slash or domain.endswith(_SHARED_DOMAINS):
            return name  # cpu, memory, hugepages-2Mi
        return f"example.com/{self.text(name)}"

    def _value(self, key: str, value: str) -> str:
        """Replacement of a value of a label or taint."""
        if key in _PLAIN_VALUES or (key in self._compared and _INTEGER.fullmatch(value)):
            return value
        return self.text(value)

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return self._object(name, value)
        if isinstance(value, list):
            return [self._field(name, each) for each in value]
        if not isinstance(value, str) or name in _WORDS:
            return value
        return self.key(value) if name in _KEYS else self.text(value)

    def _object(self, name: str, content: Mapping[str, Any]) -> Manifest:
        # A Service's selector and a ReplicationController's are labels, others' are objects.
        is_selector = name == "selector" and all(isinstance(v, str) for v in content.values())
        if name in _LABELS or is_selector:
            return {self.key(key): self._value(key, value) for key, value in content.items()}
        if name in _RESOURCES:
            return {self._resource(resource): value for resource, value in content.items()}
        if name == "annotations":
            return {key: value for key, value in content.items() if key == _DELETION_COST}
        if isinstance(key := content.get("key"), str):
            return self._keyed(key, content)
        return self.manifest(dict(content))

    def _keyed(self, key: str, content: Mapping[str, Any]) -> Manifest:
        """A requirement, a taint or a toleration: its values are those of its key."""
        others = {name: each for name, each in content.items() if name not in _OF_A_KEY}
        found = {"key": self.key(key), **self.manifest(others)}
        if isinstance(value := content.get("value"), str):
            found["value"] = self._value(key, value)
        if isinstance(values := content.get("values"), list):
            found["values"] = [self._value(key, each) for each in values]
        return dict(sorted(found.items()))


def _compared_keys(value: Any) -> Iterable[str]:
    """Keys of which a requirement or a toleration compares numbers."""
    if isinstance(value, dict):
        if value.get("operator") in _COMPARING and isinstance(value.get("key"), str):
            yield value["key"]
        for each in value.values():
            yield from _compared_keys(each)
    elif isinstance(value, list):
        for each in value:
            yield from _compared_keys(each)
