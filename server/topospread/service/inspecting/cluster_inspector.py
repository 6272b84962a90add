"""The constraints of one cluster, kept in step when they are asked for.

A constraint is counted again only when its group or the nodes changed; whether a node takes the
next replica is looked up at the node that took it last.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import (
    CooperativeYield,
    Turn,
    checkpoint,
    current_computation,
    waiting,
)
from topospread.errors import Conflict, DeadlineExceeded
from topospread.service.explaining.counted_pods import Sharings
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.service.inspecting.inventory import Inventory
from topospread.service.inspecting.judging import (
    CountedConstraint,
    count,
    findings_of_row,
    judge,
    judge_template,
    waiting_reason,
)
from topospread.service.inspecting.statuses import (
    STATES,
    ConstraintFilter,
    ConstraintStatus,
)
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.index.groups import Group
    from topospread.index.nodes import NodeTable
    from topospread.index.snapshot import Snapshot
    from topospread.kube.workloads import KnownControllers
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import SettingsOverride
    from topospread.service.inspecting.inventory import NamespaceRows, PodTemplate, RowPods
    from topospread.service.inspecting.judging import TemplateJudgement
    from topospread.service.inspecting.statuses import OwnedConstraint, State
    from topospread.spread.topology import GroupKey

MAX_TRIES: Final = 5
"""How often the state may have moved on while what must be counted was being counted."""

ROW_BYTES: Final = 6 << 10
"""Of a constraint without its arrays, about: with its template, and a message of ten domains."""

CLASS_BYTES: Final = 500
"""Of a pod class, about."""

DOMAIN_BYTES: Final = 9
"""Of a domain in the arrays of a constraint."""

_TOO_LATE: Final = (
    "the deadline passed before all constraints were looked at: allow more time, or ask about less"
)


MAX_KEPT: Final = 16
"""Lists of constraints that are kept for those who ask for the same."""


class _Changes(NamedTuple):
    """What differs between the constraints of two inspections.

    Attributes:
        before: those of the earlier one.
        former, newer: those that are gone or others now, as they were and as they are.
    """

    before: Mapping[str, ConstraintStatus]
    former: Sequence[ConstraintStatus]
    newer: Sequence[ConstraintStatus]


@dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """All constraints of a cluster at one state.

    Attributes:
        view: the state, and `replica` who follows it.
        statuses: by constraint id; the same object as long as none of them changes.
        rows: the pods of each constraint.
        kept: lists by what was asked for.
        changes: what differs from what watches have, by the identity of that; few have another.
    """

    view: View
    replica: Replica
    statuses: Mapping[str, ConstraintStatus]
    rows: Mapping[str, RowPods]
    kept: dict[object, Sequence[ConstraintStatus]] = field(default_factory=dict)
    changes: dict[int, _Changes] = field(default_factory=dict)

    def matching(
        self,
        asked: ConstraintFilter,
        order: pb.ConstraintOrder.ValueType = pb.CONSTRAINT_ORDER_SEVERITY,
    ) -> Sequence[ConstraintStatus]:
        """The constraints that pass a filter but for its states, in order."""
        key = order, replace(asked, states=frozenset())
        if (known := self.kept.get(key)) is not None:
            return known
        found = list(self.statuses.values())
        if key[1] != ConstraintFilter():
            found = _passing(asked, found)
        if order == pb.CONSTRAINT_ORDER_NAME:
            found.sort(key=lambda each: each.by_name)
        else:
            found.sort(key=lambda each: each.by_severity)
        if len(self.kept) < MAX_KEPT:
            self.kept[key] = found
        return found

    def changed(
        self, before: Mapping[str, ConstraintStatus], asked: ConstraintFilter
    ) -> tuple[Sequence[ConstraintStatus], Sequence[ConstraintStatus]]:
        """The constraints that pass a filter and are gone or others than before: former, newer."""
        found = self.changes.get(id(before))
        if found is None or found.before is not before:
            now = self.statuses
            former = [each for key, each in before.items() if now.get(key) is not each]
            newer = [each for key, each in now.items() if before.get(key) is not each]
            found = _Changes(before, former, newer)
            if len(self.changes) < MAX_KEPT:
                self.changes[id(before)] = found
        return _passing(asked, found.former), _passing(asked, found.newer)


def _passing(
    asked: ConstraintFilter, statuses: Iterable[ConstraintStatus]
) -> list[ConstraintStatus]:
    found = []
    for each in statuses:
        checkpoint()
        if asked.passes(each):
            found.append(each)
    return found


def totals(statuses: Iterable[ConstraintStatus]) -> Mapping[State, int]:
    """How many constraints are in each state, the worst first."""
    counted = dict.fromkeys(STATES, 0)
    for each in statuses:
        counted[each.state] += 1
    return counted


class _CountedGroup(NamedTuple):
    """A constraint as it was last counted, and what that followed from."""

    group: Group | None
    nodes: NodeTable
    found: CountedConstraint


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A constraint as it was last judged, and what that followed from."""

    status: ConstraintStatus
    counted: _CountedGroup
    pods: RowPods
    judgements: Sequence[TemplateJudgement]
    controllers: KnownControllers


