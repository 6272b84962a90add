"""What all decisions share: from what a call asks to a cycle."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from topospread.bounded import USUAL
from topospread.checkpoints import checkpoint
from topospread.codec.demands import Demands
from topospread.codec.frames import FramedPod, framed
from topospread.codec.pods import pod_from_proto, too_many_terms
from topospread.codec.stored import object_from_stored
from topospread.errors import (
    FieldViolation,
    InvalidPod,
    InvalidRequest,
    NotFound,
    PodNotFound,
    TopospreadError,
)
from topospread.kube.objects import Pod
from topospread.kube.validation import drop_disabled_fields, validate_pod
from topospread.kube.violations import violations_text
from topospread.service.cycle import Cycle
from topospread.service.shapes import Shape, ShapedPod, Shapes
from topospread.spread.filtering import PodMove
from topospread.store.api import Key, Kind, Reader

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from topospread.bounded import Budgets
    from topospread.codec.frames import UnreadPod
    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.service.asks import Ask, Move, PodRef, SettingsAsk
    from topospread.service.cycles import Cycles
    from topospread.service.rules_book import RulesBook
    from topospread.service.shapes import Judgeable
    from topospread.spread.settings import Rules
    from topospread.spread.topology import GroupKey
    from topospread.store.api import StoredObject


COUNTED_AT_ONCE: Final = 16
"""Selectors: one takes some 0.2 ms at 50,000 pods, and nothing else changes meanwhile."""

FEW_NODES: Final = 1250
"""Nodes below which a constraint costs the same however few they are."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may carry.

    Attributes:
        constraints: of one pod.
        terms: expressions and values of one pod's selectors and affinity.
        batch_pods: pods in a BatchEvaluatePods.
        batch_cells: different pods of one and their constraints, times nodes.
        batch_bytes: of what decisions look at, in different pods of one.
        batch_conditions: what selectors and affinity of different pods of one weigh.
        groups: different selectors of one.
        what_ifs: pods added and removed.
        top_k: nodes that EvaluatePod names.
        simulated_pods: pods that a simulation places.
        simulated_nodes: nodes that join in one.
    """

    constraints: int = 64
    terms: int = 5000
    batch_pods: int = 1000
    batch_cells: int = 2_500_000
    batch_bytes: int = 512 << 10
    batch_conditions: int = 20_000
    groups: int = 4096
    what_ifs: int = 1000
    top_k: int = 1000
    simulated_pods: int = 10_000
    simulated_nodes: int = 5000


class Clock(Protocol):
    """Seconds that only grow."""

    def __call__(self) -> float:
        """Now."""
        ...


@dataclass(slots=True, eq=False)
class Resolved:
    """A cycle and how it came about.

    Attributes:
        cycle_id: names the cycle for later calls of this process; empty when it is not kept.
        remade: the caller's cycle was unknown here.
    """

    cycle: Cycle
    replica: Replica
    cycle_id: str = ""
    remade: bool = False


class Demanding(NamedTuple):
    """A pod, what it takes, and the node that it is bound to; empty while it waits."""

    pod: ShapedPod
    demand: Demand
    node: str


class Engine:
    """Turns asks into cycles: the pod, its rules, a fresh enough view, the groups it needs."""

    def __init__(
        self,
        replicas: Replicas,
        reader: Reader,
        rules: RulesBook,
        cycles: Cycles,
        limits: Limits | None = None,
        clock: Clock = time.perf_counter,
        *,
        remembers: bool = True,
        budgets: Budgets = USUAL,
    ) -> None:
        self.budgets = budgets
        self.replicas = replicas
        self.rules = rules
        self.cycles = cycles
        self.limits = limits or Limits()
        self.clock = clock
        self.remembers = remembers
        self._reader = reader
        self._shapes = Shapes(budgets["shapes"])
        self._demands = Demands(budgets["demands"])

    def begin(self, ask: Ask) -> Resolved:
        """A new cycle for the ask's pod.

        Raises:
            InvalidRequest: no pod, too much, unknown settings, or (with `validate`) constraints
                that the API server would refuse.
            NotFound: the cluster or the pod is not known.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see Replicas.resolve.
        """
        if ask.subject is None:
            text = "give a pod, or its name in the state"
            raise InvalidRequest.at("pod", text, "Required value")
        self._check_what_ifs(ask)
        started = self.clock()
        replica, view = self.replicas.resolve(ask.cluster, ask.consistency, ask.deadline)
        pod = self._shaped(ask.cluster, ask.subject)
        rules = self.rules_of(pod.shape, ask)
        judgeable = pod.shape.judgeable(rules, view.snapshot)
        if not _counts_all(judgeable, view.snapshot):
            view = self.counted(((pod, rules),), replica, view)
            judgeable = pod.shape.judgeable(rules, view.snapshot)
        cycle = self._cycle(pod, rules, judgeable, ask, view)
        ask.stages.resolve = self.clock() - started
        return Resolved(cycle, replica)

    def begin_all(
        self, ask: Ask, pods: Sequence[Pod | bytes | PodRef | InvalidRequest]
    ) -> tuple[Replica, View, Sequence[Resolved | InvalidRequest | NotFound]]:
        """A state, and one new cycle a pod at it, or why the pod is refused.

        Args:
            ask: what is asked about all of them.
            pods: each parsed, as the bytes of v1.Pod, a pod of the state, or why it is none.

        Raises:
            As :meth:`begin`, for what concerns all pods.
        """
        replica, view = self.replicas.resolve(ask.cluster, ask.consistency, ask.deadline)
        read = self._read(ask.cluster, pods, view.snapshot.node_count)
        asked: list[tuple[ShapedPod, Rules] | InvalidRequest | NotFound] = []
        for given in read:
            checkpoint()
            try:
                if isinstance(given, TopospreadError):
                    raise given
                if isinstance(given, Pod):
                    pod = self._shaped(ask.cluster, given)
                else:
                    pod = self.shaped(given)
                asked.append((pod, self.rules_of(pod.shape, ask)))
            except (InvalidRequest, NotFound) as refused:
                asked.append(refused)
        readable = [a for a in asked if isinstance(a, tuple)]
        self._check_groups(readable, view.snapshot)
        view = self.counted(readable, replica, view)
        snapshot = view.snapshot
        cycles = [
            Resolved(self._cycle(*a, a[0].shape.judgeable(a[1], snapshot), ask, view), replica)
            if isinstance(a, tuple)
            else a
            for a in asked
        ]
        return replica, view, cycles

    def _read(
        self, cluster: str, pods: Sequence[Pod | bytes | PodRef | InvalidRequest], node_count: int
    ) -> Sequence[FramedPod | Pod | InvalidRequest | NotFound]:
        """The pods of a batch as far as their shapes, which are few and small enough.

        Raises:
            InvalidRequest: it would take long as a whole, though each of its pods would not.
        """
        most = max(1, self.limits.batch_cells // max(node_count, FEW_NODES))
        shapes: set[Hashable] = set()
        judged = size = conditions = 0
        read: list[FramedPod | Pod | InvalidRequest | NotFound] = []
        for position, given in enumerate(pods):
            checkpoint()
            try:
                if isinstance(given, InvalidRequest):
                    raise given
                pod = given if isinstance(given, Pod) else self.read(self.encoded(cluster, given))
            except (InvalidRequest, NotFound) as refused:
                read.append(refused)
                continue
            read.append(pod)
            if isinstance(pod, Pod) or pod.key in shapes:
                continue
            shapes.add(pod.key)
            judged += 1 + pod.constraints
            size += pod.size
            if len(pods) > 1 and self._shapes.get(pod.key) is None:
                conditions += pod.conditions(self.limits.batch_conditions - conditions)
            if len(shapes) == 1:
                continue  # one pod is bounded by the limits for a pod
            if judged > most:
                raise _to_be_split(
                    f"different pods and their constraints are more than {most}, the most of one "
                    f"batch for {node_count} nodes",
                    position,
                )
            if size > self.limits.batch_bytes:
                raise _to_be_split(
                    "labels, tolerations, affinity and constraints of different pods are more "
                    f"than {self.limits.batch_bytes} bytes in one batch",
                    position,
                )
            if conditions > self.limits.batch_conditions:
                raise _to_be_split(
                    "expressions of different pods (each as 5), their values, selected labels and "
                    f"tolerations are more than {self.limits.batch_conditions} in one batch",
                    position,
                )
        return read

    def _check_groups(self, asked: Sequence[tuple[ShapedPod, Rules]], snapshot: Snapshot) -> None:
        """Refuse a batch that has more counted at once than may be kept.

        Raises:
            InvalidRequest: to be split.
        """
        if len(asked) <= 1:
            return
        judgeables = {pod.shape.judgeable(rules, snapshot) for pod, rules in asked}
        groups = {group for judgeable in judgeables for group in judgeable.groups}
        if len(groups) > self.limits.groups:
            raise _to_be_split(
                f"the constraints of one batch have {len(groups)} different selectors, at most "
                f"{self.limits.groups} are counted (--max-groups)"
            )

    @staticmethod
    def read(encoded: bytes) -> FramedPod:
        """A pod as far as its shape.

        Raises:
            InvalidPod: the bytes are no pod.
        """
        try:
            return framed(encoded)
        except InvalidRequest as wrong:
            raise wrong.of_pod() from wrong

    def shaped(self, pod: UnreadPod) -> ShapedPod:
        """A pod with its shape, which is parsed and remembered when it is new.

        Raises:
            InvalidRequest: the pod does not parse, or costs far more than any real one.
        """
        shape = self._shapes.get(pod.key)
        if shape is None:
            try:
                parsed = pod.parse(self.limits.terms)
            except InvalidRequest as wrong:
                raise wrong.of_pod() from wrong
            checkpoint()
            check_size(parsed, self.limits)
            shape = Shape(parsed, pod.size)
            self._shapes.put(pod.key, shape)
        return ShapedPod(shape, pod.name, pod.uid)

    def demanding(self, cluster: str, pod: bytes | PodRef) -> Demanding:
        """A pod with what it takes from its node.

        Args:
            cluster: of a pod that is named.
            pod: the bytes of a v1.Pod, or a pod of the state.

        Raises:
            InvalidRequest: the bytes are no pod, or a quantity in it is none.
            NotFound: the pod is not in the state.
        """
        encoded = self.encoded(cluster, pod)
        try:
            return Demanding(self.shaped(framed(encoded)), *self._demands.of(encoded))
        except InvalidRequest as wrong:
            raise wrong.of_pod() from wrong

    def resume(self, ask: Ask) -> Resolved:
        """The ask's cycle, made again from its pod when it is unknown here.

        Raises:
            CycleExpired: it is unknown and there is no pod.
            And what :meth:`begin` raises.
        """
        if not ask.cycle:
            return self.begin(ask)
        known = self.cycles.get(ask.cycle)
        if known is not None and known.cluster == ask.cluster:
            replica, _ = self.replicas.resolve(ask.cluster, ask.consistency, ask.deadline)
            return Resolved(known, replica, ask.cycle)
        if ask.subject is None:
            raise self.cycles.expired(ask.cycle)
        made = self.begin(ask)
        cycle = made.cycle.alone()
        return Resolved(cycle, made.replica, self.cycles.put(cycle), remade=True)

    def _shaped(self, cluster: str, subject: Pod | PodRef | ShapedPod) -> ShapedPod:
        if isinstance(subject, ShapedPod):
            return subject
        pod = subject if isinstance(subject, Pod) else self._stored_pod(cluster, subject)
        check_size(pod, self.limits)
        return ShapedPod(Shape(pod), pod.name, pod.uid)

    def encoded(self, cluster: str, pod: bytes | PodRef) -> bytes:
        """The bytes of a pod."""
        if isinstance(pod, bytes):
            return pod
        return object_from_stored(self.stored(cluster, pod)).pod.SerializeToString()

    def _stored_pod(self, cluster: str, named: PodRef) -> Pod:
        return pod_from_proto(object_from_stored(self.stored(cluster, named)).pod)

    def stored(self, cluster: str, named: PodRef) -> StoredObject:
        """A pod of the state.

        Raises:
            NotFound: there is none of the name, or it has another uid.
        """
        stored = self._reader.get(cluster, Key(Kind.POD, named.namespace, named.name))
        if stored is None or (named.uid and stored.uid != named.uid):
            uid = f" (uid {named.uid})" if named.uid else ""
            name = f"{named.namespace}/{named.name}"
            text = f"pod {name}{uid} is not in cluster {cluster!r}"
            raise PodNotFound(text, "Pod", name, cluster)
        return stored

    def rules_of(self, shape: Shape, ask: Ask) -> Rules:
        """By which rules to judge pods of a shape.

        Raises:
            InvalidRequest: unknown settings, or (with `validate`) constraints that the API server
                would refuse.
        """
        pod = shape.pod
        rules = self.rules_for(ask.settings, pod.scheduler_name)
        if ask.validate:
            # As on creation: fields whose gate is off are dropped before anything is looked at.
            created = drop_disabled_fields(pod.constraints, None, rules.gates)
            violations = validate_pod(replace(pod, constraints=created))
            if violations:
                raise InvalidPod(violations_text(violations), violations)
        return rules

    def rules_for(self, settings: SettingsAsk, scheduler_name: str) -> Rules:
        """By which rules to judge pods of a scheduler.

        Raises:
            InvalidRequest: unknown settings, or too many default constraints.
        """
        rules = self.rules.rules_for(settings, scheduler_name)
        defaults, most = len(rules.profile.default_constraints), self.limits.constraints
        # Those of the configuration are the operator's own business.
        if defaults > most and settings.profile is rules.profile:
            text = f"{defaults} constraints, at most {most} are judged"
            path = "settings.args.defaultConstraints"
            raise InvalidRequest.of([FieldViolation(path, text, "Too many")])
        return rules

    @staticmethod
    def counted(asked: Sequence[tuple[ShapedPod, Rules]], replica: Replica, view: View) -> View:
        """A view that counts all groups the pods need; it may be newer than the one given."""
        kept = False
        while True:
            snapshot = view.snapshot
            judgeables = [pod.shape.judgeable(rules, snapshot) for pod, rules in asked]
            groups = {group for judgeable in judgeables for group in judgeable.groups}
            if all(_counts_all(judgeable, snapshot) for judgeable in judgeables):
                # It has no others: whoever goes on for long would keep what many have asked for.
                return replace(view, snapshot=snapshot.only(groups)) if kept else view
            # Workloads of the newer view may select other pods, so look again.
            view = _kept(groups, replica)
            kept = True

    def _cycle(
        self, pod: ShapedPod, rules: Rules, judgeable: Judgeable, ask: Ask, view: View
    ) -> Cycle:
        moves = self._moves(ask, view) if ask.add_pods or ask.remove_pods else ()
        parsed = pod.shape.pod
        if reservations := view.snapshot.reservations:
            held = reservations.of(parsed.namespace, pod.name, pod.uid)
            if held is not None:
                others = view.snapshot.without(parsed.namespace, held, judgeable.groups)
                view = replace(view, snapshot=others)
        return Cycle(ask.cluster, parsed, rules, judgeable, view, pod.name, pod.uid, moves)

    def _check_what_ifs(self, ask: Ask) -> None:
        if len(ask.add_pods) + len(ask.remove_pods) > self.limits.what_ifs:
            text = f"at most {self.limits.what_ifs} together with removePods"
            raise InvalidRequest.at("addPods", text, "Too many")

    def _moves(self, ask: Ask, view: View) -> tuple[PodMove, ...]:
        def placed(moves: Sequence[Move], delta: int) -> Iterable[PodMove]:
            for move in moves:
                pod = move.pod
                if not isinstance(pod, Pod):
                    checkpoint()
                    pod = self._stored_pod(ask.cluster, pod)
                yield PodMove(pod, view.snapshot.slot(move.node or pod.node_name), delta)

        return (*placed(ask.add_pods, +1), *placed(ask.remove_pods, -1))


def _kept(groups: set[GroupKey], replica: Replica) -> View:
    """A view that counts all of them: new ones take time, so they are counted some at a time.

    Each step asks for those before it, too, lest they are evicted.
    """
    new = replica.loaded().snapshot.missing(groups)
    known = groups.difference(new)
    for end in range(COUNTED_AT_ONCE, len(new), COUNTED_AT_ONCE):
        checkpoint()
        replica.keep((*known, *new[:end]))
    checkpoint()
    return replica.keep(groups)


def _to_be_split(why: str, first: int = 0) -> InvalidRequest:
    """Why a batch is too much, and how many of its first pods are not, where that is known."""
    advice = f"split it, the first {first} are not too many" if first else "split it"
    return InvalidRequest.of([FieldViolation("pods", f"{why}: {advice}", "Too many")])


def _counts_all(judgeable: Judgeable, snapshot: Snapshot) -> bool:
    """Whether a snapshot counts all that a pod needs; notes that it was asked for."""
    for group in judgeable.groups:
        kept = snapshot.groups.get(group)
        if kept is None:
            return False
        kept.use.tick = snapshot.sequence
    return True


def check_size(pod: Pod, limits: Limits) -> None:
    """Refuse pods that would cost far more than any real one.

    Raises:
        InvalidRequest: naming the limit.
    """
    if len(pod.constraints) > limits.constraints:
        text = f"{len(pod.constraints)} constraints, at most {limits.constraints} are judged"
        path = "spec.topologySpreadConstraints"
        raise InvalidPod.at(path, text, "Too many")
    if _terms(pod) > limits.terms:
        raise too_many_terms(limits.terms).of_pod()


def _terms(pod: Pod) -> int:
    total = len(pod.requirements.node_selector) + len(pod.tolerations)
    for term in pod.requirements.terms or ():
        of_term = (*term.match_expressions, *term.match_fields)
        total += max(1, sum(1 + len(e.values) for e in of_term))  # an empty term, too
    for constraint in pod.constraints:
        total += len(constraint.match_label_keys)
        if constraint.label_selector is not None:
            total += len(constraint.label_selector.match_labels)
            expressions = constraint.label_selector.match_expressions
            total += sum(1 + len(e.values) for e in expressions)
    return total
