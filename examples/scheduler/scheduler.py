"""Watches for pending pods with its schedulerName, asks Place, binds, releases on failure.

Any number of copies may run at once: a node that Place gives to one of them is held and counts for
all, so maxSkew holds across them, and two that take up the same pod are given the same node.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import load_config
from urllib3.exceptions import HTTPError

from topospread_client.client import Client
from topospread_client.connection import Connection
from topospread_client.errors import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG: Final = logging.getLogger("scheduler")
CONFLICT, NOT_FOUND, SERVER_ERROR = 409, 404, 500


class Cluster:
    """The little that a scheduler asks of an API server."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._client: Any = ApiClient(configuration)

    def pending(self, scheduler: str) -> Iterator[dict[str, Any]]:
        """The pods that wait for this scheduler, and each that comes, until the watch ends."""
        pods = f"/api/v1/pods?fieldSelector=spec.schedulerName={scheduler},spec.nodeName="
        listed = json.loads(self._ask("GET", pods).data)
        yield from listed["items"]
        since, rest = listed["metadata"]["resourceVersion"], b""
        watch = f"{pods}&watch=1&timeoutSeconds=240&resourceVersion={since}"
        for chunk in self._ask("GET", watch, silence=270.0).stream():
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(json.loads, lines):
                if event["type"] == "ERROR":
                    return
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]

    def bind(self, pod: dict[str, Any], node: str) -> None:
        """Give a pod its node; ApiException says why it is refused, HTTPError that nobody knows."""
        meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        self._ask("POST", path, binding)

    def _ask(self, method: str, path: str, body: Any = None, silence: float = 30.0) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        for setting in self._configuration.auth_settings().values():
            headers[setting["key"]] = setting["value"]
        url, wait = self._configuration.host + path, (10.0, silence)
        asked = self._client.rest_client.request(method, url, headers, body, _request_timeout=wait)
        if (status := asked.response.status) >= 300:
            raise ApiException(status=status, reason=asked.response.data.decode()[:200])
        return asked.response


class Scheduler:
    """Places pods one after the other, where an engine that is fed from their cluster says."""

    def __init__(self, cluster: Cluster, engine: Client, name: str, pause: float = 5.0) -> None:
        self.bound: dict[str, str] = {}
        self._cluster, self._engine, self._name, self._pause = cluster, engine, name, pause
        self._queue: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._told = threading.Event()
        # Nodes that are equally good are taken in an order of one's own, so that copies part ways.
        self._seed = secrets.token_hex(4)

    def watch(self) -> None:
        """Line up the pods that wait, until stop(): to be run in a thread of its own."""
        while not self._told.is_set():
            try:
                for pod in self._cluster.pending(self._name):
                    self._queue.put(pod)
            except (HTTPError, ApiException) as error:
                LOG.warning("the API server: %s", error)
            self._told.wait(self._pause)

    def run(self) -> None:
        """Place pods until stop()."""
        while (pod := self._queue.get()) is not None:
            if pod["metadata"].get("deletionTimestamp") or pod["spec"].get("schedulingGates"):
                continue
            try:
                done = self.schedule(pod)
            except (TopospreadClientError, HTTPError) as error:
                LOG.warning("%s: %s", pod["metadata"]["name"], error)
                done = False
            if not done:
                again = threading.Timer(self._pause, self._queue.put, [pod])
                again.daemon = True
                again.start()

    def stop(self) -> None:
        """Make run() return after the pod that it is at."""
        self._told.set()
        self._queue.put(None)

    def schedule(self, pod: dict[str, Any]) -> bool:
        """Place one pod; whether it needs no further try."""
        meta = pod["metadata"]
        place = self._engine.place(pod, seed=self._seed)
        if place.node is None or place.already_bound:
            LOG.info("%s: %s", meta["name"], place.message or f"runs on {place.node} already")
            return place.already_bound
        try:
            self._cluster.bind(pod, place.node)
        except ApiException as error:
            LOG.info("%s: not bound to %s: %s", meta["name"], place.node, error.reason)
            # A pod that another has bound is about to be seen on its node, and one of which nobody
            # knows may be: until then its place must count.
            if error.status != CONFLICT and error.status < SERVER_ERROR:
                self._engine.release(meta["name"], namespace=meta["namespace"], uid=meta["uid"])
            return error.status in (CONFLICT, NOT_FOUND)
        self.bound[meta["name"]] = place.node
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
