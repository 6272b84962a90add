"""What each verb of the scheduler extender does: decode, call the use case, encode."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from topospread.errors import (
    InvalidPod,
    InvalidRequest,
    NotOffered,
    PermissionDenied,
    TooLarge,
    Unauthenticated,
)
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.service.asks import Ask
from topospread.service.bursts import Bursts
from topospread.service.extend import Judged, filter_candidates, place_candidate, prioritize
from topospread.service.victims import PodsByUid, helped
from topospread.spread.verdicts import Code
from topospread.transports.http import extender_json as messages
from topospread.transports.http.extender_paths import Target, Verb
from topospread.transports.http.failures import Failure, Refused
from topospread.transports.http.preemption_json import (
    PreemptionArgs,
    preemption_result,
    read_preemption,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.codec.json_pods import JsonPod
    from topospread.service.engine import Engine
    from topospread.service.holding import Holding
    from topospread.service.refused import RefusedPods
    from topospread.service.shapes import ShapedPod
    from topospread.service.wanted import Wanted
    from topospread.service.write import Traced
    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import Attribute, CallSpan

LOG: Final = logging.getLogger(__name__)

_T = TypeVar("_T")

_STATUSES: Final = (Refused, NotOffered, TooLarge, Unauthenticated, PermissionDenied)
"""Errors that are told by a status, whatever the verb."""

PLACED_BY: Final = "Extender/filter"
"""What metrics of places call place mode."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call.

    Attributes:
        body: of the request, unpacked.
        deadline: on the monotonic clock.
        span: of the call.
        what: filled with what the audit log says of a place.
    """

    target: Target
    body: bytes
    deadline: float
    span: CallSpan
    what: dict[str, object] = field(default_factory=dict)


class Verbs:
    """The verbs.

    Args:
        engine: judges pods.
        holding: holds places.
        metrics: counts what became of them.
        lifetime: milliseconds that a place is held.
        refused: remembers what filter refuses, to wake it when it fits.
    """

    def __init__(
        self,
        engine: Engine,
        holding: Holding,
        metrics: Metrics,
        lifetime: int,
        refused: RefusedPods | None = None,
    ) -> None:
        self._engine = engine
        self._holding = holding
        self._pods = PodsByUid(holding.store)
        self._metrics = metrics
        self._lifetime = lifetime
        self._refused = refused
        self._bursts = Bursts(engine.budgets["bursts"])
        self._warned = False

    def waits_for_nothing(self, cluster: str) -> bool:
        """Whether judging is only computing: the cluster is loaded."""
        replica = self._engine.replicas.at_hand(cluster)
        return replica is not None and replica.view is not None and not replica.gone

    def serve(self, asked: Asked) -> bytes:
        """The answer to a call, in JSON.

        Raises:
            Refused: the body cannot be read.
            And what the use cases raise.
        """
        try:
            if asked.target.verb is Verb.PREEMPT:
                return self._preempt(_readable(read_preemption, asked.body), asked)
            args = _readable(messages.read_args, asked.body)
            if asked.target.verb is Verb.PRIORITIZE:
                return self._prioritize(args, asked)
            return self._filter(args, asked)
        except InvalidPod as wrong:
            raise wrong.under("Pod") from wrong

    def _filter(self, args: messages.ExtenderArgs, asked: Asked) -> bytes:
        if asked.target.places:
            judged, pod = self._placed(args, asked)
        else:
            pod = self._engine.shaped(args.pod)
            ask = Ask(deadline=asked.deadline, cluster=asked.target.cluster, subject=pod)
            judged = filter_candidates(self._engine, ask, args.names, args.describe)
            self._observe(judged, ask.stages.filter)
            self._notice_burst(judged, asked, pod)
        self._remember(args, asked, pod, judged)
        if judged.unknown:
            self._metrics.unknown_nodes(asked.target.cluster)
        if asked.span.recording:
            _describe(asked.span, judged, len(args.names))
        if judged.status.code is Code.ERROR:
            return messages.filter_error(judged.status.reasons[0])
        return messages.filter_result(args, judged.fit, judged.refused, judged.unresolvable)

    def _notice_burst(self, judged: Judged, asked: Asked, pod: ShapedPod) -> None:
        """Count, and say once, that pods come faster than the state learns of them."""
        if not judged.fit or judged.status.code is not Code.SUCCESS:
            return
        cluster = asked.target.cluster
        if not self._bursts.outran(self._engine.replicas.at_hand(cluster), pod):
            return
        self._metrics.outrun(cluster)
        if not self._warned:
            self._warned = True
            LOG.warning(
                "cluster %s: pod %s/%s was judged before the state had the pod before it: a burst"
                " through mode filter may break maxSkew, mode place keeps it"
                " (docs/kube-scheduler.md); topospread_extender_outrun_total counts further ones",
                *(cluster[:63], pod.shape.pod.namespace[:63], pod.name[:253]),
            )

    def _remember(
        self, args: messages.ExtenderArgs, asked: Asked, pod: ShapedPod, judged: Judged
    ) -> None:
        """Note whether the pod waits for the state to change."""
        refused = self._refused
        if refused is None or asked.target.cluster != refused.cluster:
            return
        if judged.fit or judged.status.code is not Code.SUCCESS:
            refused.accepted(pod)
        else:
            refused.refused(pod, args.names, args.pod.size)

    def _placed(self, args: messages.ExtenderArgs, asked: Asked) -> tuple[Judged, ShapedPod]:
        ask = Ask(deadline=asked.deadline, cluster=asked.target.cluster)
        pod = args.pod.message()
        encoded, meta = pod.SerializeToString(), pod.metadata
        asked.what["pod"] = f"{meta.namespace or DEFAULT_NAMESPACE}/{meta.name}"
        wanted = self._holding.wanted(ask, encoded, self._lifetime)
        with self._conflicts_counted(wanted):
            judged = place_candidate(self._holding, wanted, args.names, _traced(asked))
        if (held := judged.held) is not None:
            result = "bound" if held.already_bound else "held" if held.node else "refused"
            self._metrics.placement(PLACED_BY, result)
            asked.what["revision"] = held.token
            asked.what["node"] = held.node
            asked.what["verdict"] = held.status.code.label
            asked.what["already_bound"] = held.already_bound
        return judged, wanted.pod

    @contextmanager
    def _conflicts_counted(self, wanted: Wanted) -> Iterator[None]:
        """Count the conflicts, also of calls that gave up on them."""
        try:
            yield
        finally:
            for _ in range(wanted.conflicts):
                self._metrics.placement_conflict(PLACED_BY)

    def _prioritize(self, args: messages.ExtenderArgs, asked: Asked) -> bytes:
        ask = self._ask(args.pod, asked)
        scores = prioritize(self._engine, ask, args.names, args.describe)
        if asked.span.recording:
            asked.span.set("topospread.nodes", len(scores))
            asked.span.stage("score", ask.stages.score)
        return messages.priority_list(args.names, scores)

    def _preempt(self, args: PreemptionArgs, asked: Asked) -> bytes:
        candidates = {name: node.victims for name, node in args.nodes.items()}
        kept = helped(self._engine, self._pods, self._ask(args.pod, asked), candidates)
        if asked.span.recording:
            asked.span.set_many(
                {"topospread.nodes": len(candidates), "topospread.feasible": len(kept)}
            )
        return preemption_result(args, kept)

    def _ask(self, pod: JsonPod, asked: Asked) -> Ask:
        subject = self._engine.shaped(pod)
        return Ask(deadline=asked.deadline, cluster=asked.target.cluster, subject=subject)

    def _observe(self, judged: Judged, seconds: float) -> None:
        """What kube-scheduler's dashboards show of Filter."""
        if judged.status.code is Code.SUCCESS:
            code = Code.SUCCESS if judged.fit else Code.UNSCHEDULABLE
            profile = judged.cycle.rules.profile.name
            self._metrics.extension_point("Filter", profile).observe(code.label, seconds)


def failed(verb: Verb, failure: Failure, error: Exception) -> tuple[int, bytes]:
    """Status and body for a call that failed.

    Filter's result has a place for what went wrong, and kube-scheduler shows it on the pod; of a
    status other than 200 it shows the number alone. It takes both for an error of the extender.
    What is wrong with the request or the caller as such keeps its status, for proxies and people
    who look at those.
    """
    if verb is Verb.FILTER and not isinstance(error, _STATUSES):
        return 200, messages.filter_error(failure.text)
    return failure.status, failure.body


def waits(target: Target) -> bool:
    """Whether a call asks the store."""
    return target.places or target.verb is Verb.PREEMPT


def _readable(read: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return read(body)
    except InvalidRequest as wrong:
        raise Refused(400, wrong) from wrong


def _traced(asked: Asked) -> Traced:
    """Writes to the store are child spans of the call."""

    def child(operation: str, changes: int) -> AbstractContextManager[object]:
        attributes: dict[str, Attribute] = {
            "topospread.cluster": asked.target.cluster,
            "topospread.store.operation": operation,
            "topospread.store.changes": changes,
        }
        return asked.span.child(f"store {operation}", attributes)

    return child


def _describe(span: CallSpan, judged: Judged, candidates: int) -> None:
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
