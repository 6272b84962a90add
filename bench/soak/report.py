"""The report of a soak, and whether it passed."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from bench.soak.callers import CallStatistics
from bench.soak.reference_replica import LogSummary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.soak.reference_replica import IndexComparison


PARTS: Final = 12
"""Parts that a run is divided into when its samples are shown."""


@dataclass(frozen=True, slots=True)
class GrowthBound:
    """A bound on how much more the last quarter may have than the second one.

    Attributes:
        share: of the second quarter's level,
        more: and so much beside it, in the unit of the samples.
    """

    share: float
    more: float

    def most(self, level: float) -> float:
        """The most that the last quarter may have."""
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
    bound: GrowthBound
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
            raise ValueError(f"{self.name}: {count} samples make no quarters")
        return statistics.median(self.samples[count * number // 4 : count * (number + 1) // 4])

    @property
    def steady(self) -> float:
        """The level after the warm-up: the second quarter's."""
        return self.quarter(1)

    @property
    def last(self) -> float:
        """The last quarter's level."""
        return self.quarter(3)

    @property
    def flat(self) -> bool:
        """Whether the last quarter's level is within the bound."""
        return self.last <= self.bound.most(self.steady)

    @property
    def growth(self) -> str:
        """The growth of the level, and the growth that is allowed."""
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


MEMORY: Final = GrowthBound(share=0.05, more=10.0)
STORE: Final = GrowthBound(share=0.10, more=16.0)


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The memory of a server, and the numbers of what it keeps of a cluster.

    Attributes:
        groups: selectors whose counts it keeps.
        label_sets: different label sets of counted pods.
        resident: MB of memory.
    """

    groups: int
    label_sets: int
    resident: float


@dataclass(slots=True)
class SoakReport:
    """The report of a soak.

    Attributes:
        began: changes that made the cluster.
        changes: of the day.
        seconds: that the day took, without the comparisons.
        useless: changes that were stale, or of objects that do not exist.
        memory: MB of the server, minute by minute.
        stored: MB of the store, segment by segment; without samples where it cannot be measured.
        kept: by the server, segment by segment.
        compared: the followed index beside one made anew.
        overdue: places that were still held when all stood still, long after their time.
        asked: answers that were compared with those of a server that was started just then,
        unlike: and the questions that both answered differently.
        left: what the server keeps at the end, long after the last call.
        anew: what a server keeps that is started at the end and was asked nothing.
    """

    began: int = 0
    changes: int = 0
    seconds: float = 0.0
    without_effect: Counter[str] = field(default_factory=Counter)
    memory: Levels = field(default_factory=lambda: Levels("the server's memory", "MB", MEMORY))
    stored: Levels = field(default_factory=lambda: Levels("the store", "MB", STORE))
    kept: list[CacheSizes] = field(default_factory=list)
    compared: list[IndexComparison] = field(default_factory=list)
    expired_reservations: int = 0
    asked: int = 0
    differing: list[str] = field(default_factory=list)
    calls: CallStatistics = field(default_factory=CallStatistics)
    recorded: LogSummary = field(default_factory=lambda: LogSummary(0, 0, 0, ""))
    left: CacheSizes = field(default_factory=lambda: CacheSizes(0, 0, 0.0))
    fresh: CacheSizes = field(default_factory=lambda: CacheSizes(0, 0, 0.0))

    def broken(self) -> Iterator[str]:
        """The violations, a line each."""
        for levels in (self.memory, self.stored):
            if levels.samples and not levels.flat:
                yield levels.growth
        for each in self.compared:
            for line in each.differing:
                yield f"index at revision {each.revision}: {line}"
        for question in self.differing:
            yield f"a server that was started just then answers otherwise: {question}"
        if self.expired_reservations:
            yield f"{self.expired_reservations} places are held though their time is over"
        if self.left.label_sets != self.fresh.label_sets:
            yield (
                f"{self.left.label_sets} label sets are kept at the end, by a fresh server "
                f"{self.fresh.label_sets}"
            )
        if self.left.groups:
            yield f"{self.left.groups} selectors are kept though they are no longer used"
        recorded = self.recorded
        if recorded.gap:
            yield f"revisions: {recorded.gap}"
        elif recorded.revisions != recorded.head:
            yield f"revisions: {recorded.revisions} were recorded, the head is {recorded.head}"
        elif recorded.changes < self.began + self.changes:
            yield (f"{self.began + self.changes} changes were written, {recorded.changes} recorded")
        for error, count in self.calls.failed.items():
            yield f"{count} calls failed with {error}: {'; '.join(self.calls.messages)}"
        for outcome, count in self.without_effect.items():
            yield f"{count} changes came to nothing: {outcome}"

    def plain(self) -> dict[str, Any]:
        """The figures by name."""
        memory, recorded = self.memory, self.recorded
        return {
            "broken": list(self.broken()),
            "changes": self.changes,
            "changesBefore": self.began,
            "seconds": round(self.seconds, 1),
            "changesPerSecond": round(self.changes / self.seconds),
            "revisions": recorded.revisions,
            "recordedChanges": recorded.changes,
            "memoryMegabytes": _levels(memory),
            "freshMegabytes": round(self.fresh.resident, 1),
            "storeMegabytes": _levels(self.stored) if self.stored.samples else None,
            "groupsAtEnd": self.left.groups,
            "labelSetsAtEnd": self.left.label_sets,
            "labelSetsOfFreshServer": self.fresh.label_sets,
            "comparedAnswers": self.asked,
            "conflicts": self.calls.conflicts,
            "failed": self.calls.failed.total(),
            "calls": {name: _call(seconds) for name, seconds in self.calls.seconds.items()},
            "comparedIndexes": [_compared(each) for each in self.compared],
            "parts": self._parts(),
        }

    def _parts(self) -> list[dict[str, float]]:
        """The memory of the server and the store in each part of the run."""
        columns = {
            "memoryMegabytes": parts(self.memory.samples),
            "storeMegabytes": parts(self.stored.samples),
            "groups": parts([each.groups for each in self.kept]),
            "labelSets": parts([each.label_sets for each in self.kept]),
        }
        known = {name: column for name, column in columns.items() if column}
        return [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]


def _levels(levels: Levels) -> dict[str, Any]:
    return {
        "secondQuarter": round(levels.steady, 1),
        "lastQuarter": round(levels.last, 1),
        "most": round(levels.bound.most(levels.steady), 1),
    }


def _compared(each: IndexComparison) -> dict[str, int]:
    return {
        "revision": each.revision,
        "nodes": each.nodes,
        "pods": each.pods,
        "labelSets": each.label_sets,
        "groups": each.groups,
        "differences": len(each.differing),
    }


def _call(seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "p50Milliseconds": round(ordered[len(ordered) // 2] * 1e3, 2),
        "p99Milliseconds": round(ordered[int(len(ordered) * 0.99)] * 1e3, 2),
    }
