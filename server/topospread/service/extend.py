"""What kube-scheduler asks an extender: which candidates may take a pod, and how good they are.

The scheduler names the nodes that its own filters left over; counts come from the whole state, not
from these. Nodes that are not in the state are told apart from those that are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.errors import InvalidPod
from topospread.index.supposed import Supposition, supposed
from topospread.service.asks import NodeChoice
from topospread.service.fit import Fit
from topospread.service.place import Preference, choose
from topospread.service.refusals import refusals
from topospread.spread.scoring import MAX_NODE_SCORE
from topospread.spread.verdicts import (
    FITS,
    LABEL_MISSING,
    REASON_UNKNOWN_NODE,
    TOO_SKEWED,
    UNKNOWN_NODE,
    Code,
    Status,
)

if TYPE_CHECKING:
    from topospread.index.changes import ReservationRow
    from topospread.kube.objects import Node
    from topospread.service.asks import Ask
    from topospread.service.cycle import Cycle
    from topospread.service.engine import Engine
    from topospread.service.holding import Holding
    from topospread.service.wanted import Held, Refusal, Wanted
    from topospread.service.write import Traced

HIGHEST: Final = 10
"""What the best node scores: upstream's MaxExtenderPriority."""

_PER_POINT: Final = MAX_NODE_SCORE // HIGHEST
"""Of the plugin's points, those that make one of the extender's."""


Describe = Callable[[Sequence[str]], "Sequence[Node]"]
"""From names of nodes to what these are like."""

_JUDGED_ELSE: Final = Preference(Fit.SPREAD_ONLY)
"""The scheduler has judged everything else."""


@dataclass(slots=True, eq=False)
class Judged:
    """What became of the candidates.

    Attributes:
        cycle: the judgement.
        status: Success; Skip without hard constraints; Error when one does not parse.
        fit: names of the nodes that pass, in the caller's order.
        refused: why others do not, by name, where removing pods might help.
        unresolvable: the same where it would not.
        unknown: how many nodes are not in the state.
        held: what place mode holds; None when nothing was asked for.
    """

    cycle: Cycle
    status: Status
    fit: Sequence[str]
    refused: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    unknown: int = 0
    held: Held | None = None


def filter_candidates(
    engine: Engine, ask: Ask, names: Sequence[str], describe: Describe | None = None
) -> Judged:
    """Judge a scheduler's candidates.

    Args:
        engine: makes the cycle.
        ask: about the pod.
        names: of the candidates.
        describe: tells what nodes are like that are not in the state; they are then judged as if
            they had joined it, without pods.

    Raises:
        As Engine.begin; InvalidRequest for nodes that cannot be read.
    """
    cycle = engine.begin(ask).cycle
    started = engine.clock()
    strangers = 0
    if cycle.pre_filter_status.code is Code.SUCCESS:
        cycle, strangers = _joined(cycle, names, describe)
    judged = judge(cycle, names)
    judged.unknown = judged.unknown or strangers
    ask.stages.filter = engine.clock() - started
    return judged


def _joined(cycle: Cycle, names: Sequence[str], describe: Describe | None) -> tuple[Cycle, int]:
    """The cycle where described nodes have joined that the state lacks, and how many these are."""
    view = cycle.view
    if describe is None:
        return cycle, 0
    strangers = [name for name in dict.fromkeys(names) if view.snapshot.slot(name) < 0]
    if not strangers:
        return cycle, 0
    changes = Supposition(joined=describe(strangers))
    snapshot, _ = supposed(view.snapshot, changes, cycle.judgeable.groups)
    return replace(cycle, view=replace(view, snapshot=snapshot)), len(strangers)


def judge(cycle: Cycle, names: Sequence[str]) -> Judged:
    """Judge nodes by name; without hard constraints all pass, known or not."""
    status = cycle.pre_filter_status
    if status.code is Code.ERROR:
        return Judged(cycle, status, ())
    if status.code is Code.SKIP:
        return Judged(cycle, status, names)
    snapshot = cycle.view.snapshot
    slots = snapshot.nodes.slots(names)
    # An extra last entry answers for slot −1.
    verdicts = np.append(cycle.verdicts, np.uint8(UNKNOWN_NODE))[slots]
    if not verdicts.any():
        return Judged(cycle, status, names)
    judged = Judged(cycle, status, list(compress(names, (verdicts == FITS).tolist())))
    for verdict, told in ((TOO_SKEWED, judged.refused), (LABEL_MISSING, judged.unresolvable)):
        here = verdicts == verdict
        if here.any():
            texts = refusals(cycle.states, snapshot, slots[here])
            told.update(zip(compress(names, here.tolist()), texts, strict=True))
    strangers = list(compress(names, (slots < 0).tolist()))
    judged.unknown = len(strangers)
    judged.unresolvable.update(dict.fromkeys(strangers, _unknown(cycle.cluster)))
    return judged


def place_candidate(
    holding: Holding, wanted: Wanted, names: Sequence[str], traced: Traced
) -> Judged:
    """Hold the best of a scheduler's candidates for the pod, and answer that one alone.

    Without hard constraints nothing is held, and the answer is that of filter_candidates: where a
    pod goes then is for the scheduler to weigh.

    Raises:
        As Holding.hold.
    """
    ask = wanted.ask
    judged = filter_candidates(holding.engine, ask, names)
    if judged.status.code is not Code.SUCCESS:
        return judged
    ask.nodes = NodeChoice(names=tuple(dict.fromkeys(names)))
    cycle = judged.cycle

    def choice(newest: Cycle, held: ReservationRow | None) -> str | Refusal:
        nonlocal cycle
        cycle = newest
        return choose(newest, wanted.demand, _JUDGED_ELSE, held, ask.nodes)

    held = holding.hold(wanted, choice, traced)
    if not held.node:
        judged = judge(cycle, names)
        judged.held = held
        return judged
    if held.node not in names:
        text = f"the pod is bound to {held.node}, which is none of the nodes of the request"
        raise InvalidPod.at("spec.nodeName", text, bad_value=held.node)
    return Judged(cycle, judged.status, [held.node], held=held)


def prioritize(
    engine: Engine, ask: Ask, names: Sequence[str], describe: Describe | None = None
) -> list[int]:
    """[names] 0 (worst) to 10 (best) for each candidate; all 0 when nothing tells them apart.

    Args:
        engine: makes the cycle.
        ask: about the pod.
        names: of the candidates.
        describe: as for filter_candidates; without it nodes that are not in the state score 0.

    Raises:
        As Engine.begin; InvalidRequest when a constraint does not parse, or a node cannot be read.
    """
    cycle = engine.begin(ask).cycle
    if cycle.judgeable.pre_score.code is Code.SUCCESS:
        cycle, _ = _joined(cycle, names, describe)
    status = cycle.pre_score_status
    if status.code is Code.ERROR:
        raise InvalidPod.at("spec.topologySpreadConstraints", status.reasons[0])
    slots = cycle.view.snapshot.nodes.slots(names)
    points = np.zeros(slots.size, dtype=np.int64)
    known = slots >= 0
    if status.code is Code.SUCCESS and known.any():
        started = engine.clock()
        normalized = cycle.scores(slots[known]).normalized
        points[known] = (normalized + _PER_POINT // 2) // _PER_POINT
        ask.stages.score = engine.clock() - started
    found: list[int] = points.tolist()
    return found


def _unknown(cluster: str) -> str:
    return f"{REASON_UNKNOWN_NODE}: cluster {cluster!r} has not been told of it"
