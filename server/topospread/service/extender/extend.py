"""Filter and prioritize for kube-scheduler's extender: verdicts and scores of its candidates.

The scheduler names the nodes that its own filters left over; counts come from the whole state, not
from these. Nodes that are not in the state are listed
separately from those that are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.errors import InvalidPod
from topospread.index.overlay import Overlay, apply_overlay
from topospread.service.decisions.pods import ShapedPod
from topospread.service.decisions.request import NodeSelection
from topospread.service.extender.assumed import counted_beside, in_one_domain, with_assumed
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.service.placement.place import choose
from topospread.spread.scoring import MAX_NODE_SCORE
from topospread.spread.verdicts import (
    FITS,
    LABEL_MISSING,
    REASON_CONSTRAINTS_NOT_MATCH,
    REASON_LABEL_MISSING,
    REASON_UNKNOWN_NODE,
    TOO_SKEWED,
    UNKNOWN_NODE,
    Code,
    Status,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topospread.index.changes import ReservationRow
    from topospread.kube.objects import Node
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.extender.assumed import AssumedPlaces, AssumedPods
    from topospread.service.placement.places import Places
    from topospread.service.placement.tasks import PlacementRequest, PlacementResult, Rejection
    from topospread.service.state.write import Traced
    from topospread.spread.filtering import DomainState
    from topospread.spread.topology import Domains, Topology


HIGHEST: Final = 10
"""What the best node scores: upstream's MaxExtenderPriority."""

_PER_POINT: Final = MAX_NODE_SCORE // HIGHEST
"""Of the plugin's points, those that make one of the extender's."""

Describe = Callable[[Sequence[str]], "Sequence[Node]"]
"""From names of nodes to what these are like."""

MOST_NAMED: Final = 64
"""Domains of one constraint that are named; past it all have one message."""


@dataclass(slots=True, eq=False)
class CandidateVerdicts:
    """The verdicts on a scheduler's candidates.

    Attributes:
        cycle: the judgement.
        status: Success; Skip without hard constraints; Error when one does not parse.
        fit: names of the nodes that pass, in the caller's order.
        refused: why others do not, by name, where removing pods might help.
        unresolvable: the same where it would not.
        unknown: how many nodes are not in the state.
        held: the result of place mode; None in other modes.
        in_burst: pods that its constraints count are on their way, and the state lacks them.
        seconds: that judging took.
    """

    cycle: Cycle
    status: Status
    fit: Sequence[str]
    refused: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    unknown: int = 0
    held: PlacementResult | None = None
    in_burst: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class CandidateScores:
    """The scores of a scheduler's candidates.

    Attributes:
        points: [names] 0 (worst) to 10 (best) for each; all 0 when they are equal.
        seconds: that scoring took.
    """

    points: list[int]
    seconds: float = 0.0


def filter_candidates(
    engine: Engine,
    request: DecisionRequest,
    names: Sequence[str],
    describe: Describe | None = None,
    before: AssumedPlaces = (),
) -> CandidateVerdicts:
    """Judge a scheduler's candidates.

    Args:
        engine: makes the cycle.
        request: about the pod.
        names: of the candidates.
        describe: returns the nodes that are not in the state; they are then judged as if
            they had joined it, without pods.
        before: pods that count beside those of the state, see AssumedPods.before().

    Raises:
        As Engine.new_cycle; InvalidRequest for nodes that cannot be read.
    """
    cycle = engine.new_cycle(request).cycle
    started = engine.clock()
    unknown_names, in_burst = 0, False
    if cycle.pre_filter_status.code is Code.SUCCESS:
        cycle, unknown_names = _joined(cycle, names, describe)
        beside = counted_beside(cycle, before)
        cycle, in_burst = with_assumed(cycle, beside), bool(beside)
    judged = judge_candidates(cycle, names)
    judged.in_burst = in_burst
    judged.unknown = judged.unknown or unknown_names
    judged.seconds = engine.clock() - started
    return judged


