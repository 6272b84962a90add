"""kube-scheduler's HTTP extender: its URLs, and a handler for each verb.

A handler decodes, calls the use case and encodes. URLs are ``/extender/v1/VERB`` or
``/extender/v1/CLUSTER/VERB``, with ``?cluster=`` and ``?mode=``. kube-scheduler joins its urlPrefix
and a verb with a slash, so that a query goes with the verb.

A malformed or denied request gets a status of HTTP. A failure of a request that a scheduler may
well send is reported, where the protocol has a field for it, in a response with 200.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from topospread.access.callers import Role
from topospread.checkpoints import checkpoint
from topospread.errors import (
    InvalidPod,
    InvalidRequest,
    MethodNotServed,
    PermissionDenied,
    TooLarge,
    Unauthenticated,
)
from topospread.http import extender_json as messages
from topospread.http.calls import HttpMethod, Lane
from topospread.http.responses import HttpFailure, with_status
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.service.decisions.request import DEFAULT_CLUSTER, DecisionRequest
from topospread.service.extender.assumed import AssumedPods
from topospread.service.extender.extend import (
    CandidateVerdicts,
    filter_and_assume,
    place_candidate,
    prioritize,
)
from topospread.service.extender.preemption import PodsByUid, nodes_made_feasible
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from topospread.calls.call import Call
    from topospread.calls.executor import Executor
    from topospread.checkpoints import Turn
    from topospread.codec.frames import JsonPod
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import ShapedPod
    from topospread.service.extender.unschedulable_pods import UnschedulablePods
    from topospread.service.placement.places import Places
    from topospread.service.state.write import Traced
    from topospread.telemetry.metrics import Metrics, Placed
    from topospread.telemetry.spans import Attribute, CallSpan


_T = TypeVar("_T")

ROOT: Final = "/extender/v1/"

PLACE: Final = "place"

TIMEOUT: Final = 4.5
"""Seconds for a response: kube-scheduler waits 5 by default, and should get the error before."""

LARGE: Final = 1 << 18
"""Bytes of a body past which it is not worked on among the quick decisions."""

_STATUSES: Final = (MethodNotServed, TooLarge, Unauthenticated, PermissionDenied)
"""Errors that have a status of their own, whatever the verb."""

PLACED_BY: Final = "Extender/filter"
"""The call label of place mode in metrics of placements."""

_KNOWN: Final = f"filter, {PLACE}, prioritize and preempt"


class Verb(Enum):
    """The calls of a scheduler. `place` is `filter` in the mode of that name."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"


OTHER: Final = "Extender/other"
"""The name, in metrics, of requests that name no verb."""


@dataclass(frozen=True, slots=True)
class ExtenderTarget:
    """The verb, cluster and mode that a URL names.

    Attributes:
        places: filter reserves the node that it answers.
    """

    verb: Verb
    cluster: str
    places: bool = False


def parse_target(path: str, query: bytes, places: bool) -> ExtenderTarget:
    """The verb, cluster and mode of a URL; `places` is filter's mode where it does not say.

    Raises:
        MethodNotServed: there is no such call.
        InvalidRequest: its query cannot be read.
    """
    parts = path.removeprefix(ROOT).split("/") if path.startswith(ROOT) else []
    if len(parts) not in (1, 2) or not parts[-1]:
        raise MethodNotServed(f"no such page: calls are {ROOT}[CLUSTER/]VERB with {_KNOWN}")
    parameters = _parameters(query)
    mode = parameters.get("mode", "")
    if mode not in ("", "filter", PLACE):
        raise with_status(
            400, InvalidRequest.at("mode", f"must be filter or {PLACE}, not {mode[:40]!r}")
        )
    cluster = _cluster(parts[0] if len(parts) == 2 else "", parameters.get("cluster", ""))
    name = parts[-1]
    if name == PLACE:
        return ExtenderTarget(Verb.FILTER, cluster, places=True)
    try:
        verb = Verb(name)
    except ValueError:
        raise MethodNotServed(f"unknown verb {name[:40]!r}: this extender has {_KNOWN}") from None
    return ExtenderTarget(
        verb, cluster, (mode == PLACE if mode else places) and verb is Verb.FILTER
    )


def _parameters(query: bytes) -> dict[str, str]:
    parameters = dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True))
    if unknown := parameters.keys() - {"cluster", "mode"}:
        name = min(unknown)[:40]
        text = "unknown parameter: there are cluster and mode"
        raise with_status(400, InvalidRequest.at(name, text, "Forbidden"))
    return parameters


