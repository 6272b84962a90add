"""PreScore, Score and NormalizeScore: where a pod should go (KEP-895).

The raw score of a node is the lower, the better::

    round( Σ over soft constraints:  matching pods in the node's domain · ln(domains + 2) + maxSkew
    − 1 )

"domains" are the distinct values among the nodes that passed Filter; for the hostname key they are
those nodes themselves, and pods are counted on the node alone. Sources: upstream facts 26–32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topospread.spread.topology import Bools, Eligibility, Ints, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.spread.constraints import Constraint

MAX_NODE_SCORE: Final = 100

INVALID_SCORE: Final = -1
"""Upstream's mark of an ignored node; a node that scores so by itself is taken for one."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of the candidates.

    Attributes:
        raw: [candidates] upstream's score; 0 where ignored.
        normalized: [candidates] 0 to 100, the higher the better; 0 where ignored.
    """

    raw: Ints
    normalized: Ints


def score(
    constraints: Sequence[Constraint],
    topology: Topology,
    candidates: NDArray[np.intp],
    *,
    require_all_keys: bool,
) -> Scores:
    """Score the candidates.

    Args:
        constraints: the soft ones, in the pod's order; at least one.
        topology: the state.
        candidates: slots of the nodes that passed Filter, at least one, each alive.
        require_all_keys: ignore candidates that lack one of the keys.
    """
    ignored = ignored_nodes(constraints, topology, candidates, require_all_keys=require_all_keys)
    total = np.zeros(candidates.size, dtype=np.float64)
    # Added up in the constraints' order: floating-point sums depend on it.
    for constraint in constraints:
        total += _contribution(constraint, topology, candidates, ignored, require_all_keys)
    raw = round_half_away(total)
    raw[ignored] = 0
    return Scores(raw, normalize(raw, ignored))


def ignored_nodes(
    constraints: Sequence[Constraint],
    topology: Topology,
    candidates: NDArray[np.intp],
    *,
    require_all_keys: bool,
) -> Bools:
    """[candidates] those that scoring passes over, for they lack a key (upstream fact 27)."""
    if not require_all_keys:
        return np.zeros(candidates.size, dtype=np.bool_)
    keys = tuple(dict.fromkeys(c.topology_key for c in constraints))
    return ~topology.mask(Eligibility(keys=keys))[candidates]


def weight_of(
    constraint: Constraint, topology: Topology, candidates: NDArray[np.intp], ignored: Bools
) -> float:
    """The factor of a constraint's counts: the more domains, the greater (upstream fact 28)."""
    if constraint.is_hostname:
        return math.log(int(candidates.size - np.count_nonzero(ignored)) + 2)
    seen = topology.domains(constraint.topology_key).ids[candidates][~ignored]
    return math.log(_distinct(seen, topology, constraint.topology_key) + 2)


def _contribution(
    constraint: Constraint,
    topology: Topology,
    candidates: NDArray[np.intp],
    ignored: Bools,
    require_all_keys: bool,
) -> Floats:
    """[candidates] what one constraint adds; nothing where the label is missing."""
    nothing = constraint.counts_nothing
    ids = topology.domains(constraint.topology_key).ids[candidates]
    weight = weight_of(constraint, topology, candidates, ignored)
    if constraint.is_hostname:
        # Per node, whatever the label's value, and honouring no policy (upstream fact 29).
        if nothing:
            counts: NDArray[np.int32] | Ints = np.zeros(candidates.size, dtype=np.int64)
        else:
            counts = topology.node_counts(constraint.group)[candidates]
        added: Floats = counts.astype(np.float64) * weight + float(constraint.max_skew - 1)
        added[ids < 0] = 0.0
        return added
    size = len(topology.domains(constraint.topology_key).values)
    table = np.zeros(size + 1, dtype=np.float64)  # the last entry is picked by −1: no label
    if not nothing:
        table[:-1] = soft_counts(constraint, topology, require_all_keys) * weight
    table[:-1] += float(constraint.max_skew - 1)
    return table[ids]


def _distinct(ids: NDArray[np.int32], topology: Topology, key: str) -> int:
    """Distinct values; a missing label counts as the value "" (upstream fact 26)."""
    domains = topology.domains(key)
    seen = np.zeros(len(domains.values) + 1, dtype=np.bool_)
    seen[ids] = True
    distinct = int(np.count_nonzero(seen))
    if seen[-1] and (blank := domains.number.get("")) is not None and seen[blank]:
        distinct -= 1
    return distinct


def soft_counts(constraint: Constraint, topology: Topology, require_all_keys: bool) -> Ints:
    """[domains] matching pods by which a domain of any key but the hostname is scored."""
    key = constraint.topology_key
    counts = topology.domain_counts(constraint.group, constraint.eligibility, key)
    domains = topology.domains(key)
    blank = domains.number.get("")
    if require_all_keys or blank is None:
        return counts
    # Where keys may be missing, pods on nodes without the label are counted under "".
    lacking = (domains.ids < 0) & topology.mask(constraint.eligibility)
    counts = counts.copy()
    counts[blank] += int(topology.node_counts(constraint.group)[lacking].sum())
    return counts


def round_half_away(values: Floats) -> Ints:
    """Go's math.Round: halves go away from zero; Python's and NumPy's go to the even side."""
    whole = np.trunc(values)
    up = np.abs(values - whole) >= 0.5
    return (whole + np.copysign(up.astype(np.float64), values)).astype(np.int64)


def normalize(raw: Ints, ignored: Bools) -> Ints:
    """Turn "lower is better" into 0 … 100, as upstream's integer arithmetic does.

    The best node gets 100 and the worst 100·min/max; when the largest score is 0 all get 100.
    Ignored nodes get 0 and take no part in minimum and maximum. What lies outside 0 … 100, which
    only a maxSkew below 1 can cause and upstream's framework refuses, is cut to it.
    """
    counted = raw[~ignored]
    if counted.size == 0:
        return np.zeros(raw.size, dtype=np.int64)
    highest = max(int(counted.max()), 0)  # upstream's maximum starts at 0
    if highest == 0:
        normalized = np.full(raw.size, MAX_NODE_SCORE, dtype=np.int64)
    else:
        scaled = MAX_NODE_SCORE * (highest + int(counted.min()) - raw)
        # Go's division truncates towards zero; the difference shows only for negative numbers.
        normalized = np.sign(scaled) * (np.abs(scaled) // highest)
    normalized[ignored | (raw == INVALID_SCORE)] = 0
    return np.clip(normalized, 0, MAX_NODE_SCORE)
