"""Advice on what a constraint says: its numbers, its policies, whether it is hard."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from topospread.kube.objects import HONOR, IGNORE, SCHEDULE_ANYWAY
from topospread.service.explaining.candidates import Candidate, called, exchanged
from topospread.service.explaining.findings import Change, ChangeKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.explaining.case import Case


def max_skew(case: Case, position: int) -> Iterator[Candidate]:
    """The smallest maxSkew that opens a usable domain."""
    constraint, state = case.hard[position], case.states[position]
    ids = case.snapshot.domains(constraint.topology_key).ids
    nodes = case.but_for(position) & (ids >= 0)
    if not nodes.any():
        return
    least = int(state.counts[ids[nodes]].min()) + int(constraint.self_match)
    skew = least - state.global_minimum
    if skew <= constraint.max_skew:
        return
    index, name = called(case, position)
    yield Candidate(
        exchanged(case, position, replace(constraint, max_skew=skew)),
        (Change(ChangeKind.MAX_SKEW, index, constraint.topology_key, number=skew),),
        f"maxSkew {skew} instead of {constraint.max_skew} in {name}",
    )


def min_domains(case: Case, position: int) -> Iterator[Candidate]:
    """As many domains as there are."""
    constraint, eligible = case.hard[position], case.states[position].eligible_domains
    if not 0 < eligible < constraint.min_domains:
        return
    index, name = called(case, position)
    yield Candidate(
        exchanged(case, position, replace(constraint, min_domains=eligible)),
        (Change(ChangeKind.MIN_DOMAINS, index, constraint.topology_key, number=eligible),),
        f"minDomains {eligible} instead of {constraint.min_domains} in {name}",
    )


def policies(case: Case, position: int) -> Iterator[Candidate]:
    """The other nodeTaintsPolicy, and the other nodeAffinityPolicy."""
    gates = case.rules.gates
    if not gates.node_inclusion_policy:
        return
    constraint = case.hard[position]
    index, name = called(case, position)
    eligibility, key = constraint.eligibility, constraint.topology_key
    honored = eligibility.tolerations is not None
    taints = replace(
        eligibility,
        tolerations=None if honored else case.pod.tolerations,
        comparison_operators=gates.taint_comparison_operators and not honored,
    )
    policy = IGNORE if honored else HONOR
    yield Candidate(
        exchanged(case, position, replace(constraint, eligibility=taints)),
        (Change(ChangeKind.TAINTS_POLICY, index, key, value=policy),),
        f"nodeTaintsPolicy: {policy} in {name}",
    )
    requirements = case.constraints.requirements
    if requirements.matches_all:
        return
    honored = eligibility.requirements is not None
    policy = IGNORE if honored else HONOR
    affinity = replace(eligibility, requirements=None if honored else requirements)
    yield Candidate(
        exchanged(case, position, replace(constraint, eligibility=affinity)),
        (Change(ChangeKind.AFFINITY_POLICY, index, key, value=policy),),
        f"nodeAffinityPolicy: {policy} in {name}",
    )


def soft(case: Case, position: int) -> Iterator[Candidate]:
    """The constraint as a wish; a pod may have one wish for a key."""
    key = case.hard[position].topology_key
    if any(spec.topology_key == key for _, spec in case.specs(hard=False)):
        return
    left = [c for other, c in enumerate(case.hard) if other != position]
    keys = tuple(dict.fromkeys(c.topology_key for c in left))
    index, name = called(case, position)
    yield Candidate(
        case.with_hard([replace(c, eligibility=replace(c.eligibility, keys=keys)) for c in left]),
        (Change(ChangeKind.SCHEDULE_ANYWAY, index, key, value=SCHEDULE_ANYWAY),),
        f"whenUnsatisfiable: {SCHEDULE_ANYWAY} in {name}",
    )


def all_skews(case: Case) -> Iterator[Candidate]:
    """All constraints wider at once, for the usable node that asks for the least."""
    slots = case.usable.copy()
    for constraint in case.hard:
        slots &= case.snapshot.domains(constraint.topology_key).ids >= 0
    if not slots.any():
        return
    nodes = np.flatnonzero(slots)
    excess = np.zeros(nodes.size, dtype=np.int64)
    skews = []
    for constraint, state in zip(case.hard, case.states, strict=True):
        ids = case.snapshot.domains(constraint.topology_key).ids[nodes]
        skew = state.counts[ids] + int(constraint.self_match) - state.global_minimum
        skews.append(skew)
        excess += np.maximum(skew - constraint.max_skew, 0)
    best = int(np.argmin(excess))
    changes, texts, constraints = [], [], list(case.hard)
    for position, (constraint, skew) in enumerate(zip(case.hard, skews, strict=True)):
        needed = int(skew[best])
        if needed > constraint.max_skew:
            index, name = called(case, position)
            constraints[position] = replace(constraint, max_skew=needed)
            key = constraint.topology_key
            changes.append(Change(ChangeKind.MAX_SKEW, index, key, number=needed))
            texts.append(f"maxSkew {needed} instead of {constraint.max_skew} in {name}")
    yield Candidate(case.with_hard(constraints), tuple(changes), " and ".join(texts))
