"""What metrics and spans say of a decision, read off its answer.

Metrics carry upstream's names and labels, so that a dashboard for kube-scheduler shows this server,
too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.service.evaluate import Evaluation
from topospread.spread.verdicts import SUCCESS, VERDICTS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.errors import TopospreadError
    from topospread.service.asks import Ask
    from topospread.service.engine import Resolved
    from topospread.service.explain import Explained
    from topospread.service.filter import FilterAnswer
    from topospread.service.pre_filter import PreFilterAnswer
    from topospread.service.score import ScoreAnswer
    from topospread.telemetry.metrics import Metrics, Result
    from topospread.telemetry.tracing import CallSpan
    from topospread.transports.grpc.calls import Call

_SUCCESS: Final = Code.SUCCESS.label


class _Meters:
    """The extension points' meters of one profile."""

    __slots__ = ("filter", "pre_filter", "pre_score", "score")

    def __init__(self, metrics: Metrics, profile: str) -> None:
        self.pre_filter = metrics.extension_point("PreFilter", profile)
        self.filter = metrics.extension_point("Filter", profile)
        self.pre_score = metrics.extension_point("PreScore", profile)
        self.score = metrics.extension_point("Score", profile)


class Observer:
    """Tells metrics and spans what was decided."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_profile: dict[str, _Meters] = {}

    def pre_filtered(self, answer: PreFilterAnswer, ask: Ask, call: Call) -> None:
        """After DecisionService.PreFilter."""
        meters = self._meters(answer.resolved)
        meters.pre_filter.observe(answer.status.code.label, ask.stages.pre_filter)
        if call.span.recording:
            _describe(call.span, answer.resolved, ask, answer.status)

    def filtered(self, answer: FilterAnswer, ask: Ask, call: Call) -> None:
        """After DecisionService.Filter."""
        meters = self._meters(answer.resolved)
        meters.filter.observe(answer.status.code.label, ask.stages.filter)
        if call.span.recording:
            _describe(call.span, answer.resolved, ask, answer.status)
            counts = np.bincount(answer.verdicts, minlength=len(VERDICTS)).tolist()
            _describe_verdicts(call.span, sum(counts), zip(VERDICTS, counts, strict=True))

    def scored(self, answer: ScoreAnswer, ask: Ask, call: Call) -> None:
        """After DecisionService.Score."""
        meters, label = self._meters(answer.resolved), answer.status.code.label
        meters.pre_score.observe(label, ask.stages.pre_score)
        if answer.scores is not None:
            meters.score.observe(label, ask.stages.score)
        if call.span.recording:
            _describe(call.span, answer.resolved, ask, answer.status)
            scored = 0 if answer.scores is None else answer.scores.raw.size
            call.span.set("topospread.nodes", int(scored))

    def evaluated(self, answer: Evaluation, ask: Ask, call: Call) -> None:
        """After DecisionService.EvaluatePod."""
        self._count(answer, ask)
        if call.span.recording:
            _describe(call.span, answer.resolved, ask, answer.pre_filter)
            _describe_verdicts(call.span, answer.nodes, answer.verdicts)

    def explained(self, answer: Explained, ask: Ask, call: Call) -> None:
        """After DecisionService.ExplainPod, which is no scheduling attempt."""
        if call.span.recording:
            found = answer.explanation
            _describe(call.span, answer.resolved, ask, found.status)
            call.span.set("topospread.nodes", found.nodes)
            call.span.set("topospread.feasible", found.fitting)
            call.span.set("topospread.suggestions", len(found.suggestions))

    def batch_evaluated(
        self, answers: Sequence[Evaluation | TopospreadError], ask: Ask, call: Call
    ) -> None:
        """After DecisionService.BatchEvaluatePods."""
        evaluated = [answer for answer in answers if isinstance(answer, Evaluation)]
        for answer in evaluated:
            self._count(answer, ask)
        if call.span.recording:
            results = Counter(map(_result, evaluated))
            call.span.set_many(
                {
                    "topospread.cluster": ask.cluster,
                    "topospread.pods": len(answers),
                    "topospread.pods.refused": len(answers) - len(evaluated),
                    **{f"topospread.pods.{result}": count for result, count in results.items()},
                }
            )

    def _count(self, answer: Evaluation, ask: Ask) -> None:
        meters, stages = self._meters(answer.resolved), ask.stages
        pre_filter, feasible = answer.pre_filter.code, answer.feasible
        meters.pre_filter.observe(pre_filter.label, stages.pre_filter)
        if pre_filter is Code.SUCCESS:
            meters.filter.observe(_filter_status(answer).code.label, stages.filter)
        if feasible:
            meters.pre_score.observe(answer.pre_score.code.label, stages.pre_score)
            if answer.pre_score.code is Code.SUCCESS:
                meters.score.observe(_SUCCESS, stages.score)
        self._metrics.attempt(_result(answer), _profile(answer.resolved))

    def _meters(self, resolved: Resolved) -> _Meters:
        profile = _profile(resolved)
        meters = self._by_profile.get(profile)
        if meters is None:
            # Profiles are few: the configuration's, and one for arguments given in requests.
            meters = self._by_profile[profile] = _Meters(self._metrics, profile)
        return meters


def _profile(resolved: Resolved) -> str:
    return resolved.cycle.rules.profile.name


def _filter_status(answer: Evaluation) -> Status:
    """Success when a node passed; otherwise what most nodes got."""
    return SUCCESS if answer.feasible or not answer.verdicts else answer.verdicts[0][0]


def _result(answer: Evaluation) -> Result:
    if answer.pre_filter.code is Code.ERROR:
        return "error"
    return "scheduled" if answer.feasible else "unschedulable"


def _describe(span: CallSpan, resolved: Resolved, ask: Ask, status: Status) -> None:
    cycle, stages = resolved.cycle, ask.stages
    hard, soft = cycle.constraints.hard.constraints, cycle.constraints.soft.constraints
    span.set_many(
        {
            "topospread.cluster": ask.cluster,
            "topospread.revision": cycle.view.token,
            "topospread.revision.number": cycle.view.revision.number,
            "topospread.profile": cycle.rules.profile.name,
            "topospread.status": status.code.label,
            "topospread.constraints.hard": [c.topology_key for c in hard],
            "topospread.constraints.soft": [c.topology_key for c in soft],
            "topospread.constraints.defaulted": cycle.constraints.defaulted,
            "topospread.nodes.seen": cycle.view.snapshot.node_count,
            "topospread.stale_for_s": resolved.replica.stale_for,
        }
    )
    for name in ("resolve", "pre_filter", "filter", "pre_score", "score"):
        seconds = getattr(stages, name)
        if seconds:
            span.stage(name, seconds)


def _describe_verdicts(span: CallSpan, judged: int, counts: Iterable[tuple[Status, int]]) -> None:
    by_code: Counter[Code] = Counter()
    for status, nodes in counts:
        by_code[status.code] += nodes
    span.set("topospread.nodes", judged)
    span.set("topospread.feasible", by_code[Code.SUCCESS])
    for code, nodes in by_code.items():
        if nodes:
            span.set(f"topospread.verdicts.{code.label}", nodes)
