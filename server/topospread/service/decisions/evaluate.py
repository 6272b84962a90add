"""EvaluatePod: PreFilter, Filter and Score in one, and the best nodes by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from topospread.errors import InvalidRequest
from topospread.index.groups import OVERHEAD
from topospread.service.decisions.extension_points import (
    in_name_order,
    select_distinct,
    verdicts_on,
)
from topospread.service.decisions.pods import plan_of
from topospread.spread.classes import judge
from topospread.spread.verdicts import (
    FITS,
    SKIP,
    VERDICTS,
    Code,
    Status,
    error_message,
    fit_message,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topospread.index.groups import Group
    from topospread.index.nodes import NodeTable
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.engine import Engine, ResolvedCycle
    from topospread.service.decisions.request import DecisionRequest
    from topospread.spread.topology import Ints

DEFAULT_TOP_K: Final = 5

RANKED_BYTES: Final = 160
"""About, of a ranked node; its name is the node table's."""

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


class RankedNode(NamedTuple):
    """A feasible node and its scores; both 0 when PreScore skips."""

    name: str
    raw: int
    normalized: int


@dataclass(slots=True, eq=False)
class Evaluation:
    """The result of EvaluatePod.

    Attributes:
        nodes: how many were judged.
        feasible: how many passed.
        verdicts: (status, nodes), most frequent first.
        top: best first.
        message, reason: as kube-scheduler writes them on a pod that fits nowhere; empty when one
            fits.
        defaulted: the constraints are the profile's, not the pod's.
        kept: what is remembered of it.
    """

    resolved: ResolvedCycle
    pre_filter: Status
    pre_score: Status
    nodes: int
    feasible: int
    verdicts: tuple[tuple[Status, int], ...]
    top: tuple[RankedNode, ...]
    message: str = ""
    reason: str = ""
    defaulted: bool = False
    kept: Remembered | None = None

    @property
    def parts(self) -> tuple[Any, ...]:
        """All fields that are equal for pods of one shape."""
        return tuple([getattr(self, name) for name in self.__slots__[1:-1]])


class Remembered:
    """A result, and what it followed from: it holds as long as these are the same objects.

    Attributes:
        encoded: the answer without its meta, once it was encoded.
    """

    __slots__ = ("encoded", "nodes", "parts", "versions")

    def __init__(
        self, nodes: NodeTable, versions: tuple[Group, ...], parts: tuple[Any, ...]
    ) -> None:
        self.nodes = nodes
        self.versions = versions
        self.parts = parts
        self.encoded = b""

    @property
    def nbytes(self) -> int:
        """Bytes, about, beside the named nodes, which count with its key."""
        return 2 * OVERHEAD


def evaluate(engine: Engine, request: DecisionRequest, top_k: int = 0) -> Evaluation:
    """EvaluatePod: judge a pod on all nodes, or on the selected ones.

    Args:
        engine: makes the cycle.
        request: about the pod; `nodes` narrows what is judged, not what is counted.
        top_k: how many nodes to name; 0 is the default of 5.

    Raises:
        As Engine.new_cycle; InvalidRequest for the selection and for top_k.
    """
    check_top_k(engine, top_k)
    return judge_cycle(engine, engine.new_cycle(request), request, top_k)


def check_top_k(engine: Engine, top_k: int) -> None:
    """Refuse another number of nodes than may be named."""
    if not 0 <= top_k <= engine.limits.top_k:
        text = f"must be 0 to {engine.limits.top_k}"
        raise InvalidRequest.at("topK", text, bad_value=top_k)


def judge_cycle(
    engine: Engine, resolved: ResolvedCycle, request: DecisionRequest, top_k: int
) -> Evaluation:
    """Judge the pod of a cycle, or find what it was judged."""
    cycle = resolved.cycle
    status = cycle.effective.pre_filter
    if status.code is Code.ERROR:
        size = int(select_distinct(cycle.view.snapshot.nodes, request.nodes).slots.size)
        message = error_message(status.reasons[0])
        if not cycle.view.snapshot.node_count:
            # Without any node kube-scheduler gives up before it runs a plugin.
            message = fit_message(0, {})
        return summed_up(resolved, size, 0, [], (), message)
    top_k = top_k or DEFAULT_TOP_K
    if (
        request.nodes is None
        and engine.remembers
        and (known := _remembered(resolved, top_k)) is not None
    ):
        return known
    one_by_one = request.nodes is not None or cycle.moves or cycle.by_node
    plan = None if one_by_one else plan_of(cycle.effective, cycle.view.snapshot)
    if plan is not None and cycle.effective.pre_score.code is not Code.ERROR:
        started = engine.clock()
        judged = judge(plan, cycle.view.snapshot, top_k, engine.clock)
        stages = resolved.timings
        stages.pre_filter = judged.counted_at - started
        stages.filter = judged.filtered_at - judged.counted_at
        stages.pre_score = judged.weighed_at - judged.filtered_at
        stages.score = engine.clock() - judged.weighed_at
        evaluation = _counted(resolved, judged.verdicts, _named(cycle, judged.top))
        if engine.remembers:
            _remember(cycle, top_k, evaluation)
        return evaluation
    counts, top = _judge_nodes(engine, resolved, request, top_k)
    return _counted(resolved, counts, top)


def _remembered(resolved: ResolvedCycle, top_k: int) -> Evaluation | None:
    """The result for this shape, if it is kept and nothing that it followed from has changed."""
    cycle = resolved.cycle
    snapshot, groups = cycle.view.snapshot, cycle.effective.groups
    if not groups or cycle.moves:
        return None
    found = snapshot.groups[groups[0]].memo.get((cycle.effective, top_k))
    if not isinstance(found, Remembered) or found.nodes is not snapshot.nodes:
        return None
    for key, version in zip(groups, found.versions, strict=True):
        if snapshot.groups[key] is not version:
            return None
    evaluation = Evaluation(resolved, *found.parts)
    evaluation.kept = found
    return evaluation


