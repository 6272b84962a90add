"""What a bench is told: how large, how long, and whom to tell what is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from topospread.cli.bench.cluster import Size

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.cli.bench.figures import Figures


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure.

    Attributes:
        size: of the cluster, where a bench has only one.
        seconds: for each case in each round.
        rounds: how often each case has its turn.
        say: told what is under way.
        redis_server: a redis-server program; empty when there is none.
        ghz: a ghz program; empty when there is none.
        recorded: file of a recorded cluster that `planner` asks about; empty for one made up.
        only: cases of `decide` to measure; empty for all.
    """

    size: Size = field(default_factory=Size)
    seconds: float = 2.0
    rounds: int = 5
    say: Callable[[str], None] = lambda _: None
    redis_server: str = ""
    ghz: str = ""
    recorded: str = ""
    only: frozenset[str] = frozenset()


class Bench(Protocol):
    """One bench."""

    def __call__(self, plan: Plan) -> Figures:
        """Measure."""
        ...
