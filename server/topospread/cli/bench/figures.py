"""Figures: several samples of one thing, told as their median and their spread."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Figures:
    """What a bench found.

    Attributes:
        samples: by the figure's name, one for each round.
        missing: names of figures that cannot be measured here, and why.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Note one sample."""
        self.samples.setdefault(name, []).append(value)

    def lack(self, names: Iterable[str], reason: str) -> None:
        """Note what cannot be measured."""
        self.missing.update(dict.fromkeys(names, reason))

    def median(self, name: str) -> float | None:
        """The median of a figure; None without samples."""
        samples = self.samples.get(name)
        return statistics.median(samples) if samples else None

    def plain(self) -> dict[str, Any]:
        """For JSON: medians by name, then the lowest and highest sample of each."""
        medians: dict[str, Any] = {name: rounded(self.median(name)) for name in self.samples}
        medians.update(dict.fromkeys(self.missing))
        spread = {name: [rounded(min(s)), rounded(max(s))] for name, s in self.samples.items()}
        return {**medians, "spread": spread, "missing": self.missing}


def rounded(value: float | None) -> float | None:
    """Four digits that matter."""
    return None if value is None else float(f"{value:.4g}")