def filter_and_assume(
    engine: Engine,
    assumed: AssumedPods,
    request: DecisionRequest,
    names: Sequence[str],
    describe: Describe | None = None,
) -> CandidateVerdicts:
    """Judge a scheduler's candidates, beside the pods that were answered a moment ago.

    While there are any, the answer is one domain, and the pod is assumed to go there.

    Raises:
        As filter_candidates.
    """
    pod = request.pod
    assert isinstance(pod, ShapedPod), "who asks has interned it"
    before = assumed.before(engine.replicas.get(request.cluster), pod)
    judged = filter_candidates(engine, request, names, describe, before)
    if judged.status.code is not Code.SUCCESS or not judged.fit:
        return judged
    node = ""
    if judged.in_burst:
        judged.fit, node = in_one_domain(judged.cycle, judged.fit)
    assumed.answered(request.cluster, pod, node)
    return judged


def _joined(cycle: Cycle, names: Sequence[str], describe: Describe | None) -> tuple[Cycle, int]:
    """The cycle where described nodes have joined that the state lacks, and how many these are."""
    view = cycle.view
    if describe is None:
        return cycle, 0
    unknown_names = [name for name in dict.fromkeys(names) if view.snapshot.slot(name) < 0]
    if not unknown_names:
        return cycle, 0
    changes = Overlay(joined=describe(unknown_names))
    snapshot, _ = apply_overlay(view.snapshot, changes, cycle.effective.groups)
    return replace(cycle, view=replace(view, snapshot=snapshot)), len(unknown_names)


def judge_candidates(cycle: Cycle, names: Sequence[str]) -> CandidateVerdicts:
    """Judge nodes by name; without hard constraints all pass, known or not."""
    status = cycle.pre_filter_status
    if status.code is Code.ERROR:
        return CandidateVerdicts(cycle, status, ())
    if status.code is Code.SKIP:
        return CandidateVerdicts(cycle, status, names)
    snapshot = cycle.view.snapshot
    slots = snapshot.nodes.slots(names)
    # An extra last entry answers for slot −1.
    verdicts = np.append(cycle.verdicts, np.uint8(UNKNOWN_NODE))[slots]
    if not verdicts.any():
        return CandidateVerdicts(cycle, status, names)
    judged = CandidateVerdicts(cycle, status, list(compress(names, (verdicts == FITS).tolist())))
    for verdict, reasons in ((TOO_SKEWED, judged.refused), (LABEL_MISSING, judged.unresolvable)):
        here = verdicts == verdict
        if here.any():
            texts = rejection_messages(cycle.states, snapshot, slots[here])
            reasons.update(zip(compress(names, here.tolist()), texts, strict=True))
    unknown_names = list(compress(names, (slots < 0).tolist()))
    judged.unknown = len(unknown_names)
    judged.unresolvable.update(dict.fromkeys(unknown_names, _unknown(cycle.cluster)))
    return judged


def place_candidate(
    places: Places,
    placement: PlacementRequest,
    names: Sequence[str],
    traced: Traced,
) -> CandidateVerdicts:
    """Hold the best of a scheduler's candidates for the pod; the answer has that one alone.

    Without hard constraints nothing is held, and the answer is that of filter_candidates: where a
    pod goes then is for the scheduler to weigh.
    """
    cycle = places.engine.new_cycle(placement.decision).cycle
    status = cycle.pre_filter_status
    if status.code is not Code.SUCCESS:
        return judge_candidates(cycle, names)
    candidates = NodeSelection(names=tuple(dict.fromkeys(names)))

    def choice(newest: Cycle, held: ReservationRow | None) -> str | Rejection:
        nonlocal cycle
        cycle = newest
        suits = suited(newest.asked, Fit.SPREAD_ONLY)  # kube-scheduler asks the others
        return choose(newest, suits, held=held, choice=candidates)

    held = places.hold(placement, choice, traced)
    if not held.node:
        judged = judge_candidates(cycle, names)
        judged.held = held
        return judged
    if held.node not in names:
        text = f"the pod is bound to {held.node}, which is none of the nodes of the request"
        raise InvalidPod.at("spec.nodeName", text, bad_value=held.node)
    return CandidateVerdicts(cycle, status, [held.node], held=held)


