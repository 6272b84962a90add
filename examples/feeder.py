"""A feeder: keeps a server's state as a Kubernetes API server says, until something refuses.

    python -m examples.feeder HOST:PORT [CLUSTER]

It lists each kind and makes the list the content of that kind, then writes the changes that a watch
tells; when the watch ends, it lists again. `topospread serve --sync` does more of the same: take
this where objects come from elsewhere, and run one of it (docs/kubernetes.md).
"""

from __future__ import annotations

import json
import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import load_config
from urllib3.exceptions import HTTPError

from topospread_client import Client, StoreIdentityChanged, Unavailable
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final = {
    field.message_type.name: field.name.upper()
    for field in ClusterObject.DESCRIPTOR.fields
    if field.message_type and field.name != "reservation"  # which is no object of Kubernetes
}
"""All kinds that a state has, by Kubernetes' name: the server's name."""

NEEDED: Final = {"Node", "Pod", "Service", "ReplicationController", "ReplicaSet", "StatefulSet"}
GROUPS: Final = {
    **dict.fromkeys(("ReplicaSet", "StatefulSet"), "apps/v1"),
    **dict.fromkeys(("StorageClass", "CSINode", "CSIDriver"), "storage.k8s.io/v1"),
    **dict.fromkeys(("CSIStorageCapacity", "VolumeAttachment"), "storage.k8s.io/v1"),
    **dict.fromkeys(("ResourceClaim", "DeviceClass", "ResourceSlice"), "resource.k8s.io/v1"),
    "Job": "batch/v1",
}
LIVING: Final = {"fieldSelector": "status.phase!=Failed,status.phase!=Succeeded"}
"""Pods that have ended count nowhere: their end is a deletion to this watch."""


class Feeder:
    """Lists and watches an API server, and writes what it says to a topospread server."""

    def __init__(self, api: Any, server: Client, *, watch: int = 240, pause: float = 5.0) -> None:
        self.failed: SimpleQueue[Exception] = SimpleQueue()
        self._api, self._http, self._server = api, ApiClient(api).rest_client, server
        self._watch, self._pause, self._stopped = watch, pause, threading.Event()

    def start(self) -> None:
        """Begin, in a thread for each kind; what ends one goes to `failed`."""
        for kind in KINDS:
            threading.Thread(target=self._follow, args=(kind,), daemon=True).start()

    def stop(self) -> None:
        """End each thread when its watch or pause ends."""
        self._stopped.set()

    def _follow(self, kind: str) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._take_changes(kind, self._list(kind))
                except ApiException as refused:
                    if kind in NEEDED or refused.status not in (403, 404):
                        raise
                    why = f"{refused.status} for {plural(kind)}"
                    unknown = [{"kind": KINDS[kind], "reason": why}]
                    self._server.apply_objects((), unknown_kinds=unknown)
                    self._stopped.wait(self._pause)  # it may be listed later
                except (HTTPError, Unavailable, StoreIdentityChanged):
                    self._stopped.wait(self._pause)  # what was missed meanwhile, the next list has
        except Exception as error:  # noqa: BLE001 # it ends the program
            self.failed.put(error)

    def _list(self, kind: str) -> str:
        """Make what the API server lists the content of a kind; the list's version."""
        version = json.loads(self._get("/version").data)["gitVersion"] if kind == "Node" else ""
        objects: list[dict[str, Any]] = []
        more = {"limit": "500"}
        while True:
            page = json.loads(self._get(path(kind), more, selected(kind)).data)
            objects += [{**each, **what(kind)} for each in page["items"]]
            if not (token := page["metadata"].get("continue")):
                break
            more = {"limit": "500", "continue": token}
        read = str(page["metadata"]["resourceVersion"])
        given: Any = {"resource_version": read, "kubernetes_version": version}
        done = self._server.replace_objects(KINDS[kind], objects, **given)
        if done.ignored_stale_count:  # newer than the list: of an API server that was restored
            self._server.replace_objects(KINDS[kind], objects, force=True, **given)
        return read

    def _take_changes(self, kind: str, since: str) -> None:
        """Write what changes after a version until the watch ends."""
        watch = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": since}
        for event in self._events(kind, {**watch, "timeoutSeconds": str(self._watch)}):
            found, meta = event["object"], event["object"].get("metadata", {})
            if event["type"] == "ERROR":  # as when the version is too old
                return
            version = {"kind": KINDS[kind], "resource_version": meta["resourceVersion"]}
            if event["type"] == "DELETED":
                names = {key: meta[key] for key in ("name", "namespace") if key in meta}
                self._server.delete_objects([{**version, **names}], observed=[version])
            else:  # a bookmark has no object, and says how far the watch has read
                objects = [] if event["type"] == "BOOKMARK" else [{**found, **what(kind)}]
                self._server.apply_objects(objects, observed=[version])

    def _events(self, kind: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        rest = b""
        for chunk in self._get(path(kind), query, selected(kind)).stream():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, lines)

    def _get(self, path: str, *queries: dict[str, str]) -> Any:
        query = {name: each for given in queries for name, each in given.items()}
        credentials = {it["key"]: it["value"] for it in self._api.auth_settings().values()}
        url, wait = f"{self._api.host}{path}?{urlencode(query)}", (10.0, self._watch + 30.0)
        headers = {"Accept": "application/json", **credentials}
        answer = self._http.request("GET", url, headers=headers, _request_timeout=wait).response
        if answer.status >= 300:
            raise ApiException(status=answer.status, reason=answer.data.decode()[:200])
        return answer


def group(kind: str) -> str:
    """The API group and version of a kind."""
    return GROUPS.get(kind, "v1")


def what(kind: str) -> dict[str, str]:
    """The part of an object that items of a list lack."""
    return {"kind": kind, "apiVersion": group(kind)}


def plural(kind: str) -> str:
    """The name of a kind in paths and in rules of RBAC."""
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else name + ("es" if name[-1] == "s" else "s")


def path(kind: str) -> str:
    """The path of a kind's objects in all namespaces."""
    return f"/{'apis' if '/' in group(kind) else 'api'}/{group(kind)}/{plural(kind)}"


def selected(kind: str) -> dict[str, str]:
    """The part of a query that leaves objects out."""
    return LIVING if kind == "Pod" else {}


if __name__ == "__main__":
    load_config()  # the kubeconfig, else the pod's service account
    with Client(sys.argv[1], cluster=(sys.argv[2:] or ["default"])[0]) as connected:
        feeder = Feeder(Configuration.get_default_copy(), connected)
        feeder.start()
        sys.exit(f"feeder: {feeder.failed.get()}")
