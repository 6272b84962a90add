"""Why a pod may not go to a node, in words that name the domain.

They begin with upstream's reason and go on to say what it follows from. kube-scheduler counts equal
messages and joins them on the pod, so a message speaks of a domain and not of a node, and where
domains are many, of none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.kube.fit_message import REASON_CONSTRAINTS_NOT_MATCH, REASON_LABEL_MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topospread.spread.filtering import DomainState
    from topospread.spread.topology import Domains, Topology

MOST_NAMED: Final = 64
"""Domains of one constraint that are named; past it all have one message."""


def refusals(
    states: Sequence[DomainState], topology: Topology, slots: NDArray[np.intp]
) -> list[str]:
    """[slots] what refuses each node: the first constraint that does, as Filter has it.

    Args:
        states: the hard constraints.
        topology: the state.
        slots: of nodes, each of which is refused.
    """
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
    """What is said of some domains; −1 stands for nodes without the label."""
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
    """What the criterion compares with; without commas, which join messages."""
    terms = f"maxSkew {state.constraint.max_skew}"
    if state.eligible_domains < state.constraint.min_domains:
        terms += f"; minDomains {state.constraint.min_domains} of which there are "
        terms += f"{state.eligible_domains}"
    return terms
