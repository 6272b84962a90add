"""Workloads that are in the state already: what a request that names one still asks for."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

from topospread.checkpoints import checkpoint
from topospread.codec.stored import object_from_stored
from topospread.errors import CorruptValue, FieldViolation, InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE, TERMINAL_PHASES
from topospread.kube.violations import required
from topospread.kube.workloads import JOB, STATEFUL_SET, controllers_of, workload_of
from topospread.service.simulation.templates import WRITTEN, changes
from topospread.store.model import Key, Kind
from topospread.wording import counted
from topospread_client import ORDINAL_LABELS
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.index.snapshot import Snapshot
    from topospread.service.decisions.engine import Engine
    from topospread.service.simulation.request import SimulationQuestion
    from topospread.service.state.consistent_read import ConsistentRead

POD: Final = "Pod"
DAEMON_SET: Final = "DaemonSet"

_NUMBER: Final = re.compile(r"(\d{1,9})$")
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
        lost: how many more there are that the request removes, or whose nodes it drains.
        payloads: of those that run, as they are stored.
    """

    asked: int
    name: WorkloadName
    lost: int = 0
    running: list[pb.Pod] = field(default_factory=list)
    waiting: list[pb.Pod] = field(default_factory=list)
    succeeded: list[pb.Pod] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def add(self, pod: pb.Pod, payload: bytes, *, away: bool) -> None:
        """Count a pod; `away`: it is gone with its node, or removed."""
        if pod.status.phase in TERMINAL_PHASES:
            if pod.status.phase == "Succeeded" and self.name.kind != POD:
                self.succeeded.append(pod)
        elif away:
            self.lost += not pod.metadata.HasField("deletion_timestamp")
        elif not pod.metadata.HasField("deletion_timestamp"):
            if pod.spec.node_name:
                self.running.append(pod)
                self.payloads.append(payload)
            else:
                self.waiting.append(pod)

    @property
    def there(self) -> list[pb.Pod]:
        """Those that run or wait."""
        return [*self.running, *self.waiting]

    @property
    def newest(self) -> pb.Pod:
        """The newest that runs or waits, else of all."""
        return max(
            self.there or self.succeeded,
            key=lambda pod: (pod.metadata.creation_timestamp.seconds, pod.metadata.name),
        )

    @property
    def revisions(self) -> int:
        """How many templates its pods tell of."""
        return len(
            {tuple(pod.metadata.labels.get(label) for label in _REVISIONS) for pod in self.there}
        )


def names_of(question: SimulationQuestion) -> dict[WorkloadName, int]:
    """The workloads that a request names, with their positions among its pods."""
    found: dict[WorkloadName, int] = {}
    for position, asked in enumerate(question.message.pods):
        if not asked.HasField("workload"):
            continue
        given = question.pods[position].pod
        if isinstance(given, bytes):
            namespace = pb.Pod.FromString(given).metadata.namespace or DEFAULT_NAMESPACE
            name = WorkloadName(namespace, asked.workload.kind, asked.workload.name)
            found.setdefault(name, position)
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
    return {position: of for position, of in found.items() if of.there or of.succeeded}


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


@dataclass(slots=True)
class WorkloadPlan:
    """What is placed of a workload, some of whose pods are in the state.

    Attributes:
        waiting: those of the state that are placed.
        template: of those that are made, with the labels of its newest pod where it is theirs.
        numbers: of those that are made, where its pods have numbers; else only how many there are.
        rolling: it has more pods than are asked for because a rollout is under way.
    """

    pods: WorkloadPods
    waiting: Sequence[pb.Pod]
    template: pb.Pod
    numbers: Sequence[int]
    excess: int
    changed: Sequence[str]
    asked_for: int
    rolling: bool = False

    @property
    def replaced(self) -> Sequence[pb.Pod]:
        """Those of the state that a rollout takes away."""
        return self.pods.there if self.changed else ()

    @property
    def begins_beside(self) -> bool:
        """Whether it is a rollout that may make a pod before it takes one away."""
        return bool(self.changed and self.pods.running) and self.pods.name.kind != STATEFUL_SET

    def message(self, *, waits: bool) -> detail.PlacedWorkload:
        """As answers have it; `waits`: the first new pod finds no node beside those that run."""
        of = self.pods
        text = self._text()
        if waits:
            text += (
                "; beside those that run the first of them finds no node, so with a rolling update"
                " whose maxUnavailable is 0 it waits"
            )
        made = detail.PlacedWorkload(
            pods_index=of.asked,
            namespace=of.name.namespace,
            running_pod_count=len(of.running),
            waiting_pod_count=len(of.waiting),
            succeeded_pod_count=len(of.succeeded),
            placed_waiting_pod_count=len(self.waiting),
            new_pod_count=len(self.numbers),
            excess_pod_count=self.excess,
            changed_fields=self.changed,
            text=text,
        )
        made.workload.kind, made.workload.name = of.name.kind, of.name.name
        return made

    def _text(self) -> str:
        of = self.pods
        if of.name.kind == POD:
            if of.running:
                where = of.running[0].spec.node_name
                return f"{of.name} runs on {where} already: it is not placed"
            return f"{of.name} is in the state and waits: it is placed, as the manifest has it"
        counts = [
            f"{len(pods)} {verb}{'s' * (len(pods) == 1)}"
            for pods, verb in ((of.running, "run"), (of.waiting, "wait"))
            if pods
        ]
        if of.succeeded:
            counts.append(f"{len(of.succeeded)} succeeded")
        total = counted(len(of.there) + len(of.succeeded), "pod")
        what = self._what()
        if self.rolling:
            what += "; a rollout is under way, whose older pods go"
        return f"{of.name} has {total} in the state ({', '.join(counts)}): {what}"

    def _what(self) -> str:
        of, new = self.pods, len(self.numbers)
        if self.changed:
            replicas = "1 replica is" if new == 1 else f"{new} replicas are"
            return (
                f"its template is another than theirs ({', '.join(self.changed)}), so this is taken"
                f" for a rollout, judged at its end: {replicas} made in their place"
            )
        if self.excess:
            return (
                f"that is {self.excess} more than the {self.asked_for} asked for, and none is"
                " placed; which go first: rank-deletions"
            )
        waiting = len(self.waiting)
        text = {0: "", 1: "the 1 that waits is placed"}.get(
            waiting, f"the {waiting} that wait are placed"
        )
        if new:
            more = f"{new} more {'is' if new == 1 else 'are'} made"
            if waiting and of.name.kind == STATEFUL_SET:
                more += " (unless its podManagementPolicy is Parallel, once those below are ready)"
            return f"{text}, {more}" if text else more
        return f"{text}, none is made" if text else "no more are asked for, and none is placed"


