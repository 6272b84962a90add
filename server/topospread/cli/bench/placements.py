"""Places held by several servers at once, and whether each of them was allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.cli.bench.figures import Figures
from topospread.cli.bench.race.command import own_store, raced

if TYPE_CHECKING:
    from topospread.cli.bench.plan import Plan

CALLERS: Final = 8
SERVERS: Final = 2
NODES: Final = 60
NAMESPACES: Final = {"": 1, "_64_namespaces": 64}
PER_SECOND: Final = 500
"""Places a race is for, by the seconds that the plan gives a case."""


def measure(plan: Plan) -> Figures:
    """Race, in one namespace and in many."""
    figures = Figures()
    for number in range(plan.rounds):
        plan.say(f"placements: round {number + 1} of {plan.rounds}")
        for mark, namespaces in NAMESPACES.items():
            with own_store(plan.redis_server) as store:
                result = raced(
                    store,
                    None,
                    callers=CALLERS,
                    servers=SERVERS,
                    placements=max(CALLERS, round(plan.seconds * PER_SECOND)),
                    nodes=NODES,
                    namespaces=namespaces,
                    seed=number,
                    guarded=True,
                    kill_server=False,
                )
            plain = result.plain()
            figures.add(f"places_per_s{mark}", plain["placementsPerSecond"])
            figures.add(f"place_cpu_us{mark}", plain["serverCpuMicrosecondsPerPlacement"])
            figures.add(f"place_p50_ms{mark}", plain["p50Milliseconds"])
            figures.add(f"place_p99_ms{mark}", plain["p99Milliseconds"])
            figures.add(f"conflicts{mark}", plain["conflicts"])
            figures.add(f"breaches{mark}", plain["breaches"])
    return figures
