"""topospread.v1.InspectorService: decode, call the use cases, encode."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.api.decode import check_required
from topospread.api.envelope import read_cluster, read_envelope, read_page
from topospread.calls.call import Call, Method, ServerStreaming, Unary
from topospread.checkpoints import Computation
from topospread.codec.pods import selector_of
from topospread.errors import (
    DeadlineExceeded,
    FieldViolation,
    InvalidRequest,
    RevisionUnavailable,
    Unavailable,
)
from topospread.kube.objects import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from topospread.kube.selectors import EVERYTHING
from topospread.kube.violations import NOT_SUPPORTED, Problems
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.explaining.context import check_limit
from topospread.service.explaining.counted_pods import Owner
from topospread.service.inspecting.cluster_inspector import totals
from topospread.service.inspecting.describing import (
    DescriptionLimits,
    describe,
    status_message,
    total_messages,
)
from topospread.service.inspecting.statuses import STATES, ConstraintFilter
from topospread.service.messages import meta_of
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.service.inspecting.cluster_inspector import Inspection
    from topospread.service.inspecting.inspector import InspectionReader, Inspector
    from topospread.service.inspecting.statuses import ConstraintStatus, State
    from topospread.service.state.pages import PageRequest
    from topospread_proto.v1.common_pb2 import ResponseMeta

LISTED_DOMAINS: Final = 10
DESCRIBED: Final = 100
"""Domains of a list, and domains, nodes of a domain and pods of a description, by default."""

ROWS_PER_MESSAGE: Final = 500
"""Of a watch: some 500 bytes each, so that a message is far from clients' limit of 4 MiB."""

WATCH_INTERVAL: Final = 0.5
"""Seconds between two looks of a watch at a state that changes all the time."""

IDLE: Final = 0.5
"""Seconds that a watch waits for a change before it looks whether its caller is still there."""

LOOK_SECONDS: Final = 30.0
"""Seconds that one look of a watch may take."""