def planned(of: WorkloadPods, asked: detail.PodsToPlace, encoded: bytes) -> WorkloadPlan:
    """What is to be placed of a workload.

    Args:
        of: its pods in the state, at least one.
        asked: how many it is to have.
        encoded: the v1.Pod that it makes.
    """
    template = pb.Pod.FromString(encoded)
    if of.name.kind == POD:
        if of.waiting:
            template.metadata.uid = of.waiting[0].metadata.uid
        numbers = () if of.running else (0,)
        return WorkloadPlan(of, (), template, numbers, 0, (), 1)
    there = len(of.there)
    # A DaemonSet's pods go with their nodes.
    lost = 0 if of.name.kind == DAEMON_SET else of.lost
    wanted = asked.replicas if asked.HasField("replicas") else there + lost
    if asked.HasField("completions"):
        wanted = min(wanted, max(0, asked.completions - len(of.succeeded)))
    changed: tuple[str, ...] = ()
    if of.name.kind not in (DAEMON_SET, JOB):  # the one replaces pod by pod, the other never
        changed = tuple(changes(template, of.newest))
    if changed:
        begin = first_number(template.metadata.labels) or 0
        return WorkloadPlan(of, (), template, range(begin, begin + wanted), 0, changed, wanted)
    _adopt_labels(template, of.newest)
    first = first_number(template.metadata.labels)
    if first is None:
        return _of_alike(of, template, wanted)
    return _of_numbered(of, template, first, wanted)


def _of_alike(of: WorkloadPods, template: pb.Pod, wanted: int) -> WorkloadPlan:
    there = len(of.there)
    excess = max(0, there - wanted)
    rolling = excess > 0 and of.revisions > 1 and len(of.waiting) <= wanted
    if rolling:
        excess = 0  # the older pods go
    waiting = () if excess else of.waiting
    new = 0 if excess else max(0, wanted - there)
    return WorkloadPlan(of, waiting, template, range(new), excess, (), wanted, rolling)


def _of_numbered(of: WorkloadPods, template: pb.Pod, first: int, wanted: int) -> WorkloadPlan:
    """Of a StatefulSet those that are missing, of an indexed Job those that have not been there."""
    taken = {_number_of(pod): pod for pod in (*of.succeeded, *of.there)}
    if of.name.kind == JOB:
        there = len(of.there)
        free = (
            number for number in range(first, first + wanted + len(taken)) if number not in taken
        )
        new = [number for number, _ in zip(free, range(max(0, wanted - there)), strict=False)]
        excess = max(0, there - wanted)
        return WorkloadPlan(of, () if excess else of.waiting, template, new, excess, (), wanted)
    inside = range(first, first + wanted)
    missing = [number for number in inside if number not in taken]
    excess = sum(number not in inside for number in taken)
    waiting = [pod for pod in of.waiting if _number_of(pod) in inside]
    if excess and not missing:
        waiting = []
    return WorkloadPlan(of, waiting, template, missing, 0 if missing else excess, (), wanted)


def first_number(labels: Mapping[str, str]) -> int | None:
    """The number of the first pod of a template that numbers its pods; None for others."""
    for label in sorted(ORDINAL_LABELS & labels.keys()):
        if found := _NUMBER.search(labels[label]):
            return int(found[1])
    return None


def _number_of(pod: pb.Pod) -> int:
    """The number of a pod; −1 where nothing tells it."""
    number = first_number(pod.metadata.labels)
    if number is not None:
        return number
    found = _NUMBER.search(pod.metadata.name)
    return int(found[1]) if found else -1


def _adopt_labels(template: pb.Pod, newest: pb.Pod) -> None:
    """Give a template the labels that its controller gave to the newest of its pods."""
    labels, known = template.metadata.labels, newest.metadata.labels
    for label in WRITTEN - ORDINAL_LABELS:
        if label in labels and label in known:
            labels[label] = known[label]
