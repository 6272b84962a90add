"""The Inspector: all constraints of a cluster, kept in step when they are asked for.

A constraint is counted again only when its group, its pods or the nodes changed; whether a node
takes the next replica is looked up at the node that took it last.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import CooperativeYield
from topospread.errors import Conflict
from topospread.service.decisions.request import NO_OVERRIDE
from topospread.service.inspecting.inventory import Inventory
from topospread.service.inspecting.judging import (
    CountedConstraint,
    count,
    findings_of_row,
    judge,
    judge_template,
)
from topospread.service.inspecting.statuses import (
    ConstraintFilter,
    ConstraintOrder,
    ConstraintStatus,
    SpreadState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topospread.index.groups import Group
    from topospread.index.nodes import NodeTable
    from topospread.index.snapshot import Snapshot
    from topospread.replica.replica import Replica
    from topospread.replica.view import Consistency, View
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import SettingsOverride
    from topospread.service.inspecting.inventory import NamespaceRows, PodTemplate, RowPods
    from topospread.service.inspecting.judging import TemplateJudgement
    from topospread.service.inspecting.statuses import OwnedConstraint

MAX_CONSTRAINTS: Final = 20_000
"""Constraints of a cluster that are looked at, unless a setting says otherwise."""

MAX_TRIES: Final = 5
"""How often the state may have moved on while what must be counted was being counted."""

MAX_GONE: Final = 10_000
"""Constraints that are gone and still known: a watch that began before more of them begins anew."""

MAX_KNOWN_REVISIONS: Final = 256
"""Revisions of lists from which a watch may begin."""


@dataclass(frozen=True, slots=True)
class InspectionRequest:
    """What all questions of the Inspector have in common.

    Attributes:
        deadline: of the call, on the monotonic clock.
    """

    deadline: float
    cluster: str
    consistency: Consistency
    settings: SettingsOverride = NO_OVERRIDE


@dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """All constraints of a cluster at one state.

    Attributes:
        view: the state, and `replica` who follows it.
        inspector: who made it, and knows what was so before.
        number: inspections of a cluster are numbered; one that is the same has the same number.
        rows: the pods of each constraint.
    """

    view: View
    replica: Replica
    inspector: ClusterInspector
    number: int
    statuses: Mapping[str, ConstraintStatus]
    rows: Mapping[str, RowPods]
    kept: dict[object, Sequence[ConstraintStatus]] = field(default_factory=dict)

    def matching(
        self, asked: ConstraintFilter, order: ConstraintOrder
    ) -> Sequence[ConstraintStatus]:
        """The constraints that pass a filter but for its states, in order."""
        everything = asked == ConstraintFilter(states=asked.states)
        if everything and (known := self.kept.get(order)) is not None:
            return known
        found = list(self.statuses.values())
        if not everything:
            found = [each for each in found if asked.passes(each)]
        if order is ConstraintOrder.NAME:
            found.sort(key=lambda each: each.by_name)
        else:
            found.sort(key=lambda each: each.by_severity)
        if everything:
            self.kept[order] = found
        return found


def totals(statuses: Iterable[ConstraintStatus]) -> Mapping[SpreadState, int]:
    """How many constraints are in each state, the worst first."""
    counted = dict.fromkeys(sorted(SpreadState, reverse=True), 0)
    for each in statuses:
        counted[each.state] += 1
    return counted


class Inspector:
    """Inspects the clusters that an engine decides for.

    Args:
        engine: knows the states and the rules.
        most: constraints of a cluster that are looked at.
    """

    def __init__(self, engine: Engine, most: int = MAX_CONSTRAINTS) -> None:
        self._engine = engine
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[str, ClusterInspector] = {}

    def inspect(self, request: InspectionRequest, before: Inspection | None = None) -> Inspection:
        """All constraints at a state that is fresh enough.

        Args:
            request: of what, and how fresh.
            before: an earlier one under the same settings; what changed since is numbered on.

        Raises:
            InvalidRequest: unknown settings.
            Conflict: the cluster changes faster than its constraints are counted.
            TooLarge: there are more constraints than are looked at.
            And what Replicas.resolve raises.
        """
        replica, view = self._engine.replicas.resolve(
            request.cluster, request.consistency, request.deadline
        )
        if before is not None and before.replica is replica:
            return before.inspector.inspect(view, request.deadline)
        if request.settings != NO_OVERRIDE:
            own = ClusterInspector(self._engine, replica, request.settings, self._most)
            return own.inspect(view, request.deadline)
        return self.of(replica).inspect(view, request.deadline)

    def of(self, replica: Replica) -> ClusterInspector:
        """The inspector of the cluster that a replica follows, under the server's own settings."""
        with self._lock:
            known = self._kept.get(replica.cluster)
            if known is None or known.replica is not replica:
                running = {id(each) for each in self._engine.replicas.running()}
                kept = self._kept.items()
                self._kept = {name: each for name, each in kept if id(each.replica) in running}
                known = ClusterInspector(self._engine, replica, NO_OVERRIDE, self._most)
                self._kept[replica.cluster] = known
            return known


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A constraint as it was last judged, and what that followed from."""

    status: ConstraintStatus
    counted: CountedConstraint
    group: Group | None
    nodes: NodeTable
    pods: RowPods
    judgements: Sequence[TemplateJudgement]

    def follows_from(
        self,
        counted: CountedConstraint,
        nodes: NodeTable,
        pods: RowPods,
        judgements: Sequence[TemplateJudgement],
    ) -> bool:
        """Whether it followed from the same."""
        return (
            self.counted is counted
            and self.nodes is nodes
            and self.pods is pods
            and self.judgements == judgements
        )


class ClusterInspector:
    """The constraints of one cluster, kept in step when they are asked for.

    Args:
        engine: knows the rules.
        replica: follows the cluster.
        settings: by which pods are judged.
        most: constraints that are looked at.
    """

    def __init__(
        self, engine: Engine, replica: Replica, settings: SettingsOverride, most: int
    ) -> None:
        self.replica = replica
        self._inventory = Inventory(engine, settings, most)
        self._lock = threading.Lock()
        self._rows: dict[OwnedConstraint, _Row] = {}
        self._number = 0
        self._last: Inspection | None = None
        self._gone: deque[tuple[int, str]] = deque(maxlen=MAX_GONE)
        self._forgotten = 0
        self._revisions: dict[str, int] = {}

    def inspect(self, view: View, deadline: float) -> Inspection:
        """All constraints at a view, or at a newer one.

        Raises:
            As Inspector.inspect.
        """
        with self._lock:
            last = self._last
            if last is not None and not self._inventory.outdated:
                same, made = last.view.identity == view.identity, last.view.revision.number
                if last.view is view or (same and made > view.revision.number):
                    return last
            turn = CooperativeYield(deadline, "all constraints were looked at")
            view, namespaces = self._counted(view, turn)
            self._last = self._inspection(view, namespaces, turn)
            return self._last

    def since(self, number: int) -> Sequence[str] | None:
        """The ids of constraints that went after an inspection; None: not all are known."""
        if number < self._forgotten:
            return None
        return [gone for at, gone in self._gone if at > number]

    def number_of(self, revision: str) -> int | None:
        """The number of the inspection of a revision; None when it is not known."""
        return self._revisions.get(revision)

    def _counted(
        self, view: View, turn: Callable[[], None]
    ) -> tuple[View, Mapping[str, NamespaceRows]]:
        """A view that counts all groups, and the constraints at it."""
        for _ in range(MAX_TRIES):
            namespaces = self._inventory.update(view.snapshot, turn)
            groups = {group for each in namespaces.values() for group in each.groups}
            if not view.snapshot.missing(groups):
                for group in groups:
                    view.snapshot.groups[group].use.last_used = view.snapshot.sequence
                return view, namespaces
            view = self.replica.ensure_counted(groups)
        raise Conflict("the cluster changes faster than its constraints are counted: try again")

    def _inspection(
        self, view: View, namespaces: Mapping[str, NamespaceRows], turn: Callable[[], None]
    ) -> Inspection:
        snapshot, number = view.snapshot, self._number + 1
        pods = {key: each for found in namespaces.values() for key, each in found.rows.items()}
        counted: dict[OwnedConstraint, CountedConstraint] = {}
        groups, nodes, known = snapshot.groups, snapshot.nodes, self._rows
        for key in pods:
            before = known.get(key)
            group = groups.get(key.constraint.group)
            if before is not None and before.group is group and before.nodes is nodes:
                counted[key] = before.counted
            else:
                turn()
                counted[key] = count(key, snapshot)
        judgements: dict[PodTemplate, TemplateJudgement] = {}
        for each in pods.values():
            for template in each.waiting:
                if template not in judgements:
                    turn()
                    judgements[template] = judge_template(template, counted, snapshot)
        rows = {
            key: self._row(key, each, counted[key], judgements, snapshot, number)
            for key, each in pods.items()
        }
        gone = [key.id for key in self._rows if key not in rows]
        if len(self._gone) + len(gone) > MAX_GONE:
            self._forgotten = number
            self._gone.clear()
        self._gone.extend([(number, each) for each in gone][:MAX_GONE])
        if gone or any(row.status.changed == number for row in rows.values()):
            self._number = number
        self._rows = rows
        self._revisions[view.token] = self._number
        if len(self._revisions) > MAX_KNOWN_REVISIONS:
            del self._revisions[next(iter(self._revisions))]
        statuses = {row.status.key.id: row.status for row in rows.values()}
        owners = {key.id: each for key, each in pods.items()}
        return Inspection(view, self.replica, self, self._number, statuses, owners)

    def _row(
        self,
        key: OwnedConstraint,
        pods: RowPods,
        counted: CountedConstraint,
        judgements: Mapping[PodTemplate, TemplateJudgement],
        snapshot: Snapshot,
        number: int,
    ) -> _Row:
        before, nodes = self._rows.get(key), snapshot.nodes
        judged = [judgements[template] for template in pods.waiting]
        if before is not None and before.follows_from(counted, nodes, pods, judged):
            return before
        if before is not None and before.nodes is nodes:
            findings = before.status.findings
        else:
            findings = findings_of_row(key, next(iter(pods.waiting)), snapshot)
        verdict = judge(key, pods, counted.spread, findings, judgements)
        status = ConstraintStatus(
            key=key,
            state=verdict.state,
            message=verdict.message,
            spread=counted.spread,
            bound=pods.bound,
            pending=pods.pending,
            blocked=verdict.blocked,
            findings=findings,
            changed=number,
            labels=pods.labels,
        )
        if before is not None and before.status.same_as(status):
            status = before.status
        group = snapshot.groups.get(key.constraint.group)
        return _Row(status, counted, group, nodes, pods, judged)