class ClusterInspector:
    """The constraints of one cluster under some settings; any thread may ask for them.

    One caller works them out while others wait for it, and leave with their deadlines. What was
    counted stays when it ends with its own.

    Args:
        engine: knows the rules.
        replica: follows the cluster.
        settings: by which pods are judged.
        most: constraints that are looked at.
        grows: told the bytes that it comes to, before they are taken; may raise.

    Attributes:
        size: bytes, about, that it holds.
    """

    def __init__(
        self,
        engine: Engine,
        replica: Replica,
        settings: SettingsOverride,
        most: int,
        grows: Callable[[ClusterInspector, int], object] = lambda _, __: None,
    ) -> None:
        self.replica = replica
        self.size = 0
        self._grows = grows
        self._inventory = Inventory(engine, settings, most)
        self._turn = Turn()
        self._counts: dict[OwnedConstraint, _CountedGroup] = {}
        self._rows: dict[OwnedConstraint, _Row] = {}
        self._last: Inspection | None = None

    def inspect(self, view: View, deadline: float) -> Inspection:
        """All constraints at a view, or at a newer one.

        Raises:
            As Inspector.inspect.
        """
        last = self._fresh(view)
        if last is not None:
            return last
        with self._alone(deadline):
            last = self._fresh(view)
            if last is None:
                turn = CooperativeYield(deadline, "all constraints were looked at")
                view, namespaces = self._counted(view, turn)
                last = self._last = self._inspection(view, namespaces, turn)
            return last

    def _fresh(self, view: View) -> Inspection | None:
        last = self._last
        if last is None or self._inventory.outdated:
            return None
        same = last.view.identity == view.identity
        return last if same and last.view.revision.number >= view.revision.number else None

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Around what one caller does at a time; who waits gives its turn to compute away."""
        computation = current_computation()

        def check() -> None:
            if computation is not None:
                computation.check_caller()
            if time.monotonic() > deadline:
                raise DeadlineExceeded(_TOO_LATE)

        check()
        with waiting():
            self._turn.acquire(check)
        try:
            yield
        finally:
            self._turn.release()

    def _counted(
        self, view: View, turn: Callable[[], None]
    ) -> tuple[View, Mapping[str, NamespaceRows]]:
        """A view that counts all groups, and the constraints at it."""
        for _ in range(MAX_TRIES):
            namespaces = self._inventory.update(view.snapshot, turn)
            self._measure(namespaces.values(), view.snapshot)
            groups = _groups(namespaces.values(), view.snapshot)
            if not view.snapshot.missing(groups):
                for group in groups:
                    view.snapshot.groups[group].use.last_used = view.snapshot.sequence
                return view, namespaces
            view = self.replica.ensure_counted(groups)
        raise Conflict("the cluster changes faster than its constraints are counted: try again")

    def _measure(self, namespaces: Iterable[NamespaceRows], snapshot: Snapshot) -> None:
        keys: Counter[str] = Counter()
        classes = 0
        for each in namespaces:
            classes += len(each.classes)
            keys.update([row.constraint.topology_key for row in each.rows])
        domains = sum([rows * len(snapshot.domains(key).values) for key, rows in keys.items()])
        size = ROW_BYTES * keys.total() + CLASS_BYTES * classes + DOMAIN_BYTES * domains
        self._grows(self, size)
        self.size = size

    def _inspection(
        self, view: View, namespaces: Mapping[str, NamespaceRows], turn: Callable[[], None]
    ) -> Inspection:
        snapshot = view.snapshot
        pods = {key: each for found in namespaces.values() for key, each in found.rows.items()}
        counts, groups, nodes = self._counts, snapshot.groups, snapshot.nodes
        counted: dict[OwnedConstraint, CountedConstraint] = {}
        for key in pods:
            before = counts.get(key)
            group = groups.get(key.constraint.group)
            if before is None or before.group is not group or before.nodes is not nodes:
                turn()
                before = counts[key] = _CountedGroup(group, nodes, count(key, snapshot))
            counted[key] = before.found
        waiting = {
            each: number for found in pods.values() for each, number in found.waiting.items()
        }
        judgements: dict[PodTemplate, TemplateJudgement] = {}
        for template, number in waiting.items():
            turn()
            judgements[template] = judge_template(template, counted, snapshot, waits=number > 0)
        sharings = Sharings(
            snapshot,
            self.replica.members,
            lambda each: self._inventory.owner_of(each, snapshot),
            turn,
        )
        rows = {
            key: self._row(key, each, judgements, sharings, snapshot, turn)
            for key, each in pods.items()
        }
        for key in [key for key in counts if key not in rows]:
            del counts[key]
        self._rows, last = rows, self._last
        statuses = {row.status.key.id: row.status for row in rows.values()}
        if last is None or last.statuses != statuses:
            last = Inspection(view, self.replica, statuses, {})
        owners = {key.id: each for key, each in pods.items()}
        return replace(last, view=view, rows=owners)

    def _row(
        self,
        key: OwnedConstraint,
        pods: RowPods,
        judgements: Mapping[PodTemplate, TemplateJudgement],
        sharings: Sharings,
        snapshot: Snapshot,
        turn: Callable[[], None],
    ) -> _Row:
        before, counted = self._rows.get(key), self._counts[key]
        controllers = snapshot.controllers_in(key.namespace)
        judged = [judgements[template] for template in pods.waiting]
        if (
            before is not None
            and before.counted is counted
            and before.pods is pods
            and before.judgements == judged
            # They say whose the others are.
            and (before.status.sharing is None or before.controllers is controllers)
        ):
            return before
        turn()
        if before is not None and before.counted.nodes is counted.nodes:
            findings = before.status.findings
        else:
            findings = findings_of_row(key, next(iter(pods.waiting)), snapshot)
        spread = counted.found.spread
        verdict = judge(key, pods, spread, findings, judgements, snapshot)
        status = ConstraintStatus(
            key=key,
            state=verdict.state,
            message=verdict.message,
            spread=spread,
            bound=pods.bound,
            pending=pods.pending,
            blocked=verdict.blocked,
            findings=findings,
            labels=pods.labels,
            gaps=list(dict.fromkeys(gap for each in judged for gap in each.gaps)),
            gated=pods.gated,
            waiting_reason=waiting_reason(pods, judgements),
            sharing=sharings.of(key.constraint, key.owner, pods.classes),
        )
        if before is not None and before.status.same_as(status):
            status = before.status
        return _Row(status, counted, pods, judged, controllers)


def _groups(namespaces: Iterable[NamespaceRows], snapshot: Snapshot) -> set[GroupKey]:
    """All that constraints count, and what inter-pod affinity of the next replicas counts."""
    found: set[GroupKey] = set()
    templates: set[PodTemplate] = set()
    for each in namespaces:
        for row, pods in each.rows.items():
            if not row.constraint.counts_nothing:
                found.add(row.constraint.group)
            templates.update([template for template in pods.waiting if template.demand.has_terms])
    for template in templates:
        found.update(counted_groups(template.demand, snapshot.objects))
    return found
