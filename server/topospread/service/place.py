"""PlacePod: choose the best node for a pod and hold it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.kube.fit_message import error_message, fit_message
from topospread.service.evaluate import matching
from topospread.service.fit import Fit, Refused, suited
from topospread.service.selection import distinct
from topospread.service.wanted import Held, Refusal, Wanted
from topospread.spread.verdicts import (
    FITS,
    LABEL_MISSING,
    TOO_SKEWED,
    UNKNOWN_NODE,
    VERDICTS,
    Code,
    Status,
)

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.service.asks import NodeChoice
    from topospread.service.cycle import Cycle
    from topospread.service.holding import Holding
    from topospread.service.write import Traced
    from topospread.spread.topology import Ints

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


@dataclass(frozen=True, slots=True)
class Preference:
    """What decides beside the state.

    Attributes:
        fit: how much is asked beside spreading; None for what suits the candidates.
        seed: orders equal nodes, so that callers spread apart.
    """

    fit: Fit | None = None
    seed: str = ""


def place(holding: Holding, wanted: Wanted, preference: Preference, traced: Traced) -> Held:
    """Hold the best node for a pod; the one that is held for it already, if that still fits.

    Raises:
        As Holding.hold; InvalidRequest and NodeTableChanged for the candidates.
    """
    fit = preference.fit
    if fit is None:
        # Whoever names candidates has filtered them.
        fit = Fit.NODE_AND_RESOURCES if wanted.ask.nodes is None else Fit.SPREAD_ONLY

    def choice(cycle: Cycle, held: ReservationRow | None) -> str | Refusal:
        return choose(
            cycle, wanted.demand, Preference(fit, preference.seed), held, wanted.ask.nodes
        )

    return holding.hold(wanted, choice, traced)


def choose(
    cycle: Cycle,
    demand: Demand,
    preference: Preference,
    held: ReservationRow | None = None,
    choice: NodeChoice | None = None,
) -> str | Refusal:
    """The best node for a pod, or why none; the one that is held for it, if that still fits.

    It follows from the arguments alone, so that whoever asks what PlacePod would do asks here.

    Args:
        cycle: the pod, judged at a state that does not count what is held for it.
        demand: what it takes.
        preference: fit and seed; without a fit all of it is asked.
        held: what is held for the pod.
        choice: the candidates; None for all nodes.

    Raises:
        InvalidRequest, NodeTableChanged: for the candidates.
    """
    status = cycle.pre_filter_status
    if status.code is Code.ERROR:
        return Refusal(status, error_message(status.reasons[0]))
    nodes = cycle.view.snapshot.nodes
    candidates = nodes.order if choice is None else distinct(nodes, choice).slots
    suits = suited(
        cycle.view.snapshot,
        cycle.pod,
        cycle.constraints.requirements,
        demand,
        preference.fit or Fit.NODE_AND_RESOURCES,
        comparison_operators=cycle.rules.gates.taint_comparison_operators,
    )
    there = candidates[candidates >= 0]
    suitable = there[suits.nodes[there]]
    fits = suitable[cycle.verdicts[suitable] == FITS]
    if held is not None and nodes.slot(held.node_name) in fits:
        # That another node would be better by now does not take it away.
        return held.node_name
    if not fits.size:
        refused = suits.reasons(there)
        _count(refused, VERDICTS[UNKNOWN_NODE], candidates.size - there.size)
        for verdict in (TOO_SKEWED, LABEL_MISSING):
            same = cycle.verdicts[suitable] == verdict
            _count(refused, VERDICTS[verdict], int(np.count_nonzero(same)))
        return _refusal(candidates.size, *refused)
    return nodes.names[int(fits[_best(cycle, fits, preference.seed)])]


def _best(cycle: Cycle, fits: NDArray[np.intp], seed: str) -> int:
    """Position of the best node.

    By score; then by matching pods in the hard constraints' domains, the fewest first; then by
    matching pods on the node; then by a hash of seed, pod and node.
    """
    left = np.arange(fits.size)
    if cycle.pre_score_status.code is Code.SUCCESS:
        left = _lowest(left, -cycle.scores(fits).normalized)
    left = _lowest(left, matching(cycle, fits))
    left = _lowest(left, _on_node(cycle, fits))
    if left.size == 1:
        return int(left[0])
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, cycle.pod.namespace, cycle.name):
        digest.update(part.encode() + b"\0")
    key = np.uint64(int.from_bytes(digest.digest(), "big"))
    mixed = (cycle.view.snapshot.nodes.hashes[fits[left]] ^ key) * _MIX
    mixed = (mixed ^ (mixed >> _SHIFT)) * _MIX
    return int(left[np.argmin(mixed)])


def _lowest(left: NDArray[np.intp], values: Ints) -> NDArray[np.intp]:
    here = values[left]
    lowest: NDArray[np.intp] = left[here == here.min()]
    return lowest


def _on_node(cycle: Cycle, fits: NDArray[np.intp]) -> Ints:
    """[fits] pods on each node that a constraint counts, once for each group."""
    total: Ints = np.zeros(fits.size, dtype=np.int64)
    for group in cycle.judgeable.groups:
        total += cycle.view.snapshot.node_counts(group)[fits]
    return total


def _count(refused: Refused, status: Status, nodes: int) -> None:
    if nodes:
        reasons, codes = refused
        reasons[status.reasons[0]] += nodes
        codes[status.code] += nodes


def _refusal(nodes: int, reasons: Counter[str], codes: Counter[Code]) -> Refusal:
    # To wait may help the pod if it may help on one node.
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    if not codes or Code.UNSCHEDULABLE in codes:
        code = Code.UNSCHEDULABLE
    ordered = tuple(reason for reason, _ in reasons.most_common())
    return Refusal(Status(code, ordered), fit_message(nodes, reasons))