class InspectorServicer:
    """The methods of InspectorService; they raise what the use cases raise."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector

    def methods(self) -> dict[str, Method]:
        """The methods by name."""
        return {
            "ListConstraints": Unary(pb.ListConstraintsRequest, self.list),
            "GetConstraint": Unary(pb.GetConstraintRequest, self.get),
            "WatchConstraints": ServerStreaming(pb.WatchConstraintsRequest, self.watch),
        }

    def list(self, request: pb.ListConstraintsRequest, call: Call) -> pb.ListConstraintsResponse:
        """InspectorService.ListConstraints."""
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        asked = wrong.read(_filter, request.filter)
        wrong.read(_order, request.order)
        page = read_page(request, wrong)
        wrong.read(page.words, 2)
        shared = read_envelope(request, wrong)
        wrong.read(check_limit, request.domain_limit)
        wrong.raise_all()
        inspection = self._inspector.inspect(
            cluster, shared.consistency, call.deadline, shared.settings
        )
        matching = inspection.matching(asked, request.order)
        found = [each for each in matching if asked.has_state(each)]
        shown, more = _page(found, page)
        limit = request.domain_limit or LISTED_DOMAINS
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": cluster,
                    "topospread.revision": inspection.view.token,
                    "topospread.constraints": len(found),
                }
            )
        return pb.ListConstraintsResponse(
            meta=meta_of(inspection.view, inspection.replica, shared.settings.version),
            constraints=[status_message(each, limit) for each in shown],
            next_page_token=more,
            totals=total_messages(totals(matching)),
        )

    def get(self, request: pb.GetConstraintRequest, call: Call) -> pb.GetConstraintResponse:
        """InspectorService.GetConstraint."""
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        wrong.read(check_required, request.constraint_id, "constraintId")
        shared = read_envelope(request, wrong)
        wrong.read(check_limit, request.domain_limit)
        wrong.read(check_limit, request.node_limit, "nodeLimit")
        wrong.read(check_limit, request.pod_limit, "podLimit")
        wrong.raise_all()
        inspection = self._inspector.inspect(
            cluster, shared.consistency, call.deadline, shared.settings
        )
        limits = DescriptionLimits(
            request.domain_limit or DESCRIBED,
            request.node_limit or DESCRIBED,
            request.pod_limit or DESCRIBED,
        )
        found = describe(inspection, request.constraint_id, limits)
        version = shared.settings.version
        found.meta.CopyFrom(meta_of(inspection.view, inspection.replica, version))
        return found

    def watch(
        self, request: pb.WatchConstraintsRequest, call: Call
    ) -> Iterator[pb.WatchConstraintsResponse]:
        """InspectorService.WatchConstraints."""
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        asked = wrong.read(_filter, request.filter)
        shared = read_envelope(request, wrong)
        wrong.read(check_limit, request.domain_limit)
        wrong.raise_all()
        changes = _WatchedConstraints(asked)
        limit = request.domain_limit or LISTED_DOMAINS
        # The filter stays with the watch, as it came and as it is asked.
        held = call.hold(asked.nbytes + request.ByteSize())
        with held, self._inspector.reader(cluster, shared.settings) as reader:
            inspection, change = self._look(reader, call, changes)
            call.send_headers()
            while call.active():
                if change is not None:
                    meta = meta_of(inspection.view, inspection.replica, shared.settings.version)
                    yield from _messages(meta, change, limit)
                _await_change(inspection)
                inspection, change = self._look(reader, call, changes)

    def _look(
        self, reader: InspectionReader, call: Call, changes: _WatchedConstraints
    ) -> tuple[Inspection, _ConstraintChanges | None]:
        """Inspect the newest state at hand, for a watch; as long computations do, in turn."""
        deadline = min(call.deadline, time.monotonic() + LOOK_SECONDS)
        with Computation(deadline, call.active, turn=self._inspector.turn, share=True):
            inspection = reader.inspect(DEFAULT_CONSISTENCY, deadline)
            return inspection, changes.next(inspection)


class _ConstraintChanges(NamedTuple):
    """What a caller has to be sent: constraints, and the ids of those that it has no more.

    Attributes:
        complete: the constraints are all that there are.
        totals: of all that pass the filter but for its states.
    """

    constraints: Sequence[ConstraintStatus]
    deleted: Sequence[str]
    complete: bool
    totals: Mapping[State, int]


class _WatchedConstraints:
    """What a caller of a watch has, and what is to be sent next.

    It keeps the statuses that the caller has, which all watches share.
    """

    def __init__(self, asked: ConstraintFilter) -> None:
        self._asked = asked
        self._known: Mapping[str, ConstraintStatus] | None = None
        self._totals: Counter[State] = Counter()

    def next(self, inspection: Inspection) -> _ConstraintChanges | None:
        """What differs from the last one; None for nothing."""
        known, there = self._known, inspection.statuses
        if known is there:
            return None
        if known is None:
            self._known = there
            return self._all(inspection)
        former, newer = inspection.changed(known, self._asked)
        self._known = there
        self._totals.subtract([each.state for each in former])
        self._totals.update([each.state for each in newer])
        changed = [each for each in newer if self._asked.has_state(each)]
        left = {each.key.id for each in former if self._asked.has_state(each)}
        left.difference_update([each.key.id for each in changed])
        if not changed and not left:
            return None
        changed.sort(key=lambda each: each.by_severity)
        return _ConstraintChanges(changed, sorted(left), complete=False, totals=self._counted())

    def _all(self, inspection: Inspection) -> _ConstraintChanges:
        matching = inspection.matching(self._asked)
        passing = [each for each in matching if self._asked.has_state(each)]
        self._totals = Counter([each.state for each in matching])
        return _ConstraintChanges(passing, (), complete=True, totals=self._counted())

    def _counted(self) -> Mapping[State, int]:
        return {state: self._totals[state] for state in STATES}


def _await_change(inspection: Inspection) -> None:
    """Wait until there is another view, or for a moment."""
    replica, before = inspection.replica, inspection.view
    replica.stopping.wait(WATCH_INTERVAL)
    # A state that ended is looked for anew: it is another one by then, or not found.
    with suppress(DeadlineExceeded, RevisionUnavailable, Unavailable):
        replica.wait_until(lambda: replica.view is not before, time.monotonic() + IDLE)


def _messages(
    meta: ResponseMeta, change: _ConstraintChanges, limit: int
) -> Iterator[pb.WatchConstraintsResponse]:
    """The messages of one revision, with so many domains of each constraint."""
    rows = change.constraints
    for start in range(0, max(len(rows), 1), ROWS_PER_MESSAGE):
        last = start + ROWS_PER_MESSAGE >= len(rows)
        shown = rows[start : start + ROWS_PER_MESSAGE]
        yield pb.WatchConstraintsResponse(
            meta=meta,
            complete=change.complete,
            constraints=[status_message(each, limit) for each in shown],
            deleted_constraint_ids=change.deleted if last else (),
            partial=not last,
            totals=total_messages(change.totals),
        )


def _page(
    found: Sequence[ConstraintStatus], page: PageRequest
) -> tuple[Sequence[ConstraintStatus], str]:
    """The constraints of a page, and the token of the next one.

    A page begins after the one with the id that its token has, or at its position if that is gone.
    """
    start = 0
    words = page.words(2)
    if words:
        last = next((i for i, each in enumerate(found) if each.key.id == words[1]), None)
        start = _position(words[0]) if last is None else last + 1
    shown = found[start : start + page.most]
    end = start + len(shown)
    more = page.next(str(end), shown[-1].key.id) if end < len(found) else ""
    return shown, more


def _position(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) < 10 else 0


def _filter(asked: pb.ConstraintFilter) -> ConstraintFilter:
    wrong = [
        FieldViolation(f"filter.states[{i}]", "must be a state", NOT_SUPPORTED, state)
        for i, state in enumerate(asked.states)
        if state not in STATES
    ]
    action = asked.when_unsatisfiable
    if action not in ("", DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
        text = f"must be {DO_NOT_SCHEDULE} or {SCHEDULE_ANYWAY}"
        wrong.append(FieldViolation("filter.whenUnsatisfiable", text, NOT_SUPPORTED, action))
    if wrong:
        raise InvalidRequest.of(wrong)
    selector = EVERYTHING
    if asked.HasField("label_selector"):
        selector = selector_of(asked.label_selector, "filter.labelSelector")
    return ConstraintFilter(
        namespace=asked.namespace,
        selector=selector,
        states=frozenset(asked.states),
        topology_key=asked.topology_key,
        owner=Owner(asked.owner.kind, asked.owner.name),
        when_unsatisfiable=action,
    )


def _order(order: pb.ConstraintOrder.ValueType) -> None:
    if order not in pb.ConstraintOrder.values():
        raise InvalidRequest.of([FieldViolation("order", "must be an order", NOT_SUPPORTED, order)])
