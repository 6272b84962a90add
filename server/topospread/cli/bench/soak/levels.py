"""What must not grow, sampled over a run, and whether it did."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS: Final = 12
"""Into how many parts a run is divided when its samples are shown."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How much more the last quarter may have than the second one.

    Attributes:
        share: of the second quarter's level,
        more: and so much beside it, in the unit of the samples.
    """

    share: float
    more: float

    def most(self, level: float) -> float:
        """What the last quarter may have."""
        return level * (1 + self.share) + self.more


@dataclass(slots=True)
class Levels:
    """Samples of one thing at even steps of a run.

    The first quarter warms up: caches fill, the log reaches its length. Then the level ought to
    stay. The middle of a quarter's samples is its level, so that a peak makes none.

    Attributes:
        name, unit: what is sampled.
        bound: on its growth.
    """

    name: str
    unit: str
    bound: Bound
    samples: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        """Note the next sample."""
        self.samples.append(value)

    def quarter(self, number: int) -> float:
        """The level of a quarter, 0 to 3.

        Raises:
            ValueError: fewer than four samples.
        """
        count = len(self.samples)
        if count < 4:
            raise ValueError(f"{self.name}: {count} samples tell nothing about quarters")
        return statistics.median(self.samples[count * number // 4 : count * (number + 1) // 4])

    @property
    def steady(self) -> float:
        """The level when all was warm: the second quarter's."""
        return self.quarter(1)

    @property
    def last(self) -> float:
        """The last quarter's level."""
        return self.quarter(3)

    @property
    def flat(self) -> bool:
        """Whether the last quarter's is within the bound."""
        return self.last <= self.bound.most(self.steady)

    @property
    def growth(self) -> str:
        """How much the level grew, and how much it might."""
        most = self.bound.most(self.steady)
        return (
            f"{self.name}: {self.steady:.1f} {self.unit} in the second quarter, {self.last:.1f} in "
            f"the last one, where at most {most:.1f} are allowed"
        )


def parts(samples: Sequence[float]) -> list[float]:
    """The middle of the samples in each of some equal parts of the run, for people to look at."""
    count = len(samples)
    cuts = [count * number // PARTS for number in range(PARTS + 1)]
    return [
        round(statistics.median(samples[first:last]), 1)
        for first, last in pairwise(cuts)
        if first < last
    ]
