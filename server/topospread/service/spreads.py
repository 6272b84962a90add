"""How a constraint sees a cluster: its domains, counts and skew, at one state or at two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.service.pre_filter import domain_counts
from topospread.spread.filtering import pre_filter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.service.simulate import Simulation
    from topospread.spread.constraints import Constraint, PodConstraints
    from topospread.spread.topology import Topology

SHOWN: Final = 100
"""Domains that an answer names for a constraint, and constraints that it has."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Matching pods of one constraint at one state.

    Attributes:
        counts: by value of the topology key, for each domain with an eligible node.
        skew: pods of the fullest domain above the global minimum, which is 0 when there are fewer
            domains than minDomains.
    """

    counts: Mapping[str, int]
    skew: int


@dataclass(frozen=True, slots=True)
class SpreadChange:
    """One constraint before and after.

    Attributes:
        batch: whose pods have it.
        domains: (value, before, after), those that changed first, at most SHOWN; None where no
            eligible node is.
    """

    batch: int
    constraint: Constraint
    before: Spread
    after: Spread
    domains: Sequence[tuple[str, int | None, int | None]]


def spread(constraint: Constraint, topology: Topology) -> Spread:
    """How a constraint sees a state that counts its group."""
    (state,) = pre_filter((constraint,), topology)
    present = topology.membership(constraint.eligibility, constraint.topology_key).present
    fullest = int(state.counts[present].max()) if np.any(present) else 0
    counts = dict(domain_counts(state, topology))
    return Spread(counts, fullest - state.global_minimum)


def spread_changes(simulation: Simulation) -> list[SpreadChange]:
    """What a simulation does to the constraints of its pods, in order, hard ones first.

    Each constraint once, for the first pods that have it; at most SHOWN.
    """
    first: dict[Constraint, int] = {}
    for number, batch in enumerate(simulation.batches):
        judgeable = batch.shape.judgeable(batch.rules, simulation.before)
        for constraint in both(judgeable.constraints):
            first.setdefault(constraint, number)
    return [
        _change(number, constraint, simulation) for constraint, number in [*first.items()][:SHOWN]
    ]


def both(constraints: PodConstraints) -> Sequence[Constraint]:
    """The hard constraints of a pod and the soft ones."""
    return (*constraints.hard.constraints, *constraints.soft.constraints)


def _change(number: int, constraint: Constraint, simulation: Simulation) -> SpreadChange:
    before = spread(constraint, simulation.before)
    after = spread(constraint, simulation.after)
    values = sorted({*before.counts, *after.counts}, key=str.encode)
    pairs = [(value, before.counts.get(value), after.counts.get(value)) for value in values]
    pairs.sort(key=lambda pair: pair[1] == pair[2])
    return SpreadChange(number, constraint, before, after, pairs[:SHOWN])
