"""PreFilter and Filter: may a pod go to a node (KEP-895, KEP-3022).

The criterion, for every hard constraint::

    matching pods in the node's domain + (1 if the pod matches its own selector) − global minimum ≤
    maxSkew

The global minimum is the smallest count of a domain that has an eligible node, or 0 when there are
fewer such domains than minDomains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topospread.checkpoints import checkpoint
from topospread.spread.verdicts import FITS, LABEL_MISSING, TOO_SKEWED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.kube.objects import Pod
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import GroupKey, Ints, Topology

Verdicts = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class DomainState:
    """A hard constraint with its counts, frozen.

    Attributes:
        counts: [domains] matching pods on eligible nodes.
        eligible_domains: domains with at least one eligible node.
        global_minimum: as in the criterion.
        rejected: [domains] whether the criterion fails there.
    """

    constraint: Constraint
    counts: Ints
    eligible_domains: int
    global_minimum: int
    rejected: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PodMove:
    """A what-if of PreFilterExtensions: a pod that comes to a node, or leaves it."""

    pod: Pod
    slot: int
    delta: int


def pre_filter(
    constraints: Sequence[Constraint],
    topology: Topology,
    moves: Sequence[PodMove] = (),
) -> tuple[DomainState, ...]:
    """Count per domain for each hard constraint.

    Args:
        constraints: the hard ones, in the pod's order.
        topology: the state.
        moves: what-ifs; they ignore deletionTimestamp and may drive a count below 0 (upstream fact
            33).
    """
    moved = _Moves(moves) if moves else None
    return tuple(_domain_state(c, topology, moved) for c in constraints)


def _domain_state(constraint: Constraint, topology: Topology, moves: _Moves | None) -> DomainState:
    checkpoint()
    key, eligibility = constraint.topology_key, constraint.eligibility
    membership = topology.membership(eligibility, key)
    if constraint.counts_nothing:
        counts = np.zeros(membership.nodes.size, dtype=np.int64)
    else:
        counts = topology.domain_counts(constraint.group, eligibility, key)
    if moves is not None:
        counts = moves.added_to(counts, constraint, topology)
    minimum = 0
    if membership.size and membership.size >= constraint.min_domains:
        minimum = int(counts[membership.present].min())
    allowed = constraint.max_skew + minimum - int(constraint.self_match)
    return DomainState(constraint, counts, membership.size, minimum, counts > allowed)


class _Moves:
    """Pods that come and go; those with the same labels are matched once a selector."""

    def __init__(self, moves: Sequence[PodMove]) -> None:
        self._slots = np.array([move.slot for move in moves], dtype=np.intp)
        self._deltas = np.array([move.delta for move in moves], dtype=np.int64)
        kinds: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._kinds = np.array(
            [
                kinds.setdefault((m.pod.namespace, frozenset(m.pod.labels.items())), len(kinds))
                for m in moves
            ],
            dtype=np.intp,
        )
        self._labels = [(namespace, dict(labels)) for namespace, labels in kinds]
        self._matching: dict[GroupKey, NDArray[np.bool_]] = {}

    def added_to(self, counts: Ints, constraint: Constraint, topology: Topology) -> Ints:
        """The counts after the moves; only those on nodes that are counted at all matter."""
        counts = counts.copy()
        counted = (self._slots >= 0) & self._of(constraint.group)
        counted[counted] = topology.mask(constraint.eligibility)[self._slots[counted]]
        domains = topology.domains(constraint.topology_key).ids[self._slots[counted]]
        np.add.at(counts, domains, self._deltas[counted])
        return counts

    def _of(self, group: GroupKey) -> NDArray[np.bool_]:
        """[moves] whether the group counts the pod."""
        matching = self._matching.get(group)
        if matching is None:
            checkpoint()
            # Unlike counting, a move takes an empty selector at its word (upstream fact 2).
            matches = [
                namespace == group.namespace and group.selector.matches(labels)
                for namespace, labels in self._labels
            ]
            matching = self._matching[group] = np.array(matches, dtype=np.bool_)[self._kinds]
        return matching


def filter_nodes(states: Sequence[DomainState], topology: Topology) -> Verdicts:
    """[slots] the verdict on each node; slots without a node get any value.

    Constraints are judged in order and the first failure is the verdict, so a skew failure hides a
    later missing key (upstream fact 12). Nodes outside the affinity or taint policy are judged like
    all others (fact 10).
    """
    verdicts: Verdicts | None = None
    for state in states:
        # One entry a domain, and a last one that index −1 (no label) picks.
        table = np.empty(state.rejected.size + 1, dtype=np.uint8)
        table[:-1] = state.rejected  # FITS is 0 and TOO_SKEWED is 1
        table[-1] = LABEL_MISSING
        judged = table[topology.domains(state.constraint.topology_key).ids]
        if verdicts is None:
            verdicts = judged
        else:
            np.copyto(verdicts, judged, where=verdicts == FITS)
    if verdicts is None:
        return np.zeros(topology.alive.size, dtype=np.uint8)
    return verdicts


def first_rejecting(states: Sequence[DomainState], topology: Topology, slot: int) -> int:
    """Position of the constraint that decides the verdict on one node; −1 when the node fits."""
    for position, state in enumerate(states):
        domain = topology.domains(state.constraint.topology_key).ids[slot]
        if domain < 0 or state.rejected[domain]:
            return position
    return -1


def verdict_of(states: Sequence[DomainState], topology: Topology, slot: int) -> int:
    """The verdict on one node, without judging the others."""
    position = first_rejecting(states, topology, slot)
    if position < 0:
        return FITS
    ids = topology.domains(states[position].constraint.topology_key).ids
    return LABEL_MISSING if ids[slot] < 0 else TOO_SKEWED


def verdicts_with_own(
    states: Sequence[DomainState],
    topology: Topology,
    slots: NDArray[np.intp],
    own: Sequence[Ints],
) -> Verdicts:
    """[nodes] the verdict on each of some nodes, if more pods were on it alone.

    Args:
        states: without those pods.
        topology: the state.
        slots: [nodes] of the nodes, all alive.
        own: [nodes] for each constraint, how many of the node's pods it would count.
    """
    verdicts: Verdicts = np.zeros(slots.size, dtype=np.uint8)
    for state, added in zip(states, own, strict=True):
        constraint = state.constraint
        key, eligibility = constraint.topology_key, constraint.eligibility
        domains = topology.domains(key).ids[slots]
        counted = topology.mask(eligibility)[slots]
        before = state.counts[domains] if state.counts.size else np.zeros_like(added)
        counts = before + np.where(counted, added, 0)
        minimum = np.full(slots.size, state.global_minimum, dtype=np.int64)
        membership = topology.membership(eligibility, key)
        if membership.size and membership.size >= constraint.min_domains:
            present = state.counts[membership.present]
            if np.count_nonzero(present == state.global_minimum) == 1:
                # The only domain with the minimum may not have it any more.
                others = present[present > state.global_minimum]
                second = counts if not others.size else np.minimum(counts, others.min())
                lowest = membership.present[domains] & (before == state.global_minimum)
                minimum = np.where(lowest & (domains >= 0), second, minimum)
        rejected = counts + int(constraint.self_match) - minimum > constraint.max_skew
        judged = np.where(domains < 0, LABEL_MISSING, rejected.astype(np.uint8))
        np.copyto(verdicts, judged, where=verdicts == FITS, casting="unsafe")
    return verdicts
