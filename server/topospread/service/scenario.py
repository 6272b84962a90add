"""What a caller asks to be supposed, checked against the live state: the way to a simulation."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.codec.demands import Demands
from topospread.codec.evicted import replacement
from topospread.codec.frames import framed
from topospread.codec.rows import decode_pod
from topospread.codec.stored import object_from_stored
from topospread.errors import DeadlineExceeded, FieldViolation, InvalidRequest
from topospread.index.changes import PodRow
from topospread.index.supposed import PodMove, Supposition
from topospread.kube.objects import HOSTNAME_LABEL, TERMINAL_PHASES
from topospread.kube.violations import duplicate, invalid, required
from topospread.replica.replicas import Consistency, Freshness
from topospread.service.asks import NO_SETTINGS, PodRef
from topospread.service.constraint_changes import changed_constraints, unmet
from topospread.service.engine import check_size
from topospread.service.listing import list_at
from topospread.service.shapes import Shape
from topospread.service.simulate import Batch
from topospread.service.spreads import both
from topospread.store.api import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.asks import Ask
    from topospread.service.engine import Engine
    from topospread.service.questions import PodsToPlace, Question
    from topospread.store.api import Store

UNNAMED: Final = "pod"

TURN: Final = 8
"""Pods between two pauses: to let go of the interpreter takes as long as half a pod, and to hold it
for so many is far below its switch interval."""

ADD_NODE_GROUPS: Final = "scenario.changes.addNodeGroups"

MOST_GROUPS: Final = 64
"""Node groups of which the fewest nodes are looked for."""


@dataclass(slots=True, eq=False)
class Scenario:
    """A question that can be answered.

    Attributes:
        view: counts what the batches need.
        batches: those that are placed anew first, each a pod; then those that were asked about.
        changes: without nodes that join.
        evicted: how many batches are pods that are placed anew.
        not_modelled: what of the pods nobody looks at.
    """

    question: Question
    replica: Replica
    view: View
    batches: Sequence[Batch]
    changes: Supposition
    not_modelled: Sequence[str] = ()
    warnings: list[str] = field(default_factory=list)
    evicted: int = 0


class Scenarios:
    """Makes scenarios of questions.

    Args:
        engine: knows shapes, rules and views.
        store: has the pods of the state.
    """

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._demands = Demands(engine.budgets["demands"])

    def make(self, question: Question) -> Scenario:
        """Check a question and fetch what it needs.

        Raises:
            InvalidRequest: everything that is wrong with it.
            NotFound: the cluster, or a pod to place, is not there.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see Replicas.resolve.
        """
        wrong: list[FieldViolation] = []
        self._check_counts(question, wrong)
        ask = question.ask
        try:
            self._engine.rules_for(ask.settings, "")
        except InvalidRequest as refused:
            wrong += refused.below("scenario")
            ask = replace(ask, settings=NO_SETTINGS)
            question = replace(question, ask=ask)
        if question.removed:
            # What is taken away must be counted before.
            newest = Consistency(Freshness.FULLY_CONSISTENT, None, ask.consistency.max_staleness)
            ask = replace(ask, consistency=newest)
        removed = self._removed(question, wrong)
        added = self._added(question, wrong)
        batches, demands = self._batches(question, wrong)
        if wrong:
            # The nodes can be looked at all the same; what is on them need not be read.
            _, view = self._engine.replicas.resolve(ask.cluster, ask.consistency, ask.deadline)
            self._check_nodes(question, view, added, wrong)
            raise InvalidRequest.of(wrong)
        replica, view, evicted = self._state(question, ask)
        self._check_nodes(question, view, added, wrong)
        batches = [*evicted, *batches]
        warnings = self._check_templates(question, view, batches, wrong)
        if wrong:
            raise InvalidRequest.of(wrong)
        view = self._engine.counted([(each.pod, each.rules) for each in batches], replica, view)
        changes = Supposition(
            gone=[each.node for each in question.drained if not each.stays],
            emptied=[each.node for each in question.drained if each.stays],
            moves=[*added.values(), *removed],
        )
        warnings += _idle_constraints(batches[len(evicted) :], view)
        return Scenario(
            question, replica, view, batches, changes, demands, warnings, evicted=len(evicted)
        )

    # ------------------------------ parts

    def _check_counts(self, question: Question, wrong: list[FieldViolation]) -> None:
        limits = self._engine.limits
        what_ifs = len(question.added) + len(question.removed)
        if not question.pods and not (question.reschedule and question.drained):
            wrong.append(required("pods", "say which pods to place"))
        pods = sum(1 if each.replicas is None else each.replicas for each in question.pods)
        if pods > limits.simulated_pods:
            wrong.append(invalid("pods", pods, f"at most {limits.simulated_pods} pods are placed"))
        nodes = sum(group.count or 0 for group in question.groups)
        if nodes > limits.simulated_nodes:
            text = f"at most {limits.simulated_nodes} nodes join"
            wrong.append(invalid(ADD_NODE_GROUPS, nodes, text))
        if what_ifs > limits.what_ifs:
            text = f"at most {limits.what_ifs} pods are added and deleted"
            wrong.append(invalid("scenario.changes.addPods", what_ifs, text))
        if question.fewest and not question.groups:
            wrong.append(required(ADD_NODE_GROUPS, "say which nodes may join"))
        if question.fewest and len(question.groups) > MOST_GROUPS:
            text = f"the fewest of at most {MOST_GROUPS} node groups are looked for"
            wrong.append(invalid(ADD_NODE_GROUPS, len(question.groups), text))
        if (
            pods > limits.simulated_pods
            or nodes > limits.simulated_nodes
            or what_ifs > limits.what_ifs
        ):
            # What else may be wrong is not looked for: each of them would be named or looked up.
            raise InvalidRequest.of(wrong)

    def _state(self, question: Question, ask: Ask) -> tuple[Replica, View, list[Batch]]:
        """The state, and the pods of it that are to be placed anew."""
        if not question.reschedule or not question.drained:
            resolve = self._engine.replicas.resolve
            return *resolve(ask.cluster, ask.consistency, ask.deadline), []
        listed = list_at(
            self._store,
            self._engine.replicas,
            ask.cluster,
            ask.consistency,
            ask.deadline,
            lambda key: key.kind is Kind.POD,
        )
        drained = {each.node for each in question.drained}
        removed = {(each.namespace, each.name) for each in question.removed}
        batches: list[Batch] = []
        for pod in sorted(listed.readable(), key=lambda each: _name_of(each.key)):
            encoded = replacement(pod, drained)
            checkpoint()
            if encoded is None or _name_of(pod.key) in removed:
                continue
            shaped = self._engine.shaped(framed(encoded))
            demand, _ = self._demands.of(encoded)
            rules = self._engine.rules_of(shaped.shape, replace(ask, validate=False))
            names = (pod.key.name,)
            batches.append(Batch(shaped.shape, rules, demand, names, shaped.uid, of_crowd=True))
        most = self._engine.limits.simulated_pods
        if len(batches) > most:
            text = f"at most {most} pods are placed anew: drain fewer nodes"
            raise InvalidRequest.of([invalid("scenario.changes.drainNodes", len(batches), text)])
        return listed.replica, listed.view, batches

    def _batches(
        self, question: Question, wrong: list[FieldViolation]
    ) -> tuple[list[Batch], tuple[str, ...]]:
        batches: list[Batch] = []
        not_modelled: dict[str, None] = {}
        used: set[int] = set()
        for given in question.pods:
            checkpoint()
            encoded = self._encoded(question, given, wrong)
            if encoded is None:
                continue
            try:
                batch = self._batch(question, given, encoded, used)
            except InvalidRequest as refused:
                wrong += _in_pod(refused, given.pod, given.path)
                continue
            not_modelled |= dict.fromkeys(batch.demand.not_modelled)
            batches.append(batch)
        if len(batches) == len(question.pods):
            wrong += unmet(question.constraints, used)
        return batches, tuple(not_modelled)

    def _batch(
        self, question: Question, given: PodsToPlace, encoded: bytes, used: set[int]
    ) -> Batch:
        shaped = self._engine.shaped(framed(encoded))
        demand, _ = self._demands.of(encoded)
        shape = shaped.shape
        if question.constraints:
            pod = changed_constraints(shape.pod, question.constraints, used)
            check_size(pod, self._engine.limits)
            shape = Shape(pod)
        rules = self._engine.rules_of(shape, question.ask)
        names = _names(given, shaped.name)
        uid = shaped.uid if len(names) == 1 else ""
        return Batch(shape, rules, demand, names, uid)

    def _encoded(
        self, question: Question, given: PodsToPlace, wrong: list[FieldViolation]
    ) -> bytes | None:
        """The bytes of a v1.Pod; None when it cannot be placed."""
        if isinstance(given.pod, bytes):
            return given.pod
        reference = given.pod
        pod = object_from_stored(self._engine.stored(question.ask.cluster, reference)).pod
        if pod.spec.node_name and reference not in question.removed:
            text = f"it runs on {pod.spec.node_name}: delete it in the same request to move it"
            wrong.append(invalid(given.path, f"{reference.namespace}/{reference.name}", text))
            return None
        return pod.SerializeToString()

    def _removed(self, question: Question, wrong: list[FieldViolation]) -> list[PodMove]:
        moves: list[PodMove] = []
        for number, reference in enumerate(question.removed):
            checkpoint()
            path = f"scenario.changes.deletePods[{number}]"
            name = f"{reference.namespace}/{reference.name}"
            if reference in question.removed[:number]:
                wrong.append(duplicate(path, name))
                continue
            key = Key(Kind.POD, reference.namespace, reference.name)
            stored = self._store.get(question.ask.cluster, key)
            if stored is None or reference.uid not in ("", stored.uid):
                wrong.append(FieldViolation(path, "no such pod in the state", "Not found", name))
                continue
            moves.append(PodMove(reference.namespace, decode_pod(stored.payload), -1))
        return moves

    def _added(self, question: Question, wrong: list[FieldViolation]) -> dict[int, PodMove]:
        """By position in the question; without those that have ended."""
        moves: dict[int, PodMove] = {}
        seen: set[PodRef] = set()
        for number, given in enumerate(question.added):
            checkpoint()
            path = f"scenario.changes.addPods[{number}]"
            try:
                encoded = self._engine.encoded(question.ask.cluster, given.pod)
                demand, own = self._demands.of(encoded)
                pod = framed(encoded).parse(self._engine.limits.terms)
                check_size(pod, self._engine.limits)
            except InvalidRequest as refused:
                wrong += _in_pod(refused, given.pod, given.path)
                continue
            where = given.node or own
            if not where:
                wrong.append(required(f"{path}.node", "say where it runs"))
                continue
            reference = PodRef(pod.name, pod.namespace)
            if pod.name and (reference in seen or self._is_there(question, reference)):
                wrong.append(duplicate(path, f"{pod.namespace}/{pod.name}"))
                continue
            seen.add(reference)
            if pod.phase in TERMINAL_PHASES:
                continue  # as in the state, where it takes up nothing any more
            labels = tuple(sorted(pod.labels.items()))
            row = PodRow(labels, where, counted=not pod.terminating, requests=demand.requests)
            moves[number] = PodMove(pod.namespace, row, +1)
        return moves

    def _is_there(self, question: Question, reference: PodRef) -> bool:
        """Whether the state has a bound pod of this name that is not removed."""
        if reference in question.removed:
            return False
        key = Key(Kind.POD, reference.namespace, reference.name)
        stored = self._store.get(question.ask.cluster, key)
        return stored is not None and bool(object_from_stored(stored).pod.spec.node_name)

    @staticmethod
    def _check_nodes(
        question: Question, view: View, added: Mapping[int, PodMove], wrong: list[FieldViolation]
    ) -> None:
        nodes = view.snapshot.nodes
        seen: set[str] = set()
        for number, drained in enumerate(question.drained):
            path = f"scenario.changes.drainNodes[{number}].node"
            if nodes.slot(drained.node) < 0:
                wrong.append(_no_such_node(path, drained.node))
            elif drained.node in seen:
                wrong.append(duplicate(path, drained.node))
            seen.add(drained.node)
        for number, move in added.items():
            if nodes.slot(move.row.node_name) < 0:
                path = f"scenario.changes.addPods[{number}].node"
                wrong.append(_no_such_node(path, move.row.node_name))

    @staticmethod
    def _check_templates(
        question: Question, view: View, batches: Sequence[Batch], wrong: list[FieldViolation]
    ) -> list[str]:
        """Say which templates lack a key; those whose nodes no pod could go to are wrong."""
        judged = [each.shape.judgeable(each.rules, view.snapshot) for each in batches]
        wanted = [set(each.constraints.hard.keys) - {HOSTNAME_LABEL} for each in judged]
        warnings: list[str] = []
        for number, group in enumerate(question.groups):
            has = set(group.template.labels)
            if group.variants:
                has |= set.intersection(*(set(each) for each in group.variants))
            lacking = [keys - has for keys in wanted]
            path = f"{ADD_NODE_GROUPS}[{number}].template.metadata.labels"
            missing = sorted(set[str]().union(*lacking))
            if lacking and all(lacking):
                text = "the pods spread over it: no pod could go to these nodes"
                wrong += [required(f"{path}[{key}]", text) for key in missing]
            text = "is missing: pods that spread over it cannot go to these nodes"
            warnings += [f"{path}[{key}] {text}" for key in missing]
        return warnings


def between_pods(question: Question) -> Callable[[], None]:
    """What to do between pods: let others have their turn, and stop at the deadline."""
    deadline, pause = question.ask.deadline, question.pause
    turns = count()

    def between() -> None:
        if next(turns) % TURN:
            return
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                "the deadline passed before all pods were placed: allow more time, or ask for fewer"
            )
        pause()

    return between


def _idle_constraints(batches: Sequence[Batch], view: View) -> Iterator[str]:
    """The constraints that cannot do what their author meant."""
    for number, batch in enumerate(batches):
        judgeable = batch.shape.judgeable(batch.rules, view.snapshot)
        for constraint in both(judgeable.constraints):
            where = (
                f"pods[{number}]: the {constraint.when_unsatisfiable} constraint on "
                f"{constraint.topology_key}"
            )
            if constraint.group.counts_nothing:
                yield f"{where} limits nothing: its labelSelector matches no pod"
            elif not constraint.self_match:
                yield f"{where} does not count the pods placed: they lack the labels it selects"


def _name_of(key: Key) -> tuple[str, str]:
    return key.namespace, key.name


def _names(given: PodsToPlace, name: str) -> list[str]:
    begin = given.generate_name or UNNAMED + "-"
    if given.replicas is None:
        return [name or begin + "0"]
    if name:
        begin = name + "-"
    return [f"{begin}{number}" for number in range(given.replicas)]


def _in_pod(refused: InvalidRequest, pod: bytes | PodRef, path: str) -> Sequence[FieldViolation]:
    """What is wrong with a pod that the request has, or names, at a path."""
    moved = refused.named(path) if isinstance(pod, PodRef) else refused.under(path)
    return moved.violations


def _no_such_node(path: str, name: str) -> FieldViolation:
    return FieldViolation(path, "no such node in the state", "Not found", name)
