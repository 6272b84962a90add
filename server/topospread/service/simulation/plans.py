"""Plans for workloads that are in the state already: what is left to place, and what to say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.kube.workloads import JOB, REVISIONS, STATEFUL_SET
from topospread.service.messages import rollout_outcome_message
from topospread.service.simulation.templates import WRITTEN, changes
from topospread.service.simulation.workloads import DAEMON_SET, POD
from topospread.wording import counted
from topospread_client import ORDINAL_LABELS
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb
from topospread_proto.v1 import explanation_pb2 as explanation
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.service.simulation.workloads import WorkloadPods
    from topospread.spread.rollouts import RolloutOutcome


_KEEPING: Final = frozenset({DAEMON_SET, JOB, *REVISIONS})
"""Kinds that replace pod by pod, or never: new ones alone are of another template."""

_IMAGES: Final = " (images are not compared: another one is a rollout)"

_NUMBER: Final = re.compile(r"(\d{1,9})$")


@dataclass(slots=True)
class WorkloadPlan:
    """What is placed of a workload, some of whose pods are in the state.

    Attributes:
        waiting: those of the state that are placed.
        template: of those that are made, with the labels of its newest pod where it is theirs.
        numbers: of those that are made, where its pods have numbers; else only how many there are.
        rolling: it has more pods than are asked for because a rollout is under way.
        may_roll: a rollout is asked for where its images, which are not kept, are others.
        kept: names of those that a rollout leaves as they are.
        on_delete: no rollout takes any away.
    """

    pods: WorkloadPods
    waiting: Sequence[pb.Pod]
    template: pb.Pod
    numbers: Sequence[int]
    excess: int
    changed: Sequence[str]
    asked_for: int
    rolling: bool = False
    may_roll: bool = False
    kept: frozenset[str] = frozenset()
    on_delete: bool = False

    @property
    def _is_replaced(self) -> bool:
        return bool(self.changed) and not self.on_delete

    @property
    def replaced(self) -> Sequence[pb.Pod]:
        """Those of the state that a rollout takes away."""
        there = self.pods.there if self._is_replaced else ()
        return [pod for pod in there if pod.metadata.name not in self.kept]

    @property
    def replaced_payloads(self) -> Sequence[bytes]:
        """Of these, those that run, as they are stored."""
        running = zip(self.pods.running, self.pods.payloads, strict=True)
        found = running if self._is_replaced else ()
        return [payload for pod, payload in found if pod.metadata.name not in self.kept]

    @property
    def rolls(self) -> bool:
        """Whether it is a rollout, or would be one of another image."""
        is_of_image = self.may_roll and not (self.rolling or self.places)
        return bool(self.pods.running) and (self._is_replaced or is_of_image)

    @property
    def places(self) -> bool:
        """Whether pods are placed, or there are too many."""
        return bool(self.waiting or self.numbers or self.excess)

    def message(self, rollout: RolloutOutcome | None) -> detail.PlacedWorkload:
        """As answers have it.

        Args:
            rollout: what becomes of it, where that is asked.
        """
        of = self.pods
        text = self._text(rollout)
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
        if rollout is not None:
            made.rollout.CopyFrom(rollout_outcome_message(rollout))
        return made

    def _text(self, rollout: RolloutOutcome | None) -> str:
        of = self.pods
        if of.name.kind == POD:
            if of.running:
                where = of.running[0].spec.node_name
                return f"{of.name} runs on {where} already: it is not placed"
            if of.over:
                return f"{of.name} {of.over}: it is not placed"
            return f"{of.name} is in the state and waits: it is placed, as the manifest has it"
        counts = [
            f"{len(pods)} {one if len(pods) == 1 else several}"
            for pods, one, several in (
                (of.running, "runs", "run"),
                (of.waiting, "waits", "wait"),
                (of.going, "goes", "go"),
            )
            if pods
        ]
        if of.succeeded:
            counts.append(f"{len(of.succeeded)} succeeded")
        total = counted(len(of.there) + len(of.going) + len(of.succeeded), "pod")
        what = self._what()
        if self.rolling:
            what += "; a rollout is under way, whose older pods go"
        if rollout is not None:
            what += f"; {rollout.text}"
        return f"{of.name} has {total} in the state ({', '.join(counts)}): {what}"

    def _what(self) -> str:
        what = self._placed()
        if not self.changed:
            return what
        is_another = f"its template is another than theirs ({', '.join(self.changed)})"
        if self.on_delete:
            return f"{is_another}, and pods get it once they are deleted (OnDelete): {what}"
        new = len(self.numbers)
        replicas = "1 replica is" if new == 1 else f"{new} replicas are"
        what = f"{replicas} made in their place"
        if self.kept:
            kept = "1 keeps its" if len(self.kept) == 1 else f"{len(self.kept)} keep their"
            what = f"{kept} template by the partition, {replicas} made"
        return f"{is_another}, so this is taken for a rollout, judged at its end: {what}"

    def _placed(self) -> str:
        of, new = self.pods, len(self.numbers)
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
        if text:
            return f"{text}, none is made"
        text = "no more are asked for, and none is placed"
        return text + _IMAGES if self.may_roll and not self.rolling else text


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
        numbers = () if of.running or of.over else (0,)
        return WorkloadPlan(of, (), template, numbers, 0, (), 1)
    there = len(of.there)
    # A DaemonSet's pods go with their nodes.
    going = 0 if of.name.kind == DAEMON_SET else len(of.going)
    wanted = asked.replicas if asked.HasField("replicas") else there + going
    if asked.HasField("completions"):
        wanted = min(wanted, max(0, asked.completions - len(of.succeeded)))
    elif of.name.kind == JOB and of.succeeded:
        wanted = min(wanted, there)  # the first that succeeds says that the work is done
    changed: tuple[str, ...] = ()
    if of.name.kind not in _KEEPING:
        changed = tuple(changes(template, of.newest))
    on_delete = asked.rolling_update.on_delete
    if changed and not on_delete:
        return _of_rollout(of, template, wanted, changed, asked.rolling_update)
    is_of_pod = _labels(template) == _labels(of.newest)  # a manifest's have no revision
    if not changed:
        _adopt_labels(template, of.newest)
    first = first_number(template.metadata.labels)
    if first is None:
        plan = _of_alike(of, template, wanted)
    else:
        plan = _of_numbered(of, template, first, wanted, is_given=asked.HasField("replicas"))
    plan.may_roll = of.name.kind not in _KEEPING and not is_of_pod and not on_delete
    plan.changed, plan.on_delete = changed, on_delete
    return plan


def _of_rollout(
    of: WorkloadPods,
    template: pb.Pod,
    wanted: int,
    changed: Sequence[str],
    update: explanation.RollingUpdate,
) -> WorkloadPlan:
    """Of one whose template is another: all replicas, but for the pods that are not replaced.

    What lacks of those that are kept is made of the new template: there is no other at hand.
    """
    begin = first_number(template.metadata.labels) or 0
    most = max(0, min(update.partition, wanted))
    numbers: Sequence[int] = range(begin, begin + wanted)
    if update.ordered:
        kept = [pod for pod in of.there if begin <= _number_of(pod) < begin + most]
        taken = {_number_of(pod) for pod in kept}
        numbers = [number for number in numbers if number not in taken]
    else:
        kept = of.there[:most]
        numbers = numbers[len(kept) :]
    names = frozenset(pod.metadata.name for pod in kept)
    waiting = [pod for pod in of.waiting if pod.metadata.name in names]
    return WorkloadPlan(of, waiting, template, numbers, 0, changed, wanted, kept=names)


def _of_alike(of: WorkloadPods, template: pb.Pod, wanted: int) -> WorkloadPlan:
    there = len(of.there)
    excess = max(0, there - wanted)
    rolling = excess > 0 and of.revisions > 1 and len(of.waiting) <= wanted
    if rolling:
        excess = 0  # the older pods go
    waiting = () if excess else of.waiting
    new = 0 if excess else max(0, wanted - there)
    return WorkloadPlan(of, waiting, template, range(new), excess, (), wanted, rolling)


def _of_numbered(
    of: WorkloadPods, template: pb.Pod, first: int, wanted: int, *, is_given: bool
) -> WorkloadPlan:
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
    inside = {*range(first, first + wanted)}
    if not is_given:  # those beyond a gap are its own, too
        inside.update(
            number for each in (*of.there, *of.going) if (number := _number_of(each)) >= 0
        )
    missing = sorted(inside - taken.keys())
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


def _labels(pod: pb.Pod) -> Mapping[str, str]:
    """Labels of a pod without its number."""
    return {k: v for k, v in pod.metadata.labels.items() if k not in ORDINAL_LABELS}


def _adopt_labels(template: pb.Pod, newest: pb.Pod) -> None:
    """Give a template the labels that its controller gave to the newest of its pods."""
    labels, known = template.metadata.labels, newest.metadata.labels
    for label in WRITTEN - ORDINAL_LABELS:
        if label in labels and label in known:
            labels[label] = known[label]
