"""The objects of the API server, their versions, and what happened to them."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object as the API server names it."""

    group: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def path(self) -> str:
        """Of the collection over all namespaces."""
        return f"/{'apis' if self.group != 'v1' else 'api'}/{self.group}/{self.plural}"


RESOURCES: Final = (
    Resource("v1", "nodes", "Node", namespaced=False),
    Resource("v1", "pods", "Pod"),
    Resource("v1", "services", "Service"),
    Resource("v1", "replicationcontrollers", "ReplicationController"),
    Resource("apps/v1", "replicasets", "ReplicaSet"),
    Resource("apps/v1", "statefulsets", "StatefulSet"),
    Resource("batch/v1", "jobs", "Job"),
    Resource("v1", "namespaces", "Namespace", namespaced=False),
    Resource("v1", "persistentvolumes", "PersistentVolume", namespaced=False),
    Resource("v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Resource("storage.k8s.io/v1", "storageclasses", "StorageClass", namespaced=False),
    Resource("storage.k8s.io/v1", "csinodes", "CSINode", namespaced=False),
    Resource("storage.k8s.io/v1", "csidrivers", "CSIDriver", namespaced=False),
    Resource("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity"),
    Resource("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", namespaced=False),
    Resource("resource.k8s.io/v1", "resourceclaims", "ResourceClaim"),
    Resource("resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False),
    Resource("resource.k8s.io/v1", "resourceslices", "ResourceSlice", namespaced=False),
)


class Selection:
    """A field selector: ``path=value`` and ``path!=value``, joined with commas."""

    def __init__(self, text: str) -> None:
        self._terms = []
        for term in filter(None, text.split(",")):
            path, _, value = term.partition("=")
            self._terms.append((path.rstrip("!").split("."), value, not path.endswith("!")))

    def __call__(self, manifest: Manifest | None) -> bool:
        """Whether an object is there and selected."""
        return manifest is not None and all(
            (_field(manifest, path) == value) == equal for path, value, equal in self._terms
        )


def _field(manifest: Manifest, path: Sequence[str]) -> str:
    found: Any = manifest
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found or ""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object at one version, and its JSON."""

    manifest: Manifest
    encoded: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """One change: an object before and after it; None where there was none, or is none now."""

    version: int
    plural: str
    before: Stored | None
    after: Stored | None
    last: bytes = b""


class CompactedError(Exception):
    """What was asked for lies before what is remembered."""


class Objects:
    """All objects and the history of their changes. Methods may be called from any thread.

    Args:
        history: events that are remembered; a watch from before the oldest is CompactedError.
    """

    def __init__(self, history: int = 100_000) -> None:
        self.version = 1000
        self.changed = threading.Condition()
        self._objects: dict[str, dict[tuple[str, str], Stored]] = {
            resource.plural: {} for resource in RESOURCES
        }
        self._events: deque[Event] = deque(maxlen=history)
        self._forgotten = self.version
        self._kinds = {resource.kind: resource for resource in RESOURCES}

    def put(self, *manifests: Manifest) -> None:
        """Create or change objects; each gets a uid if it has none, and a version."""
        with self.changed:
            for manifest in manifests:
                self._put(copy.deepcopy(manifest))
            self.changed.notify_all()

    def change(
        self, kind: str, namespace: str, name: str, change: Callable[[Manifest], None]
    ) -> None:
        """Change one object in place; KeyError when there is none."""
        with self.changed:
            manifest = copy.deepcopy(self.get(kind, namespace, name))
            change(manifest)
            self._put({"kind": kind, **manifest})
            self.changed.notify_all()

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object; KeyError when there is none."""
        with self.changed:
            plural = self._kinds[kind].plural
            before = self._objects[plural].pop((namespace, name))
            self.version += 1
            last = copy.deepcopy(before.manifest)
            last["metadata"]["resourceVersion"] = str(self.version)
            self._note(Event(self.version, plural, before, None, orjson.dumps(last)))
            self.changed.notify_all()

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """One object, not to be changed; KeyError when there is none."""
        return self._objects[self._kinds[kind].plural][namespace, name].manifest

    def all(self, plural: str) -> list[Stored]:
        """The objects of one kind by namespace and name."""
        with self.changed:
            return [stored for _, stored in sorted(self._objects[plural].items())]

    def after(self, version: int, plural: str) -> list[Event]:
        """What happened to one kind after a version.

        Raises:
            CompactedError: the history begins later.
        """
        if version < self._forgotten:
            raise CompactedError
        found: list[Event] = []
        for event in reversed(self._events):
            if event.version <= version:
                break
            if event.plural == plural:
                found.append(event)
        return found[::-1]

    def forget(self) -> None:
        """Forget what happened until now, as etcd's compaction does."""
        with self.changed:
            self._events.clear()
            self._forgotten = self.version

    def restore(self, version: int, manifests: Iterable[Manifest], *, compacted: int = 0) -> None:
        """Begin anew from a backup, or as another cluster: other objects, at later versions.

        Watches go on as they are, as those of an API server whose etcd was restored under it.
        """
        with self.changed:
            for objects in self._objects.values():
                objects.clear()
            self._events.clear()
            self.version, self._forgotten = version, compacted
            for manifest in manifests:
                self._put(copy.deepcopy(manifest))
            self.changed.notify_all()

    def _put(self, manifest: Manifest) -> None:
        resource = self._kinds[manifest.pop("kind")]
        manifest.pop("apiVersion", None)
        self.version += 1
        meta = manifest.setdefault("metadata", {})
        meta["resourceVersion"] = str(self.version)
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        key = (meta.get("namespace", ""), meta["name"])
        before = self._objects[resource.plural].get(key)
        meta.setdefault("uid", before.manifest["metadata"]["uid"] if before else str(uuid.uuid4()))
        meta.setdefault(
            "creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time()))
        )
        after = Stored(manifest, orjson.dumps(manifest))
        self._objects[resource.plural][key] = after
        self._note(Event(self.version, resource.plural, before, after))

    def _note(self, event: Event) -> None:
        if len(self._events) == self._events.maxlen:
            self._forgotten = self._events[0].version
        self._events.append(event)


def frame(event: Event, selected: Selection) -> bytes:
    """An event as a watch with a field selector sends it; empty when it sends nothing."""
    was = event.before is not None and selected(event.before.manifest)
    now = event.after is not None and selected(event.after.manifest)
    if event.after is not None and now:
        kind, content = (b"MODIFIED" if was else b"ADDED"), event.after.encoded
    elif was:
        # The last state, at the version of its end or of what took it out of the selection.
        kind = b"DELETED"
        content = event.last if event.after is None else event.after.encoded
    else:
        return b""
    return b'{"type":"' + kind + b'","object":' + content + b"}\n"
