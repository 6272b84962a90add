"""Pods that wait for the room that preemption makes for them: ``status.nominatedNodeName``.

A node with such pods of equal or higher priority is asked twice, as upstream does: as if they ran
there, then without them. It has to fit both times, and the first refusal is the answer. Each node
is asked for its own nominated pods alone. Filters that look at one node are asked with all of them
in one changed state; those that look at domains have a way of their own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.service.fit.question import Refusals, spread_rules
from topospread.spread.filtering import pre_filter, verdicts_with_own
from topospread.spread.verdicts import FITS
from topospread.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.index.changes import PodRow
    from topospread.index.snapshot import Snapshot
    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools, Ints

MOST: Final = 256
"""Nominated pods that a question looks at, in some milliseconds: there are as many as preemptions
under way.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Nominated:
    """The nominated pods that a pod gives way to.

    Attributes:
        pods: (slot, namespace, what it would be there) of each.
        marks: [slots] whether any is there.
        snapshot: the state if all of them ran, in which no groups are right.
    """

    pods: Sequence[tuple[int, str, PodRow]]
    marks: Bools
    snapshot: Snapshot

    def only_theirs(self, found: Refusals | None) -> Refusals | None:
        """What is refused of their nodes; None for nothing."""
        if found is None:
            return None
        nodes = found.nodes & self.marks
        if not nodes.any():
            return None
        return Refusals(nodes, lambda: (rule.within(self.marks) for rule in found.rules()))


def nominated_pods(asked: FitQuestion) -> Nominated | None:
    """The pods of equal or higher priority on nodes that are there; None without any."""
    snapshot, own = asked.snapshot, f"{asked.pod.namespace}/{asked.name}"
    pods: list[tuple[int, str, PodRow]] = []
    for key, row in islice(snapshot.nominated.items(), MOST):
        priority = 0 if row.holds is None else row.holds.priority
        slot = snapshot.slot(row.node_name)
        if priority < asked.demand.priority or slot < 0 or key == own:
            continue
        # What is held for a pod counts in any case.
        if snapshot.reservations.get(key) is None:
            pods.append((slot, key.partition("/")[0], row))
    if not pods:
        return None
    by_namespace: dict[str, list[tuple[PodRow, int]]] = defaultdict(list)
    for _, namespace, row in pods:
        by_namespace[namespace].append((row, 1))
    marks = snapshot.nodes.marks(slot for slot, _, _ in pods)
    for namespace, rows in by_namespace.items():
        snapshot = snapshot.adjusted(namespace, rows, ())
    return Nominated(pods, marks, snapshot)


def gaps(asked: FitQuestion) -> Iterator[str]:
    """How many nominated pods are not looked at."""
    if (more := len(asked.snapshot.nominated) - MOST) > 0:
        yield f"{counted(more, 'more pod')} with a nominated node"


def spread_refusals(asked: FitQuestion, nominated: Nominated) -> Refusals | None:
    """Their nodes that the hard constraints refuse if they run there."""
    if not asked.hard:
        return None
    snapshot = asked.snapshot
    slots = np.flatnonzero(nominated.marks)
    position = np.zeros(snapshot.alive.size, dtype=np.intp)
    position[slots] = np.arange(slots.size)
    states = pre_filter(asked.hard, snapshot)
    own: list[Ints] = []
    for state in states:
        group, added = state.constraint.group, np.zeros(slots.size, dtype=np.int64)
        for slot, namespace, row in nominated.pods:
            # As with what-ifs, an empty selector is taken at its word (upstream fact 2).
            if namespace == group.namespace and group.selector.matches(dict(row.labels)):
                added[position[slot]] += 1
        own.append(added)
    verdicts = np.zeros(snapshot.alive.size, dtype=np.uint8)
    verdicts[slots] = verdicts_with_own(states, snapshot, slots, own)
    refused = verdicts != FITS
    return Refusals(refused, lambda: spread_rules(verdicts)) if refused.any() else None
