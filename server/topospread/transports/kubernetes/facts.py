"""Objects as an API server gives them, decoded and trimmed once for all sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topospread.codec.stored import stored
from topospread.errors import InvalidRequest
from topospread.store.api import Key
from topospread.store.checks import check_size
from topospread_client import ManifestError, object_from_manifest

if TYPE_CHECKING:
    from topospread.store.api import StoredObject
    from topospread.transports.kubernetes.resources import Resource
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject


@dataclass(frozen=True, slots=True)
class Fact:
    """An object that is there.

    Attributes:
        message: as it was given, without the fields that spreading never looks at.
        stored: trimmed, as the store holds it.
    """

    message: ClusterObject
    stored: StoredObject

    @property
    def key(self) -> Key:
        """Names it."""
        return self.stored.key

    @property
    def mark(self) -> int:
        """Equal marks: nothing that is kept of the object differs but its resourceVersion."""
        return hash((self.stored.uid, self.stored.payload))


@dataclass(frozen=True, slots=True)
class Absence:
    """An object that is not there any more, as of a resourceVersion."""

    key: Key
    version: str


def read_fact(resource: Resource, manifest: Any) -> Fact:
    """An object of a list or an event.

    Raises:
        InvalidRequest: what the API server gave cannot be read as that kind, or not be stored.
        LimitExceeded: it is too large to be stored.
    """
    if not isinstance(manifest, dict):
        raise InvalidRequest(f"expected an object, got {type(manifest).__name__}")
    # Lists do not repeat these two for each object.
    manifest.setdefault("kind", resource.name)
    manifest.setdefault("apiVersion", resource.api_version)
    try:
        message = object_from_manifest(manifest)
    except ManifestError as error:
        raise InvalidRequest(str(error)) from error
    if message is None:
        raise InvalidRequest(f"kind: expected {resource.name}, got {manifest['kind']!r}")
    fact = Fact(message, stored(message))
    # Here, where one object can be left out, and not where it would hold up five hundred.
    check_size(fact.stored)
    return fact


def key_of(resource: Resource, manifest: dict[str, Any]) -> Key:
    """Names an object of an event.

    Raises:
        InvalidRequest: it has no name.
    """
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise InvalidRequest("metadata.name: required")
    return Key(resource.kind, str(metadata.get("namespace") or ""), name)


def version_of(manifest: dict[str, Any]) -> str:
    """The resourceVersion of an object or list; empty when it has none."""
    metadata = manifest.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""
