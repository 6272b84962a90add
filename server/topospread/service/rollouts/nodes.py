"""What the nodes of a cluster are to the pods of a rollout: alike, or roomy in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from topospread.index.snapshot import PODS
from topospread.service.fit.headroom import headroom_of
from topospread.service.fit.inter_pod_affinity import own_terms
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from topospread.index.changes import PodRow
    from topospread.index.snapshot import Snapshot
    from topospread.service.decisions.cycle import Cycle
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Ints


def alike(cycle: Cycle, rows: Iterable[PodRow]) -> NDArray[np.intp]:
    """[slots + 1] equal numbers for nodes that are alike to a pod; the last is no node.

    Args:
        cycle: the pod, at a state.
        rows: of all pods that come and go; none are alike where these hold more than amounts.
    """
    snapshot, demand = cycle.view.snapshot, cycle.demand
    capacity = snapshot.nodes.capacity
    holds = any(row.holds is not None for row in rows)
    if holds or demand.has_terms or demand.volumes or demand.resource_claims:
        return np.arange(capacity + 1)
    columns: list[NDArray[Any]] = [
        suited(cycle.asked, Fit.ALL).nodes,
        suited(cycle.asked, Fit.NODE).nodes,
        snapshot.alive,
    ]
    for constraint in cycle.constraints.hard.constraints:
        ids = snapshot.domains(constraint.topology_key).ids
        columns.append(ids >= 0 if _is_single(snapshot, constraint.topology_key) else ids)
        columns.append(snapshot.mask(constraint.eligibility))
        if not constraint.counts_nothing:
            columns.append(snapshot.node_counts(constraint.group))
    columns += [
        snapshot.nodes.allocatable(name) - snapshot.usage.taken(name, capacity)
        for name in (PODS, *(name for name, _ in demand.requests))
    ]
    table = np.stack([each.astype(np.int64) for each in columns], axis=1)
    _, numbers = np.unique(table, axis=0, return_inverse=True)
    return np.append(numbers.reshape(-1), capacity)


def is_roomy(cycle: Cycle, replicas: int) -> bool:
    """Whether so many new pods find places whatever goes first, beside all that run.

    So they do where each domain of one hard constraint has room for all of them, on nodes that are
    domains of their own, and empty, to all else that spreads or parts them: the domain with the
    fewest pods is always open.
    """
    demand, hard = cycle.demand, cycle.constraints.hard.constraints
    if demand.affinity or demand.volumes or demand.resource_claims:
        return False
    if cycle.pre_filter_status.code is Code.ERROR:
        return False
    snapshot = cycle.view.snapshot
    free = headroom_of(snapshot, demand)
    free = np.where(suited(cycle.asked, Fit.ALL).nodes & snapshot.alive, free, 0)
    apart = own_terms(demand, snapshot.objects).apart
    if apart:
        if not all(_is_single(snapshot, key) for key, _ in apart):
            return False
        free = np.minimum(free, 1)
    if not hard:
        return bool(free.sum() >= replicas)
    return any(_is_roomy(snapshot, each, hard, free, replicas) for each in hard)


def _is_roomy(
    snapshot: Snapshot, constraint: Constraint, hard: Iterable[Constraint], free: Ints, least: int
) -> bool:
    for other in hard:
        if other is constraint:
            continue
        key = other.topology_key
        if not _is_single(snapshot, key):
            return False
        empty = snapshot.domains(key).ids >= 0
        if not other.counts_nothing:
            empty = empty & (snapshot.node_counts(other.group) == 0)
        free = np.where(empty, np.minimum(free, 1), 0)
    domains = snapshot.domains(constraint.topology_key)
    counted = snapshot.membership(constraint.eligibility, constraint.topology_key).present
    inside = domains.ids >= 0
    capacity = np.zeros(len(domains.values), dtype=np.int64)
    np.add.at(capacity, domains.ids[inside], free[inside])
    enough = int(np.count_nonzero(counted)) >= (constraint.min_domains or 1)
    return enough and bool((capacity[counted] >= least).all())


def _is_single(snapshot: Snapshot, key: str) -> bool:
    """Whether each node that has a key is a domain of its own."""
    ids = snapshot.domains(key).ids
    inside = ids[ids >= 0]
    return bool(np.unique(inside).size == inside.size)
