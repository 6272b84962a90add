"""What is told of the domains of one constraint, as one array for each thing that is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.kube.objects import Toleration
from topospread.service.explaining.findings import Exclusion, Minimum
from topospread.service.fit import CORDONED_TAINT
from topospread.spread.scoring import soft_counts
from topospread.spread.topology import Eligibility

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.objects import SpreadConstraint
    from topospread.service.explaining.case import Case
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Bools, Domains, Ints, Membership

CORDON_TOLERATED: Final = Toleration(
    key=CORDONED_TAINT.key, operator="Exists", effect=CORDONED_TAINT.effect
)


@dataclass(frozen=True, slots=True)
class Told:
    """A constraint that is told of.

    Attributes:
        constraint: as it is judged.
        spec: as it was written.
        index: its place in the pod's list.
        position: its place among the hard ones; None for a soft one.
    """

    constraint: Constraint
    spec: SpreadConstraint
    index: int
    position: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """[domains] each: see DomainFinding.

    Attributes:
        values: of the topology key; no node may have some of them any more.
        excluded, refused: by reason.
        lowest: whether an eligible domain has the fewest pods.
        scores: nodes with a score, their lowest and their highest; None without any.
        least: the fewest pods of an eligible domain; 0 without one.
        minimum: the global minimum.
        because: why it is that.
    """

    values: Sequence[str]
    pods: Ints
    reserved: Ints
    not_counted: Ints
    nodes: Ints
    eligible: Ints
    excluded: Sequence[tuple[Exclusion, Ints]]
    refused: Sequence[tuple[str, Ints]]
    usable: Ints
    fitting: Ints
    skew: Ints
    lowest: Bools
    allowed: Bools
    scores: tuple[Ints, Ints, Ints] | None
    least: int
    minimum: int
    because: Minimum


def columns_of(case: Case, told: Told) -> Columns:
    """The columns of a constraint."""
    constraint, snapshot = told.constraint, case.snapshot
    by_domain = _ByDomain(snapshot.domains(constraint.topology_key))
    membership = snapshot.membership(constraint.eligibility, constraint.topology_key)
    pods, reserved, not_counted = _pods(case, told, by_domain)
    refused = {id(mask): by_domain.nodes(mask) for _, mask in case.refusals}
    least, because = _minimum(told, membership, pods)
    minimum = least if because is Minimum.LOWEST else 0
    hard = told.position is not None
    return Columns(
        values=by_domain.domains.values,
        pods=pods,
        reserved=reserved,
        not_counted=not_counted,
        nodes=by_domain.nodes(snapshot.alive),
        eligible=membership.nodes,
        excluded=[(why, by_domain.nodes(mask)) for why, mask in _excluded(case, constraint)],
        refused=[(why, refused[id(mask)]) for why, mask in case.refusals],
        usable=by_domain.nodes(case.usable),
        fitting=by_domain.nodes(case.fitting),
        skew=pods + int(constraint.self_match) - minimum,
        lowest=membership.present & (pods == least),
        allowed=_allowed(case, told, pods),
        scores=None if hard else _scores(case, by_domain),
        least=least,
        minimum=minimum,
        because=because,
    )


class _ByDomain:
    """Adds up over the nodes of each domain."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.size = len(domains.values)
        self._there = domains.ids >= 0

    def nodes(self, mask: Bools) -> Ints:
        """[domains] how many nodes are in the mask."""
        ids = self.domains.ids[mask & self._there]
        return np.bincount(ids, minlength=self.size).astype(np.int64)

    def sum(self, values: Ints, mask: Bools) -> Ints:
        """[domains] the sum over the nodes in the mask."""
        chosen = mask & self._there
        ids = self.domains.ids[chosen]
        return np.bincount(ids, weights=values[chosen], minlength=self.size).astype(np.int64)


def _minimum(told: Told, membership: Membership, pods: Ints) -> tuple[int, Minimum]:
    """The fewest pods of an eligible domain, and whether that is the global minimum."""
    if not membership.size:
        return 0, Minimum.NO_DOMAINS
    least = int(pods[membership.present].min())
    if told.position is not None and membership.size < told.constraint.min_domains:
        return least, Minimum.FEW_DOMAINS
    return least, Minimum.LOWEST


def _allowed(case: Case, told: Told, pods: Ints) -> Bools:
    if told.position is None:
        return np.ones(pods.size, dtype=np.bool_)
    return ~case.states[told.position].rejected


def _pods(case: Case, told: Told, by_domain: _ByDomain) -> tuple[Ints, Ints, Ints]:
    """Matching pods of each domain: counted, reserved of those, and on nodes not counted."""
    constraint, position, snapshot = told.constraint, told.position, case.snapshot
    nothing = np.zeros(by_domain.size, dtype=np.int64)
    if constraint.group.counts_nothing:
        return (nothing if position is None else case.states[position].counts), nothing, nothing
    everywhere = snapshot.node_counts(constraint.group).astype(np.int64)
    total = by_domain.sum(everywhere, snapshot.alive)
    counted_on = snapshot.mask(constraint.eligibility)
    if position is not None:
        key = constraint.topology_key
        counted = snapshot.domain_counts(constraint.group, constraint.eligibility, key)
        pods = case.states[position].counts
    elif constraint.is_hostname:
        counted = pods = total  # whatever the policies say (upstream fact 29)
        counted_on = snapshot.alive
    else:
        pods = soft_counts(constraint, snapshot, case.constraints.require_all_keys)
        counted = np.minimum(pods, total)
    held = by_domain.sum(case.reserved(constraint.group), counted_on)
    return pods, held, total - counted


def _excluded(case: Case, constraint: Constraint) -> Iterator[tuple[Exclusion, Bools]]:
    """[slots] nodes that have the key and are not counted, by the first reason."""
    snapshot, eligibility = case.snapshot, constraint.eligibility
    left = snapshot.alive & (snapshot.domains(constraint.topology_key).ids >= 0)
    parts = [(Exclusion.KEY_MISSING, Eligibility(keys=eligibility.keys))]
    if eligibility.requirements is not None:
        parts.append((Exclusion.AFFINITY, Eligibility(requirements=eligibility.requirements)))
    for reason, part in parts:
        mask = snapshot.mask(part)
        yield reason, left & ~mask
        left = left & mask
    if eligibility.tolerations is None:
        return
    compares = eligibility.comparison_operators
    tolerant = Eligibility(
        tolerations=(*eligibility.tolerations, CORDON_TOLERATED), comparison_operators=compares
    )
    strict = Eligibility(tolerations=eligibility.tolerations, comparison_operators=compares)
    yield Exclusion.CORDONED, left & snapshot.mask(tolerant) & ~snapshot.mask(strict)
    yield Exclusion.TAINTED, left & ~snapshot.mask(tolerant)


def _scores(case: Case, by_domain: _ByDomain) -> tuple[Ints, Ints, Ints] | None:
    """[domains] nodes with a score, their lowest and their highest."""
    scored = case.normalized
    if scored is None:
        return None
    slots, scores = scored
    ids = by_domain.domains.ids[slots]
    there = ids >= 0
    size = by_domain.size
    low, high = np.full(size, 101, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    np.minimum.at(low, ids[there], scores[there])
    np.maximum.at(high, ids[there], scores[there])
    return np.bincount(ids[there], minlength=size), low, high
