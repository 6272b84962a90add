"""Why there is no plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.service.rebalancing.program import NoTimeLeft, Program, solve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.index.snapshot import Snapshot
    from topospread.service.rebalancing.census import Knot
    from topospread.service.rebalancing.modelling import Model


def why_never(
    knot: Knot, model: Model, snapshot: Snapshot, left: Mapping[int, int] | None, seconds: float
) -> str:
    """Which bound stands in the way: the first without which there is a solution."""
    if left is not None and _solvable(model.program(), seconds):
        return "too few evictions are allowed on a node"
    if _solvable(model.program(everybody=True), seconds):
        stays = sum(bool(mover.stays) for mover in model.movers)
        return f"{stays} of its {len(model.movers)} pods may not be evicted"
    if _solvable(model.program(everybody=True, anywhere=True), seconds):
        return (
            "the domains that lack pods have no node that its pods may go to "
            "(affinity, taints, cordoned)"
        )
    for limit in knot.limits:
        size = snapshot.membership(limit.eligibility, limit.topology_key).size
        if size >= limit.min_domains:
            continue
        counts = snapshot.domain_counts(limit.group, limit.eligibility, limit.topology_key)
        pods = int(counts.sum())
        if pods > size * limit.max_skew:
            return (
                f"{limit.topology_key} has {size} eligible domains and minDomains is "
                f"{limit.min_domains}, so each may hold {limit.max_skew} of its {pods} pods: "
                f"{limit.min_domains - size} more domains are needed, or fewer pods"
            )
    if len(knot.limits) > 1:
        return "its constraints contradict each other, wherever its pods are"
    return "no way to place its pods fulfils it"


def _solvable(program: Program, seconds: float) -> bool:
    try:
        return solve(program, seconds) is not None
    except NoTimeLeft:
        return False
