"""What each field that grows costs a server, and whether that is within bounds.

The bounds are those of docs/api.md: a decision or a placement takes at most a quarter of a second
of processor time and 64 MiB, a refusal 20 ms, and every repeated field has a limit.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

import click

from bench.campaigns.campaign import MIB, Outcome, campaign, nodes_option, note, pods_option, run
from bench.campaigns.combined import COMBINED, combined_costs
from bench.campaigns.grown import DECISIONS, PLACEMENTS, PLANS, growths
from bench.campaigns.measured import AS_SHIPPED, Measured, load
from tests.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.campaigns.grown import Growth
    from bench.campaigns.measured import Cost

ACCEPTED = 0.250
"""Seconds of processor time that a decision or a placement may cost."""

REFUSED = 0.020
"""Seconds of processor time that a refused one may cost, and a refused plan."""

MEMORY = 64 * MIB
"""Bytes that any of them may take at most."""

ALIKE = ("PreFilter", "Filter", "Score")
"""What reads its request as EvaluatePod does."""

UNREAD = 40_000
"""Items past 64 KiB."""

SMALL, LARGE = 10, 1000
TRIES = 3
LINEAR = 3.0
"""Times the growth that a cost proportional to the items would have."""

NOISE = 0.015
"""Seconds that two calls of equal cost may differ by."""


def judged(
    measured: Measured, growth: Growth, *, slack: float = 1.0, closely: bool = True
) -> list[str]:
    """What is wrong with the costs of a field: nothing, or why, with its name.

    Args:
        measured: the server.
        growth: the field.
        slack: times the bounds of time.
        closely: look for the most that is accepted also beyond a thousand items, and at the costs
            of requests that are read like EvaluatePod's, too; of these their limit alone is tried
            otherwise.
    """
    found: list[str] = []
    costs: dict[int, Cost] = {}
    sizes = () if not closely and growth.verb in ALIKE else (SMALL, LARGE, growth.limit)
    for count in sizes:
        if count not in costs and not (costs and costs[max(costs)].refused):
            costs[count] = _tried(measured, growth, count, found, slack)
    largest = max((count for count, cost in costs.items() if not cost.refused), default=0)
    smallest_refused = min((count for count, cost in costs.items() if cost.refused), default=0)
    if largest and smallest_refused and (closely or smallest_refused <= LARGE):
        largest = _boundary(measured, growth, largest, smallest_refused)
        costs[largest] = _tried(measured, growth, largest, found, slack)
    if largest > SMALL and growth.verb in (*DECISIONS, *PLACEMENTS):
        few, many = costs[SMALL].cpu, costs[largest].cpu
        if many > LINEAR * few * largest / SMALL + slack * NOISE:
            found.append(f"{growth.name}: {SMALL} cost {few:.3f} s, {largest} {many:.3f} s")
    more = growth.of(growth.limit + 1, empty=True)
    over = _least(lambda: _call(measured, growth, more), slack * REFUSED)
    own = True
    if not _bounded(over):
        # What a decision does not look at may be passed over up to a size that costs nothing.
        more = growth.of(UNREAD, empty=True)
        over = _least(lambda: _call(measured, growth, more), slack * REFUSED)
        own = growth.path[-1].json_name in over.detail  # the bound of all fields is another
    if not own or not _bounded(over):
        found.append(f"{growth.name}: no limit: {growth.limit + 1} end with {over.code.name}")
    found += _beyond(growth, f"{growth.limit + 1}", over, slack)
    return found


def judged_together(measured: Measured, name: str, *, slack: float = 1.0) -> list[str]:
    """What is wrong with the costs of a combination: nothing, or why."""
    costs = combined_costs(measured, name, TRIES)
    best = min(costs, key=lambda cost: cost.cpu)
    bound = slack * (REFUSED if best.refused else ACCEPTED)
    peak = min(cost.peak for cost in costs)
    if best.cpu <= bound and peak <= MEMORY:
        return []
    return [f"{name}, {best.code.name}: {best.cpu:.3f} s, {peak / MIB:.0f} MiB {best.detail[:100]}"]


def _bounded(cost: Cost) -> bool:
    """Whether the call was refused for how much it asked, and not for anything else."""
    return cost.refused and ("at most" in cost.detail or "more than" in cost.detail)


def _tried(measured: Measured, growth: Growth, count: int, found: list[str], slack: float) -> Cost:
    attempts = itertools.count()
    cost = _least(
        lambda: _call(measured, growth, growth.of(count, attempt=next(attempts))),
        slack * REFUSED,
    )
    found += _beyond(growth, str(count), cost, slack)
    return cost


def _beyond(growth: Growth, count: str, cost: Cost, slack: float) -> list[str]:
    """Where a cost is beyond the bounds of its method."""
    line = f"{growth.name}: {count} items, {cost.code.name}: {cost.cpu:.3f} s, "
    line += f"{cost.peak / MIB:.0f} MiB {cost.detail[:100]}"
    decides = growth.verb in (*DECISIONS, *PLACEMENTS)
    if not decides and growth.verb not in PLANS:
        return []
    if cost.refused:
        return [line] if cost.cpu > slack * REFUSED else []
    slow = decides and cost.cpu > slack * ACCEPTED
    return [line] if slow or cost.peak > MEMORY else []


def _boundary(measured: Measured, growth: Growth, accepted: int, refused: int) -> int:
    """The most items that are accepted, about."""
    while refused - accepted > max(1, accepted // 20):
        middle = (accepted + refused) // 2
        if _call(measured, growth, growth.of(middle)).refused:
            refused = middle
        else:
            accepted = middle
    return accepted


def _least(call: Callable[[], Cost], enough: float) -> Cost:
    """The cheapest of some tries: whatever else the machine does only adds to a cost."""
    best = call()
    for _ in range(TRIES - 1):
        if best.cpu <= enough and best.peak <= MEMORY:
            break
        again = call()
        best = min(best, again, key=lambda cost: cost.cpu)
    return best


def _call(measured: Measured, growth: Growth, sent: bytes) -> Cost:
    match growth.verb:
        case "ReplaceObjects":
            return measured.send(growth.method, sent)
        case "WatchObjects" | "WatchConstraints":
            return measured.watch(growth.method, sent)
    return measured.call(growth.method, sent)


@campaign(
    "growth",
    nodes_option,
    pods_option,
    click.option("--only", default="", help="Methods whose name has this in it."),
    click.option("--slack", type=float, default=1.0, help="Times the bounds of time."),
)
def command(nodes: int, pods: int, only: str, slack: float) -> Outcome:
    """Grow every repeated field of every request, and look for costs beyond their bounds."""
    broken: list[str] = []
    tried = 0
    with ServerProcess("--http", "off", "--store", "memory:", **AS_SHIPPED) as server:
        measured = Measured(server.process.pid, server.address)
        load(measured, nodes, pods)
        before = measured.rss
        checks: dict[str, Callable[[], list[str]]] = {
            each.name: lambda each=each: judged(measured, each, slack=slack)  # type: ignore[misc]
            for each in growths()
        }
        checks |= {
            name: lambda name=name: judged_together(measured, name, slack=slack)  # type: ignore[misc]
            for name in COMBINED
        }
        for name, check in checks.items():
            if only in name:
                tried += 1
                for fault in check():
                    broken.append(fault)
                    note(fault)
        after = measured.rss
    figures = {
        "fields": tried,
        "beyond bounds": len(broken),
        "MiB before": before // MIB,
        "MiB after": after // MIB,
    }
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
