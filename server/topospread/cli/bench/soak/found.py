"""What came of a soak, and whether all is well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.bench.soak.callers import Tally
from topospread.cli.bench.soak.levels import Bound, Levels, parts
from topospread.cli.bench.soak.witness import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.cli.bench.soak.witness import Compared

MEMORY: Final = Bound(share=0.05, more=10.0)
STORE: Final = Bound(share=0.10, more=16.0)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a server keeps of a cluster.

    Attributes:
        groups: selectors whose counts it keeps.
        label_sets: different label sets of counted pods.
        resident: MB of memory.
    """

    groups: int
    label_sets: int
    resident: float


@dataclass(slots=True)
class Found:
    """What came of a soak.

    Attributes:
        began: changes that made the cluster.
        changes: of the day.
        seconds: that the day took, without the comparisons.
        useless: changes that the server said are stale, or of objects that are not there.
        memory: MB of the server, minute by minute.
        stored: MB of the store, segment by segment; without samples where nobody can tell.
        kept: by the server, segment by segment.
        compared: the followed index beside one made anew.
        overdue: places that were still held when all stood still, long after their time.
        asked: answers that were compared with those of a server that was started just then,
        unlike: and the questions that both answered differently.
        left: what the server keeps at the end, when nobody has asked for long.
        anew: what a server keeps that is started at the end and was asked nothing.
    """

    began: int = 0
    changes: int = 0
    seconds: float = 0.0
    useless: Counter[str] = field(default_factory=Counter)
    memory: Levels = field(default_factory=lambda: Levels("the server's memory", "MB", MEMORY))
    stored: Levels = field(default_factory=lambda: Levels("the store", "MB", STORE))
    kept: list[Kept] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    overdue: int = 0
    asked: int = 0
    unlike: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    recorded: Recorded = field(default_factory=lambda: Recorded(0, 0, 0, ""))
    left: Kept = field(default_factory=lambda: Kept(0, 0, 0.0))
    anew: Kept = field(default_factory=lambda: Kept(0, 0, 0.0))

    def broken(self) -> Iterator[str]:
        """What is not as it should be, a line each."""
        for levels in (self.memory, self.stored):
            if levels.samples and not levels.flat:
                yield levels.growth
        for each in self.compared:
            for line in each.unlike:
                yield f"index at revision {each.revision}: {line}"
        for question in self.unlike:
            yield f"a server that was started just then answers otherwise: {question}"
        if self.overdue:
            yield f"{self.overdue} places are held though their time is over"
        if self.left.label_sets != self.anew.label_sets:
            yield (
                f"{self.left.label_sets} label sets are kept at the end, by a fresh server "
                f"{self.anew.label_sets}"
            )
        if self.left.groups:
            yield f"{self.left.groups} selectors are kept though nobody asks any more"
        recorded = self.recorded
        if recorded.gap:
            yield f"revisions: {recorded.gap}"
        elif recorded.revisions != recorded.head:
            yield f"revisions: {recorded.revisions} were recorded, the head is {recorded.head}"
        elif recorded.changes < self.began + self.changes:
            yield (f"{self.began + self.changes} changes were written, {recorded.changes} recorded")
        for error, count in self.tally.failed.items():
            yield f"{count} calls failed with {error}: {'; '.join(self.tally.said)}"
        for outcome, count in self.useless.items():
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
            "freshMegabytes": round(self.anew.resident, 1),
            "storeMegabytes": _levels(self.stored) if self.stored.samples else None,
            "groupsAtEnd": self.left.groups,
            "labelSetsAtEnd": self.left.label_sets,
            "labelSetsOfFreshServer": self.anew.label_sets,
            "comparedAnswers": self.asked,
            "conflicts": self.tally.conflicts,
            "failed": self.tally.failed.total(),
            "calls": {name: _call(seconds) for name, seconds in self.tally.seconds.items()},
            "comparedIndexes": [_compared(each) for each in self.compared],
            "parts": self._parts(),
        }

    def _parts(self) -> list[dict[str, float]]:
        """What the server and the store held in each part of the run."""
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


def _compared(each: Compared) -> dict[str, int]:
    return {
        "revision": each.revision,
        "nodes": each.nodes,
        "pods": each.pods,
        "labelSets": each.label_sets,
        "groups": each.groups,
        "differences": len(each.unlike),
    }


def _call(seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "p50Milliseconds": round(ordered[len(ordered) // 2] * 1e3, 2),
        "p99Milliseconds": round(ordered[int(len(ordered) * 0.99)] * 1e3, 2),
    }
