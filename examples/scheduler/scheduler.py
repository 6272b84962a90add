"""Watches for pending pods with its schedulerName, calls PlacePod, binds, releases on failure."""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, Final

from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import load_config
from urllib3.exceptions import HTTPError

from topospread_client import Client, Connection, TopospreadClientError

Pods = Iterator[tuple[str, dict[str, Any] | None]]
LOG: Final = logging.getLogger("scheduler")
CONFLICT, NOT_FOUND, SERVER_ERROR = 409, 404, 500


class Cluster:
    """The calls that a scheduler makes to an API server."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._client: Any = ApiClient(configuration)

    def pending(self, scheduler: str, known: list[str]) -> Pods:
        """Pending pods of a scheduler by uid, then each change; None: not pending any more."""
        pods = f"/api/v1/pods?fieldSelector=spec.schedulerName={scheduler},spec.nodeName="
        listed = json.loads(self._request("GET", pods).data)
        found = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        yield from {**dict.fromkeys(known), **found}.items()
        since, rest = listed["metadata"]["resourceVersion"], b""
        watch = f"{pods}&watch=1&timeoutSeconds=240&resourceVersion={since}"
        for chunk in self._request("GET", watch, silence=270.0).stream():
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(json.loads, lines):
                if event["type"] == "ERROR":
                    return
                pod = event["object"]
                yield pod["metadata"]["uid"], None if event["type"] == "DELETED" else pod

    def bind(self, pod: dict[str, Any], node: str) -> None:
        """Bind a pod; ApiException is a refusal, HTTPError leaves the outcome unknown."""
        meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        self._request("POST", path, binding)

    def _request(self, method: str, path: str, body: Any = None, silence: float = 30.0) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        headers |= {it["key"]: it["value"] for it in self._configuration.auth_settings().values()}
        url, wait = self._configuration.host + path, (10.0, silence)
        answer = self._client.rest_client.request(method, url, headers, body, _request_timeout=wait)
        if (status := answer.response.status) >= 300:
            raise ApiException(status=status, reason=answer.response.data.decode()[:200])
        return answer.response


class Scheduler:
    """Places pods one after the other on the nodes that an engine chooses for them."""

    def __init__(self, cluster: Cluster, engine: Client, name: str, pause: float = 5.0) -> None:
        self.bound: dict[str, str] = {}
        self._cluster, self._engine, self._name, self._pause = cluster, engine, name, pause
        # Each of these is in the queue, being placed, or in its pause: once, however often seen.
        self._waiting: dict[str, dict[str, Any]] = {}
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._stopped = threading.Event()
        # Orders equally good nodes differently in each copy, so that copies choose different ones.
        self._seed = secrets.token_hex(4)

    def watch(self) -> None:
        """Enqueue pending pods until stop(); runs in a thread of its own."""
        while not self._stopped.is_set():
            try:
                for uid, pod in self._cluster.pending(self._name, [*self._waiting]):
                    self._enqueue(uid, pod)
            except (HTTPError, ApiException) as error:
                LOG.warning("the API server: %s", error)
            self._stopped.wait(self._pause)

    def run(self) -> None:
        """Place pods until stop()."""
        while (uid := self._queue.get()) is not None:
            if (pod := self._waiting.get(uid)) is None:
                continue
            try:
                if self.schedule(pod):
                    self._enqueue(uid, None)
                    continue
            except (TopospreadClientError, HTTPError) as error:
                LOG.warning("%s: %s", pod["metadata"]["name"], error)
            again = threading.Timer(self._pause, self._queue.put, [uid])
            again.daemon = True
            again.start()

    def _enqueue(self, uid: str, pod: dict[str, Any] | None) -> None:
        if not pod or "deletionTimestamp" in pod["metadata"] or pod["spec"].get("schedulingGates"):
            self._waiting.pop(uid, None)
            return
        known, self._waiting[uid] = uid in self._waiting, pod
        if not known:
            self._queue.put(uid)

    def stop(self) -> None:
        """Make run() return after its present pod."""
        self._stopped.set()
        self._queue.put(None)

    def schedule(self, pod: dict[str, Any]) -> bool:
        """Place one pod; return whether it needs no further try."""
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        place = self._engine.place_pod(pod, seed=self._seed)
        if not place.node or place.already_bound:
            LOG.info("%s: %s", name, place.message or f"runs on {place.node} already")
            return place.already_bound
        try:
            self._cluster.bind(pod, place.node)
        except ApiException as error:
            LOG.info("%s: not bound to %s: %s", name, place.node, error.reason)
            # Another scheduler or a lost call may have bound the pod: the reservation then stays.
            if error.status != CONFLICT and error.status < SERVER_ERROR:
                self._engine.release_reservation(
                    f"{space}/{name}", reservation_id=place.reservation_id
                )
            return error.status in (CONFLICT, NOT_FOUND)
        self.bound[name] = place.node
        return True


def main() -> None:
    """Schedule until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m examples.scheduler")
    parser.add_argument("--name", default="topospread", help="the schedulerName of its pods")
    parser.add_argument("--address", default="127.0.0.1:7946", help="of topospread")
    parser.add_argument("--insecure", action="store_true", help="plain text to another machine")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    load_config()  # the kubeconfig, else the pod's service account
    with Client(Connection(given.address, insecure=given.insecure)) as engine:
        scheduler = Scheduler(Cluster(Configuration.get_default_copy()), engine, given.name)
        threading.Thread(target=scheduler.watch, daemon=True).start()
        scheduler.run()
