"""topospread.v1.InspectorService: decode, call the use cases, encode."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.api.constraint_statuses import (
    STATES,
    description_message,
    status_message,
    total_messages,
)
from topospread.api.decode import check_required, settings_of, token_of
from topospread.api.request_fields import check_all, page_request, required_consistency
from topospread.calls.call import Call, Method, ServerStreaming, Unary
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
from topospread.kube.violations import NOT_SUPPORTED
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.service.explaining.explain import check_limit
from topospread.service.inspecting.describing import DescriptionLimits, describe
from topospread.service.inspecting.inspector import InspectionRequest, totals
from topospread.service.inspecting.statuses import (
    ConstraintFilter,
    ConstraintOrder,
    Owner,
)
from topospread.service.messages import meta_of
from topospread.store.checks import check_cluster
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from topospread.replica.view import Consistency
    from topospread.service.inspecting.inspector import Inspection, Inspector
    from topospread.service.inspecting.statuses import ConstraintStatus, SpreadState
    from topospread.service.state.pages import PageRequest

    _WithSettings = pb.ListConstraintsRequest | pb.GetConstraintRequest | pb.WatchConstraintsRequest

SERVICE: Final = "topospread.v1.InspectorService"

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

_ORDERS: Final[Mapping[int, ConstraintOrder]] = {
    pb.CONSTRAINT_ORDER_UNSPECIFIED: ConstraintOrder.SEVERITY,
    pb.CONSTRAINT_ORDER_SEVERITY: ConstraintOrder.SEVERITY,
    pb.CONSTRAINT_ORDER_NAME: ConstraintOrder.NAME,
}
_STATES: Final = {number: state for state, number in STATES.items()}


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
        page = page_request(request)
        check_all(
            partial(check_cluster, request.cluster or DEFAULT_CLUSTER),
            partial(_filter, request.filter),
            partial(_order, request.order),
            lambda: page.most,
            partial(page.words, 2),
            partial(required_consistency, request),
            partial(settings_of, request.settings),
            partial(check_limit, request.domain_limit),
        )
        asked = _filter(request.filter)
        inspection = self._inspect(request, call.deadline, required_consistency(request))
        matching = inspection.matching(asked, _order(request.order))
        found = [each for each in matching if asked.has_state(each)]
        shown, more = _page(found, page)
        limit = request.domain_limit or LISTED_DOMAINS
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": request.cluster or DEFAULT_CLUSTER,
                    "topospread.revision": inspection.view.token,
                    "topospread.constraints": len(found),
                }
            )
        return pb.ListConstraintsResponse(
            meta=meta_of(inspection.view, inspection.replica),
            constraints=[status_message(each, limit) for each in shown],
            next_page_token=more,
            totals=total_messages(totals(matching)),
        )

    def get(self, request: pb.GetConstraintRequest, call: Call) -> pb.GetConstraintResponse:
        """InspectorService.GetConstraint."""
        check_all(
            partial(check_cluster, request.cluster or DEFAULT_CLUSTER),
            partial(check_required, request.constraint_id, "constraintId"),
            partial(required_consistency, request),
            partial(settings_of, request.settings),
            partial(check_limit, request.domain_limit),
            partial(check_limit, request.node_limit, "nodeLimit"),
            partial(check_limit, request.pod_limit, "podLimit"),
        )
        inspection = self._inspect(request, call.deadline, required_consistency(request))
        limits = DescriptionLimits(
            request.domain_limit or DESCRIBED,
            request.node_limit or DESCRIBED,
            request.pod_limit or DESCRIBED,
        )
        found = describe(inspection, request.constraint_id, limits)
        return description_message(found, meta_of(inspection.view, inspection.replica), limits)

    def watch(
        self, request: pb.WatchConstraintsRequest, call: Call
    ) -> Iterator[pb.WatchConstraintsResponse]:
        """InspectorService.WatchConstraints."""
        check_all(
            partial(check_cluster, request.cluster or DEFAULT_CLUSTER),
            partial(_filter, request.filter),
            partial(_revision, request.revision),
            partial(settings_of, request.settings),
            partial(check_limit, request.domain_limit),
        )
        inspection = self._look(request)
        call.send_headers()
        limit = request.domain_limit or LISTED_DOMAINS
        changes = _WatchedConstraints(_filter(request.filter), request.revision)
        while call.active():
            change = changes.next(inspection)
            if change is not None:
                yield from _messages(inspection, change, limit)
            _await_change(inspection)
            inspection = self._look(request, inspection)

    def _look(
        self, request: pb.WatchConstraintsRequest, before: Inspection | None = None
    ) -> Inspection:
        """Inspect the newest state at hand, for a watch."""
        return self._inspect(request, time.monotonic() + LOOK_SECONDS, DEFAULT_CONSISTENCY, before)

    def _inspect(
        self,
        request: _WithSettings,
        deadline: float,
        consistency: Consistency,
        before: Inspection | None = None,
    ) -> Inspection:
        cluster = request.cluster or DEFAULT_CLUSTER
        settings = settings_of(request.settings)
        asked = InspectionRequest(deadline, cluster, consistency, settings)
        return self._inspector.inspect(asked, before)


class _ConstraintChanges(NamedTuple):
    """What a caller has to be sent: constraints, and the ids of those that it has no more.

    Attributes:
        complete: the constraints are all that there are.
        totals: of all that pass the filter but for its states.
    """

    constraints: Sequence[ConstraintStatus]
    deleted: Sequence[str]
    complete: bool
    totals: Mapping[SpreadState, int]


class _WatchedConstraints:
    """What a caller of a watch has, and what is to be sent next.

    Args:
        asked: the constraints that it is about.
        revision: of the list that the caller has; empty for none.
    """

    def __init__(self, asked: ConstraintFilter, revision: str) -> None:
        self._asked = asked
        self._revision = revision
        self._last: Inspection | None = None
        self._known: set[str] = set()

    def next(self, inspection: Inspection) -> _ConstraintChanges | None:
        """What differs from the last one; None for nothing."""
        last, known = self._last, self._known
        if inspection is last:
            return None
        matching = inspection.matching(self._asked, ConstraintOrder.SEVERITY)
        passing = [each for each in matching if self._asked.has_state(each)]
        there = {each.key.id for each in passing}
        self._last, self._known = inspection, there
        if last is None:
            changes = self._since_list(inspection, passing, there)
        elif last.inspector is not inspection.inspector:
            changes = None
        else:
            seen = last.number
            changed = [e for e in passing if e.changed > seen or e.key.id not in known]
            changes = changed, sorted(known - there)
            if not any(changes):
                return None
        counted = totals(matching)
        if changes is None:
            return _ConstraintChanges(passing, (), complete=True, totals=counted)
        return _ConstraintChanges(*changes, complete=False, totals=counted)

    def _since_list(
        self, inspection: Inspection, passing: Sequence[ConstraintStatus], there: AbstractSet[str]
    ) -> tuple[Sequence[ConstraintStatus], Sequence[str]] | None:
        """What changed since the caller's list, of which nobody knows what was in it.

        Returns:
            The constraints, and the ids of what it may have had; None where that is not known.
        """
        seen = inspection.inspector.number_of(self._revision)
        gone = None if seen is None else inspection.inspector.since(seen)
        if seen is None or gone is None:
            return None
        left = [each.key.id for each in inspection.statuses.values() if each.changed > seen]
        return [each for each in passing if each.changed > seen], sorted({*gone, *left} - there)


def _await_change(inspection: Inspection) -> None:
    """Wait until there is another view, or for a moment."""
    replica, before = inspection.replica, inspection.view
    replica.stopping.wait(WATCH_INTERVAL)
    # A state that ended is looked for anew: it is another one by then, or not found.
    with suppress(DeadlineExceeded, RevisionUnavailable, Unavailable):
        replica.wait_until(lambda: replica.view is not before, time.monotonic() + IDLE)


def _messages(
    inspection: Inspection, change: _ConstraintChanges, limit: int
) -> Iterator[pb.WatchConstraintsResponse]:
    """The messages of one revision, with so many domains of each constraint."""
    meta = meta_of(inspection.view, inspection.replica)
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
        if state not in _STATES
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
        states=frozenset(_STATES[state] for state in asked.states),
        topology_key=asked.topology_key,
        owner=Owner(asked.owner.kind, asked.owner.name),
        when_unsatisfiable=action,
    )


def _revision(given: str) -> None:
    if given:
        token_of(given, "revision")


def _order(order: int) -> ConstraintOrder:
    known = _ORDERS.get(order)
    if known is None:
        raise InvalidRequest.of([FieldViolation("order", "must be an order", NOT_SUPPORTED, order)])
    return known