def _cluster(in_path: str, in_query: str) -> str:
    if in_path and in_query and in_path != in_query:
        text = f"the path names cluster {in_path[:253]!r}, and the query {in_query[:253]!r}"
        raise with_status(400, InvalidRequest.at("cluster", text))
    return in_path or in_query or DEFAULT_CLUSTER


class Executors(NamedTuple):
    """What carries out calls.

    Attributes:
        decide: threads for decisions, which only compute.
        wait: threads for calls that wait for the store, and for large bodies.
        turn: held by decisions while they compute.
    """

    decide: Executor
    wait: Executor
    turn: Turn


class Extender:
    """The methods of the extender.

    Args:
        lifetime: milliseconds that a place is held.
        unschedulable: remembers pods that Filter refuses, to wake them when they fit.
        places: filter reserves the node that it answers, where a URL does not say.
    """

    def __init__(
        self,
        engine: Engine,
        placement: Places,
        metrics: Metrics,
        executors: Executors,
        *,
        lifetime: int,
        unschedulable: UnschedulablePods | None = None,
        places: bool = False,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._pods = PodsByUid(placement.store)
        self._metrics = metrics
        metrics.expect_placements(PLACED_BY)
        self._executors = executors
        self._lifetime = lifetime
        self._unschedulable = unschedulable
        self._places = places
        self._assumed = AssumedPods()

    def method(self, path: str, query: bytes) -> HttpMethod:
        """What a URL asks for; raises as :func:`parse_target`."""
        target = parse_target(path, query, self._places)
        verb = target.verb
        return HttpMethod(
            verb.value,
            f"Extender/{verb.value}",
            f"extender {verb.value}",
            target.cluster,
            Role.PLACE if target.places else Role.DECIDE,
            TIMEOUT,
            partial(self._serve, target),
            partial(self._lane, target),
            partial(error_result, verb),
            compressed=True,
            audited=target.places,
        )

    def _lane(self, target: ExtenderTarget, size: int) -> Lane:
        if size > LARGE or target.places or target.verb is Verb.PREEMPT:
            return Lane(self._executors.wait)
        replica = self._engine.replicas.get(target.cluster)
        is_loaded = replica is not None and replica.view is not None and not replica.gone
        return Lane(self._executors.decide, self._executors.turn, brief=is_loaded)

    def _serve(self, target: ExtenderTarget, call: Call) -> bytes:
        checkpoint()  # it may have waited in a queue
        body = call.raw
        try:
            if target.verb is Verb.PREEMPT:
                return self._preempt(_parsed(messages.read_preemption, body), target, call)
            args = _parsed(messages.read_args, body)
            if target.verb is Verb.PRIORITIZE:
                return self._prioritize(args, target, call)
            return self._filter(args, target, call)
        except InvalidPod as wrong:
            raise wrong.under("Pod") from wrong

    def _filter(self, args: messages.ExtenderArgs, target: ExtenderTarget, call: Call) -> bytes:
        cluster = target.cluster
        if target.places:
            judged, pod = self._placed(args, cluster, call)
        else:
            pod = self._engine.intern(args.pod)
            request = DecisionRequest(deadline=call.deadline, cluster=cluster, pod=pod)
            judged = filter_and_assume(
                self._engine, self._assumed, request, args.names, args.describe
            )
            self._observe(judged)
            if judged.in_burst and judged.fit:
                self._metrics.stale_decision(cluster)
        self._remember(args, cluster, pod, judged)
        if judged.unknown:
            self._metrics.unknown_nodes(cluster)
        if call.span.recording:
            _describe(call.span, judged, len(args.names))
        if judged.status.code is Code.ERROR:
            return messages.filter_error(judged.status.reasons[0])
        return messages.filter_result(args, judged.fit, judged.refused, judged.unresolvable)

    def _remember(
        self, args: messages.ExtenderArgs, cluster: str, pod: ShapedPod, judged: CandidateVerdicts
    ) -> None:
        """Remember the pod while it waits for the state to change."""
        unschedulable = self._unschedulable
        if unschedulable is None or cluster != unschedulable.cluster:
            return
        if judged.fit or judged.status.code is not Code.SUCCESS:
            unschedulable.accepted(pod)
        else:
            unschedulable.refused(pod, args.names, args.pod.size)

    def _placed(
        self, args: messages.ExtenderArgs, cluster: str, call: Call
    ) -> tuple[CandidateVerdicts, ShapedPod]:
        decision = DecisionRequest(deadline=call.deadline, cluster=cluster)
        pod = args.pod.message()
        fields = call.fields = dict(call.fields)
        encoded, meta = pod.SerializeToString(), pod.metadata
        fields["pod"] = f"{meta.namespace or DEFAULT_NAMESPACE}/{meta.name}"
        request = self._placement.new_request(decision, encoded, self._lifetime)
        traced = _traced(call.span, cluster)
        try:
            judged = place_candidate(self._placement, request, args.names, traced)
        finally:
            # Also of calls that fail because of them.
            for _ in range(request.conflicts):
                self._metrics.placement_conflict(PLACED_BY)
        if (held := judged.held) is not None:
            result: Placed = "bound" if held.already_bound else "held" if held.node else "refused"
            self._metrics.placement(PLACED_BY, result)
            fields["revision"] = held.token
            fields["node"] = held.node
            fields["verdict"] = held.status.code.label
            fields["already_bound"] = held.already_bound
        return judged, request.pod

    def _prioritize(self, args: messages.ExtenderArgs, target: ExtenderTarget, call: Call) -> bytes:
        request = self._request(args.pod, target, call)
        scores = prioritize(self._engine, request, args.names, args.describe)
        if call.span.recording:
            call.span.set("topospread.nodes", len(scores.points))
            call.span.stage("score", scores.seconds)
        return messages.priority_list(args.names, scores.points)

    def _preempt(self, args: messages.PreemptionArgs, target: ExtenderTarget, call: Call) -> bytes:
        candidates = {name: node.victims for name, node in args.nodes.items()}
        request = self._request(args.pod, target, call)
        kept = nodes_made_feasible(self._engine, self._pods, request, candidates)
        if call.span.recording:
            call.span.set_many(
                {"topospread.nodes": len(candidates), "topospread.feasible": len(kept)}
            )
        return messages.preemption_result(args, kept)

    def _request(self, pod: JsonPod, target: ExtenderTarget, call: Call) -> DecisionRequest:
        subject = self._engine.intern(pod)
        return DecisionRequest(deadline=call.deadline, cluster=target.cluster, pod=subject)

    def _observe(self, judged: CandidateVerdicts) -> None:
        """Observe a Filter for kube-scheduler's dashboards."""
        if judged.status.code is Code.SUCCESS:
            code = Code.SUCCESS if judged.fit else Code.UNSCHEDULABLE
            profile = judged.cycle.rules.profile.name
            self._metrics.extension_point("Filter", profile).observe(code.label, judged.seconds)


def error_result(verb: Verb, failure: HttpFailure, error: Exception) -> tuple[int, bytes]:
    """Status and body for a call that failed.

    Filter's result has a place for what went wrong, and kube-scheduler shows it on the pod; of a
    status other than 200 it shows the number alone. It takes both for an error of the extender.
    What is wrong with the request or the caller as such keeps its status, for proxies and people
    who look at those.
    """
    own = isinstance(error, _STATUSES) or bool(getattr(error, "http_status", 0))
    if verb is Verb.FILTER and not own:
        return 200, messages.filter_error(failure.text)
    return failure.status, failure.body


def _parsed(read: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return read(body)
    except InvalidRequest as wrong:
        wrong.http_status = 400
        raise


def _traced(span: CallSpan, cluster: str) -> Traced:
    """Make writes to the store child spans of the call."""

    def child(operation: str, changes: int) -> AbstractContextManager[object]:
        attributes: dict[str, Attribute] = {
            "topospread.cluster": cluster,
            "topospread.store.operation": operation,
            "topospread.store.changes": changes,
        }
        return span.child(f"store {operation}", attributes)

    return child


def _describe(span: CallSpan, judged: CandidateVerdicts, candidates: int) -> None:
    span.set_many(
        {
            "topospread.revision": judged.cycle.view.token,
            "topospread.profile": judged.cycle.rules.profile.name,
            "topospread.status": judged.status.code.label,
            "topospread.nodes": candidates,
            "topospread.feasible": len(judged.fit),
            "topospread.nodes.unknown": judged.unknown,
        }
    )
    if judged.held is not None:
        span.set("topospread.node", judged.held.node)
