"""Workloads that are in the state already: what a request that names one still asks for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

from topospread.checkpoints import checkpoint
from topospread.codec.stored import object_from_stored
from topospread.errors import CorruptValue, FieldViolation, InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE, TERMINAL_PHASES
from topospread.kube.violations import duplicate, required
from topospread.kube.workloads import (
    JOB,
    controllers_of,
    workload_of,
)
from topospread.service.simulation.templates import WRITTEN
from topospread.store.model import Key, Kind
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from topospread.index.pod_classes import PodClass
    from topospread.index.snapshot import Snapshot
    from topospread.service.decisions.engine import Engine
    from topospread.service.simulation.request import SimulationQuestion
    from topospread.service.state.consistent_read import ConsistentRead

POD: Final = "Pod"
DAEMON_SET: Final = "DaemonSet"


_REVISIONS: Final = tuple(sorted(label for label in WRITTEN if label.endswith("-hash")))


class WorkloadName(NamedTuple):
    """A workload of the state, or a pod."""

    namespace: str
    kind: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(slots=True)
class WorkloadPods:
    """The pods of a workload in the state, without those that terminate or have failed.

    Attributes:
        asked: position in the request's pods.
        going: those that the request removes, or whose nodes it drains.
        over: of a pod that is asked for by itself, that it terminates or has ended.
        payloads: of those that run, as they are stored.
    """

    asked: int
    name: WorkloadName
    over: str = ""
    running: list[pb.Pod] = field(default_factory=list)
    waiting: list[pb.Pod] = field(default_factory=list)
    going: list[pb.Pod] = field(default_factory=list)
    succeeded: list[pb.Pod] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def add(self, pod: pb.Pod, payload: bytes, *, away: bool) -> None:
        """Count a pod; `away`: it is gone with its node, or removed."""
        ended = pod.status.phase in TERMINAL_PHASES
        terminates = pod.metadata.HasField("deletion_timestamp")
        if self.name.kind == POD and (ended or terminates):
            if not away:
                self.over = f"has ended ({pod.status.phase})" if ended else "is being deleted"
        elif ended:
            if pod.status.phase == "Succeeded":
                self.succeeded.append(pod)
        elif terminates:
            pass  # another may be made in its place
        elif away:
            self.going.append(pod)
        elif pod.spec.node_name:
            self.running.append(pod)
            self.payloads.append(payload)
        else:
            self.waiting.append(pod)

    @property
    def payloads_by_number(self) -> list[bytes]:
        """Of those that run, those with lower numbers first."""
        names = [pod.metadata.name for pod in self.running]
        pairs = zip(names, self.payloads, strict=True)
        return [each for _, each in sorted(pairs, key=lambda pair: (len(pair[0]), pair[0]))]

    @property
    def there(self) -> list[pb.Pod]:
        """Those that run or wait."""
        return [*self.running, *self.waiting]

    @property
    def is_there(self) -> bool:
        """Whether any pod tells what is left to place; a pod by itself that goes is as one more."""
        going = self.going if self.name.kind != POD else ()
        return bool(self.there or self.succeeded or self.over or going)

    @property
    def newest(self) -> pb.Pod:
        """The newest that runs or waits, else of all; of equally old ones one that waits."""
        return max(
            self.there or self.going or self.succeeded,
            key=lambda pod: (
                pod.metadata.creation_timestamp.seconds,
                not pod.spec.node_name,
                pod.metadata.name,
            ),
        )

    @property
    def revisions(self) -> int:
        """How many templates its pods tell of."""
        return len(
            {tuple(pod.metadata.labels.get(label) for label in _REVISIONS) for pod in self.there}
        )


def names_of(question: SimulationQuestion, wrong: list[FieldViolation]) -> dict[WorkloadName, int]:
    """The workloads that a request names, with their positions among its pods.

    One that it names twice is added to `wrong`: of which the pods in the state are is not known.
    """
    found: dict[WorkloadName, int] = {}
    for position, asked in enumerate(question.message.pods):
        if not asked.HasField("workload"):
            continue
        given = question.pods[position].pod
        if isinstance(given, bytes):
            namespace = pb.Pod.FromString(given).metadata.namespace or DEFAULT_NAMESPACE
            name = WorkloadName(namespace, asked.workload.kind, asked.workload.name)
            if found.setdefault(name, position) != position:
                wrong.append(duplicate(f"pods[{position}].workload", str(name)))
    return found


def keys_of(
    engine: Engine, names: Mapping[WorkloadName, int], read: ConsistentRead
) -> dict[Key, tuple[WorkloadName, ...]]:
    """The pods to read, with what is named of each; nothing where only its content tells."""
    found: dict[Key, tuple[WorkloadName, ...]] = {}
    for space in sorted({name.namespace for name in names}):
        of_class = {}
        for pod_class in read.view.snapshot.pod_classes.get(space, ()):
            checkpoint()
            with suppress(InvalidRequest):
                controllers = _controllers(pod_class, engine, read.view.snapshot)
                if named := tuple(name for name in controllers if name in names):
                    of_class[pod_class] = named
        for pod_class, pod, _ in read.pods.of(of_class):
            found[Key(Kind.POD, space, pod)] = of_class[pod_class]
        if any(name.kind == JOB and name.namespace == space for name in names):
            for pod in read.pods.without_class(space):
                found[Key(Kind.POD, space, pod)] = ()
    for name in names:
        if name.kind == POD:
            key = Key(Kind.POD, name.namespace, name.name)
            found[key] = (*found.get(key, ()), name)
    return found


def elsewhere(
    engine: Engine,
    snapshot: Snapshot,
    question: SimulationQuestion,
    missing: Iterable[tuple[WorkloadName, int]],
) -> Iterator[FieldViolation]:
    """Workloads that name no namespace, and are in the state in another one than the default."""
    wanted: dict[tuple[str, str], int] = {}
    for name, position in missing:
        given = question.pods[position].pod
        if isinstance(given, bytes) and not pb.Pod.FromString(given).metadata.namespace:
            wanted[name.kind, name.name] = position
    if not wanted:
        return
    found: dict[int, set[WorkloadName]] = {}
    for classes in snapshot.pod_classes.values():
        for pod_class in classes:
            checkpoint()
            with suppress(InvalidRequest):
                for name in _controllers(pod_class, engine, snapshot):
                    if (position := wanted.get((name.kind, name.name), -1)) >= 0:
                        found.setdefault(position, set()).add(name)
    for position, names in sorted(found.items()):
        if any(name.namespace == DEFAULT_NAMESPACE for name in names):
            continue
        shown = " and ".join(map(str, sorted(names)[:3]))
        yield required(
            f"{question.pods[position].path}.metadata.namespace",
            f"{shown} {'is' if len(names) == 1 else 'are'} in the state, and none of"
            f" {DEFAULT_NAMESPACE}: name the namespace (-n; -n {DEFAULT_NAMESPACE} if it is that)",
        )


def pods_of(
    names: Mapping[WorkloadName, int],
    keys: Mapping[Key, tuple[WorkloadName, ...]],
    read: ConsistentRead,
    gone: frozenset[str],
    removed: Iterable[tuple[str, str]],
) -> dict[int, WorkloadPods]:
    """The pods of workloads that were read, by the workload's position in the request.

    Args:
        names: of the workloads.
        keys: as :func:`keys_of` had them.
        read: has read these.
        gone: nodes whose pods are gone.
        removed: pods that are gone.
    """
    found: dict[int, WorkloadPods] = {}
    removed = set(removed)
    for stored in read.objects(keys):
        checkpoint()
        with suppress(CorruptValue):
            pod = object_from_stored(stored).pod
            away = pod.spec.node_name in gone or stored.key[1:] in removed
            for name in keys[stored.key] or _named_by(pod, names):
                of = found.setdefault(names[name], WorkloadPods(names[name], name))
                of.add(pod, stored.payload, away=away)
    return {position: of for position, of in found.items() if of.is_there}


def _controllers(pod_class: PodClass, engine: Engine, snapshot: Snapshot) -> Iterator[WorkloadName]:
    """What controls the pods of a class: a ReplicaSet, and its Deployment."""
    namespace, pod = pod_class.namespace, engine.template_of(pod_class)[0].pod
    if pod.owner is not None:
        found = controllers_of(pod.owner, pod.labels, snapshot.controllers_in(namespace))
        for each in dict.fromkeys((found[0], workload_of(found))):
            yield WorkloadName(namespace, each.kind, each.name)


def _named_by(pod: pb.Pod, names: Mapping[WorkloadName, int]) -> Iterator[WorkloadName]:
    for owner in pod.metadata.owner_references:
        name = WorkloadName(pod.metadata.namespace, owner.kind, owner.name)
        if owner.controller and name in names:
            yield name
