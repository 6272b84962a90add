"""Stands in for all kubelets: bound pods become ready, terminating ones go."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx

from bench.campaigns.kube_scheduler import ADMIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack

    from bench.campaigns.kube_scheduler import Cluster

_STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
_READY = ("Initialized", "Ready", "ContainersReady", "PodScheduled")


class Kubelets:
    """Follows all pods of a cluster until the stack closes.

    Args:
        opened: ends it.
        cluster: whose pods they are.
        ready: seconds that a pod needs to become ready, at least and at most.
        seed: of the times.
    """

    def __init__(
        self,
        opened: ExitStack,
        cluster: Cluster,
        ready: tuple[float, float] = (0.05, 0.3),
        seed: int = 0,
    ) -> None:
        self._cluster = cluster
        self._ready = ready
        self._random = random.Random(seed)
        self._begun: set[str] = set()
        self._ended = threading.Event()
        self._pool = opened.enter_context(ThreadPoolExecutor(4))
        thread = threading.Thread(target=self._follow, daemon=True)
        opened.callback(thread.join)
        opened.callback(self._ended.set)
        thread.start()

    def _follow(self) -> None:
        """Watch, again and again: a watch ends after a second without an event."""
        client = httpx.Client(
            base_url=self._cluster.url,
            verify=self._cluster.trust,
            headers={"Authorization": f"Bearer {ADMIN}"},
            trust_env=False,
        )
        with client:
            while not self._ended.is_set():
                try:
                    listed = client.get("/api/v1/pods").json()
                    for pod in listed["items"]:
                        self._see(pod)
                    self._watch(client, listed["metadata"]["resourceVersion"])
                except httpx.HTTPError:
                    self._ended.wait(0.1)

    def _watch(self, client: httpx.Client, version: str) -> None:
        asked = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "5"}
        with client.stream("GET", "/api/v1/pods", params=asked, timeout=10.0) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                if self._ended.is_set() or event["type"] == "ERROR":
                    return
                if event["type"] != "DELETED":
                    self._see(event["object"])

    def _see(self, pod: Mapping[str, Any]) -> None:
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            self._once(f"gone {meta['uid']}", 0.02, lambda: self._remove(pod))
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
            seconds = self._random.uniform(*self._ready)
            self._once(f"ready {meta['uid']}", seconds, lambda: self._run(pod))

    def _once(self, what: str, seconds: float, act: Callable[[], None]) -> None:
        if what in self._begun:
            return
        self._begun.add(what)

        def later() -> None:
            self._pool.submit(act)

        timer = threading.Timer(seconds, later)
        timer.daemon = True
        timer.start()

    def _run(self, pod: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in _READY
        ]
        containers = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": each["image"],
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": now}},
            }
            for each in pod["spec"]["containers"]
        ]
        status = {
            "phase": "Running",
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": containers,
        }
        path = f"{_path(pod)}/status"
        self._cluster.http.patch(path, content=json.dumps({"status": status}), headers=_STRATEGIC)

    def _remove(self, pod: Mapping[str, Any]) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._cluster.http.request("DELETE", _path(pod), content=json.dumps(options))


def _path(pod: Mapping[str, Any]) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