def prioritize(
    engine: Engine, request: DecisionRequest, names: Sequence[str], describe: Describe | None = None
) -> CandidateScores:
    """Score a scheduler's candidates.

    Args:
        engine: makes the cycle.
        request: about the pod.
        names: of the candidates.
        describe: as for filter_candidates; without it nodes that are not in the state score 0.

    Raises:
        As Engine.new_cycle; InvalidRequest when a constraint does not parse, or a node cannot be
            read.
    """
    cycle = engine.new_cycle(request).cycle
    if cycle.effective.pre_score.code is Code.SUCCESS:
        cycle, _ = _joined(cycle, names, describe)
    status = cycle.pre_score_status
    if status.code is Code.ERROR:
        raise InvalidPod.at("spec.topologySpreadConstraints", status.reasons[0])
    slots = cycle.view.snapshot.nodes.slots(names)
    points, seconds = np.zeros(slots.size, dtype=np.int64), 0.0
    known = slots >= 0
    if status.code is Code.SUCCESS and known.any():
        started = engine.clock()
        normalized = cycle.scores(slots[known]).normalized
        points[known] = (normalized + _PER_POINT // 2) // _PER_POINT
        seconds = engine.clock() - started
    return CandidateScores(points.tolist(), seconds)


def _unknown(cluster: str) -> str:
    return f"{REASON_UNKNOWN_NODE}: not known in cluster {cluster!r}"


def rejection_messages(
    states: Sequence[DomainState], topology: Topology, slots: NDArray[np.intp]
) -> list[str]:
    """[slots] what refuses each node: the first constraint that does, as Filter has it."""
    found = np.full(slots.size, "", dtype=object)
    left = np.arange(slots.size)
    for state in states:
        domains = topology.domains(state.constraint.topology_key)
        ids = domains.ids[slots[left]]
        refused = np.append(state.rejected, True)[ids]  # −1, no label, picks the last
        which, positions = np.unique(ids[refused], return_inverse=True)
        found[left[refused]] = _texts(state, domains, which.tolist())[positions]
        left = left[~refused]
    texts: list[str] = found.tolist()
    return texts


def _texts(state: DomainState, domains: Domains, which: Sequence[int]) -> NDArray[np.object_]:
    """The messages for some domains; −1 stands for nodes without the label."""
    many = len(which) > MOST_NAMED
    texts = np.empty(len(which), dtype=object)
    for position, domain in enumerate(which):
        if domain < 0:
            texts[position] = _lacking(state)
        elif many:
            texts[position] = _too_many(state)
        else:
            texts[position] = _skewed(state, domain, domains.values[domain])
    return texts


def _lacking(state: DomainState) -> str:
    return f"{REASON_LABEL_MISSING}: {state.constraint.topology_key}"


def _skewed(state: DomainState, domain: int, value: str) -> str:
    held = int(state.counts[domain]) + int(state.constraint.self_match)
    pods = "pod" if held == 1 else "pods"
    return (
        f"{REASON_CONSTRAINTS_NOT_MATCH}: {state.constraint.topology_key}={value} would have "
        f"{held} matching {pods} where the fewest are {state.global_minimum} ({_terms(state)})"
    )


def _too_many(state: DomainState) -> str:
    return (
        f"{REASON_CONSTRAINTS_NOT_MATCH}: this node's {state.constraint.topology_key} would be too "
        f"far ahead of the fewest matching pods which are {state.global_minimum} ({_terms(state)})"
    )


def _terms(state: DomainState) -> str:
    """The right side of the criterion; without commas, which join messages."""
    terms = f"maxSkew {state.constraint.max_skew}"
    if state.eligible_domains < state.constraint.min_domains:
        terms += f"; minDomains {state.constraint.min_domains} of which there are "
        terms += f"{state.eligible_domains}"
    return terms