def _remember(cycle: Cycle, top_k: int, evaluation: Evaluation) -> None:
    """Keep a result with the first group it rests on, so that it goes when that changes."""
    snapshot, effective = cycle.view.snapshot, cycle.effective
    if effective.groups and not effective.is_large:
        versions = effective.versions(snapshot)
        kept = evaluation.kept = Remembered(snapshot.nodes, versions, evaluation.parts)
        size = effective.nbytes + RANKED_BYTES * len(evaluation.top)
        versions[0].memo.put((effective, top_k), kept, size)


def _judge_nodes(
    engine: Engine, resolved: ResolvedCycle, request: DecisionRequest, top_k: int
) -> tuple[Sequence[int], tuple[RankedNode, ...]]:
    """Nodes by verdict, and the best of them, judged one by one."""
    cycle = resolved.cycle
    nodes = cycle.view.snapshot.nodes
    selected = select_distinct(nodes, request.nodes)
    clock, stages = engine.clock, resolved.timings
    started = clock()
    _ = cycle.states
    counted = clock()
    verdicts = verdicts_on(cycle, selected)
    filtered = clock()
    stages.pre_filter, stages.filter = counted - started, filtered - counted
    counts = np.bincount(verdicts, minlength=len(VERDICTS)).tolist()
    if not counts[FITS]:
        return counts, ()
    every = counts[FITS] == selected.slots.size
    fits = selected.slots if every else selected.slots[verdicts == FITS]
    if request.nodes is not None:
        fits = in_name_order(nodes, fits)  # the caller's order is another
    top = rank(cycle, fits, top_k)
    stages.score = clock() - filtered
    return counts, top


def _counted(
    resolved: ResolvedCycle, counts: Sequence[int], top: tuple[RankedNode, ...]
) -> Evaluation:
    nodes, feasible = sum(counts), counts[FITS]
    judged = [(status, count) for status, count in zip(VERDICTS, counts, strict=True) if count]
    message = ""
    if not feasible:
        message = fit_message(nodes, {status.reasons[0]: count for status, count in judged})
    return summed_up(resolved, nodes, feasible, judged, top, message)


def summed_up(
    resolved: ResolvedCycle,
    nodes: int,
    feasible: int,
    verdicts: list[tuple[Status, int]],
    top: tuple[RankedNode, ...],
    message: str,
) -> Evaluation:
    """Make the result of EvaluatePod, or of ExplainPod, which asks other filters, too."""
    effective, has_nodes = resolved.cycle.effective, resolved.cycle.view.snapshot.node_count > 0
    failed = effective.pre_filter.code is Code.ERROR
    if len(verdicts) > 1:
        verdicts.sort(key=_most_frequent)
    reason = ""
    if not feasible:
        reason = SCHEDULER_ERROR if failed and has_nodes else UNSCHEDULABLE
    return Evaluation(
        resolved,
        effective.pre_filter,
        effective.pre_score if has_nodes and not failed else SKIP,
        nodes,
        feasible,
        tuple(verdicts),
        top,
        message,
        reason,
        effective.constraints.defaulted,
    )


def _most_frequent(counted: tuple[Status, int]) -> int:
    return -counted[1]


def _named(cycle: Cycle, top: Sequence[tuple[int, int, int]]) -> tuple[RankedNode, ...]:
    names = cycle.view.snapshot.nodes.names
    return tuple([RankedNode(names[slot], raw, score) for slot, raw, score in top])


def rank(cycle: Cycle, fits: NDArray[np.intp], top_k: int) -> tuple[RankedNode, ...]:
    """The best nodes: by score, then fewest matching pods in the hard domains, then by name.

    Args:
        cycle: the judgement.
        fits: slots of the feasible nodes in the order of their names, at least one.
        top_k: how many.
    """
    raw = normalized = np.zeros(fits.size, dtype=np.int64)
    if cycle.pre_score_status.code is Code.SUCCESS:
        scores = cycle.scores(fits)
        raw, normalized = scores.raw, scores.normalized
    # One number a node, so that one partition finds the best: score, then pods, then position.
    # What-ifs may take pods below 0; even so they stay far from the next score.
    order = ((100 - normalized) << 32) + matching(cycle, fits)
    best = _smallest(order, min(top_k, fits.size))
    names = cycle.view.snapshot.nodes.names
    return tuple(
        RankedNode(names[slot], int(raw[i]), int(normalized[i]))
        for i, slot in zip(best.tolist(), fits[best].tolist(), strict=True)
    )


def matching(cycle: Cycle, fits: NDArray[np.intp]) -> Ints:
    """[fits] matching pods in the hard constraints' domains, added up."""
    total: Ints = np.zeros(fits.size, dtype=np.int64)
    for state in cycle.states:
        ids = cycle.view.snapshot.domains(state.constraint.topology_key).ids[fits]
        total += state.counts[ids]
    return total


def _smallest(order: Ints, k: int) -> NDArray[np.intp]:
    """Positions of the k smallest entries, ascending; equal ones by position."""
    if k >= order.size:
        return np.argsort(order, kind="stable")
    bound = np.partition(order, k - 1)[k - 1]
    below = np.flatnonzero(order < bound)
    at = np.flatnonzero(order == bound)[: k - below.size]
    chosen = np.sort(np.concatenate([below, at]))
    return chosen[np.argsort(order[chosen], kind="stable")]
