"""What the client costs beside a stub: EvaluatePod called by both, in turns."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import grpc.aio

from bench import requests
from bench.cluster import ARCH, HOSTNAME, ZONE
from bench.figures import Figures
from bench.processes import server
from bench.requests import CLUSTER, EVALUATE_POD
from bench.stores import filled_store
from topospread_client import AsyncClient, Client, best, manifest_from_object, pod_from_manifest
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.options import BenchOptions
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

WAYS: Final = ("", "aio_")
"""The blocking client and that for asyncio."""

FORMS: Final = ("proto", "dict")
"""How pods are given: as messages, and as manifests."""

_CALLS: Final = 25
"""Calls of one kind before the next has its turn: few, so that all meet the same machine."""

_PATIENCE: Final = 60.0

_Timed: TypeAlias = list[tuple[float, float]]
"""Seconds of each call, and the CPU that this process spent on it."""


def measure_client(options: BenchOptions) -> Figures:
    """Latency and client CPU of EvaluatePod by the client, as ratios to those by a stub."""
    figures = Figures()
    with ExitStack() as opened:
        options.progress("client: making the cluster")
        running = opened.enter_context(server(opened.enter_context(filled_store(options.size))))
        small = requests.incoming_pods()
        large = [pod_from_manifest(_deployed(manifest)) for manifest in map(_manifest, small)]
        sizes = {
            "small": (small, [_manifest(pod) for pod in small]),
            "large": (large, [_deployed(_manifest(pod)) for pod in small]),
        }
        runs: dict[str, Callable[[], _Timed]] = {}
        for way, callers in opened.enter_context(_callers(running.address)).items():
            for size, (pods, manifests) in sizes.items():
                given: tuple[Sequence[Any], ...] = (pods, pods, manifests)
                for form, caller, about in zip(("stub", *FORMS), callers, given, strict=True):
                    runs[f"{way}{size}_{form}"] = _run(caller, about)
        for run in runs.values():
            run()
        for number in range(options.rounds):
            options.progress(f"client: round {number + 1} of {options.rounds}")
            _round(runs, options.seconds * len(runs), figures)
    return figures


def _round(runs: Mapping[str, Callable[[], _Timed]], seconds: float, figures: Figures) -> None:
    taken: dict[str, _Timed] = {name: [] for name in runs}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for name, run in runs.items():
            taken[name] += run()
    p50 = {name: statistics.median(each for each, _ in timed) for name, timed in taken.items()}
    cpu = {name: statistics.fmean(each for _, each in timed) for name, timed in taken.items()}
    for name in runs:
        figures.add(f"{name}_p50_ms", p50[name] * 1e3)
        figures.add(f"{name}_client_cpu_us", cpu[name] * 1e6)
    for name in runs:
        case, _, form = name.rpartition("_")
        if form in FORMS:
            figures.add(f"{name}_ratio", p50[name] / p50[f"{case}_stub"])
            figures.add(f"{name}_cpu_ratio", cpu[name] / cpu[f"{case}_stub"])


def _run(caller: Callable[[Sequence[Any]], _Timed], pods: Sequence[Any]) -> Callable[[], _Timed]:
    """One turn: a few calls, the pods one after the other, where the last turn ended."""
    turn = 0

    def run() -> _Timed:
        nonlocal turn
        chosen = [pods[(turn + number) % len(pods)] for number in range(_CALLS)]
        turn += _CALLS
        return caller(chosen)

    return run


_Callers: TypeAlias = "Sequence[Callable[[Sequence[Any]], _Timed]]"
"""How pods are asked about in one way: by a stub, then by the client for each of :data:`FORMS`."""


@contextmanager
def _callers(address: str) -> Iterator[Mapping[str, _Callers]]:
    """The callers for each of :data:`WAYS`, connected to a server."""
    with ExitStack() as opened:
        channel = opened.enter_context(grpc.insecure_channel(address))
        stub = _stub(channel)
        client = opened.enter_context(Client(address, cluster=CLUSTER, timeout=_PATIENCE))
        runner = opened.enter_context(asyncio.Runner())
        aio = runner.run(_AsyncCallers.open(address))
        opened.callback(lambda: runner.run(aio.close()))
        yield {
            "": (
                _blocking(lambda pod: best(stub(pod))),
                *[_blocking(lambda pod: best(client.evaluate_pod(pod)))] * 2,
            ),
            "aio_": [
                lambda pods, ask=ask: runner.run(_awaited(ask, pods))  # type: ignore[misc] # a lambda with a default
                for ask in aio.calls
            ],
        }


def _blocking(ask: Callable[[Any], object]) -> Callable[[Sequence[Any]], _Timed]:
    def run(pods: Sequence[Any]) -> _Timed:
        timed = []
        for pod in pods:
            begun, spent = time.perf_counter(), time.process_time()
            ask(pod)
            timed.append((time.perf_counter() - begun, time.process_time() - spent))
        return timed

    return run


async def _awaited(ask: Callable[[Any], Any], pods: Sequence[Any]) -> _Timed:
    timed = []
    for pod in pods:
        begun, spent = time.perf_counter(), time.process_time()
        await ask(pod)
        timed.append((time.perf_counter() - begun, time.process_time() - spent))
    return timed


def _request(pod: k8s.Pod) -> pb.EvaluatePodRequest:
    return pb.EvaluatePodRequest(cluster=CLUSTER, pod=common_pb2.PodSource(object=pod))


def _stub(channel: Any) -> Callable[[k8s.Pod], Any]:
    """EvaluatePod as the generated stub makes it."""
    stub = channel.unary_unary(
        EVALUATE_POD,
        request_serializer=pb.EvaluatePodRequest.SerializeToString,
        response_deserializer=pb.EvaluatePodResponse.FromString,
    )
    return lambda pod: stub(_request(pod), timeout=_PATIENCE)


class _AsyncCallers:
    """The same for asyncio.

    Attributes:
        calls: what asks about a pod, by a stub and by the client for each form.
    """

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._client = AsyncClient(address, cluster=CLUSTER, timeout=_PATIENCE)
        self._stub = _stub(self._channel)
        self.calls = (self._call_stub, *[self._call_client] * 2)

    @classmethod
    async def open(cls, address: str) -> _AsyncCallers:
        """Connect, in the loop that runs."""
        return cls(address)

    async def close(self) -> None:
        """End the connections."""
        await self._client.close()
        await self._channel.close()

    async def _call_stub(self, pod: k8s.Pod) -> str | None:
        return best(await self._stub(pod))

    async def _call_client(self, pod: Any) -> str | None:
        return best(await self._client.evaluate_pod(pod))


def _manifest(pod: k8s.Pod) -> dict[str, Any]:
    return manifest_from_object(ClusterObject(pod=pod))


def _deployed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The pod as an API server has it when a Deployment with everything to it made it."""
    meta, spec = manifest["metadata"], manifest["spec"]
    recommended = ("name", "instance", "version", "component", "part-of", "managed-by")
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{meta['labels']['app']}-77b9d6",
        "uid": "6fa963b1-7a89-5b48-b5c1-ffff047b0b01",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        **manifest,
        "metadata": {
            **meta,
            "generateName": f"{meta['labels']['app']}-77b9d6-",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "resourceVersion": "123456",
            "labels": {
                **meta["labels"],
                **{f"app.kubernetes.io/{label}": f"the-{label}" for label in recommended},
            },
            "annotations": {f"example.com/note-{n}": "some words " * 6 for n in range(6)},
            "ownerReferences": meta.get("ownerReferences", [owner]),
        },
        "spec": {
            **spec,
            "affinity": {**_AFFINITY, **spec.get("affinity", {})},
            "containers": [_container(f"c{number}") for number in range(4)],
            "initContainers": [_container("init")],
            "volumes": _VOLUMES,
            "tolerations": [*_TOLERATIONS, *spec.get("tolerations", [])],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "app",
            "schedulerName": "default-scheduler",
            "securityContext": {"fsGroup": 1000},
            "terminationGracePeriodSeconds": 30,
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "enableServiceLinks": True,
        },
    }


def _container(name: str) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10}
    secret = {"secretKeyRef": {"name": "db", "key": "password"}}
    return {
        "name": name,
        "image": f"example.com/team/{name}@sha256:{'ab' * 32}",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/app"],
        "args": ["--listen=:8080", "--config=/etc/app/config.yaml"],
        "env": [
            *({"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(20)),
            {"name": "PASSWORD", "valueFrom": secret},
        ],
        "ports": [
            {"name": "http", "containerPort": 8080, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
        ],
        "resources": {
            "requests": {"cpu": "250m", "memory": "512Mi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app"},
            {"name": "data", "mountPath": "/data"},
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True},
    }


_AFFINITY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": ARCH, "operator": "In", "values": ["amd64", "arm64"]},
                        {"key": ZONE, "operator": "Exists"},
                    ]
                }
            ]
        }
    },
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"tier": "fe"}},
                    "topologyKey": HOSTNAME,
                },
            }
        ]
    },
}
_TOLERATIONS: Final = [
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for state in ("not-ready", "unreachable")
]
_VOLUMES: Final = [
    {"name": "config", "configMap": {"name": "app", "defaultMode": 420}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "tmp", "emptyDir": {}},
    {
        "name": "kube-api-access",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt"}},
            ]
        },
    },
]
