"""From dependent constraints to an integer program: types of pods, classes of nodes, rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.codec.movable import EvictionFacts, eviction_facts
from topospread.errors import CorruptValue
from topospread.index.usage import PODS
from topospread.kube.demands import NO_DEMAND
from topospread.service.fit import Fit, suited
from topospread.service.rebalancing.census import skew
from topospread.service.rebalancing.program import Counts, Domain, Program, Row

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.snapshot import Snapshot
    from topospread.service.rebalancing.asking import EvictionFilters
    from topospread.service.rebalancing.census import Kind, Knot, Limit, Member
    from topospread.service.turns import Turns
    from topospread.spread.topology import Bools

MAX_TIERS: Final = 8
"""Steps of priority and deletion cost that a search tells apart."""

PLENTY: Final = 1_000_000


class Mover(NamedTuple):
    """A pod that may be moved.

    Attributes:
        stays: why it may not be evicted; empty when it may.
        type, tier: in the program.
    """

    kind: Kind
    member: Member
    facts: EvictionFacts
    slot: int
    stays: str
    type: int
    tier: int


@dataclass(slots=True, eq=False)
class Model:
    """What a program was made of.

    Attributes:
        movers: pods of the knot on nodes that are there, also those that stay.
        classes: [slots] the class of each node; −1 where there is none.
        suits: [types, slots] nodes that a pod of the type may go to, spreading apart.
        requests: [types] what each takes of its node.
        types: how many.
        tiers: how many.
    """

    movers: list[Mover]
    classes: NDArray[np.int64]
    suits: Sequence[Bools]
    requests: Sequence[tuple[tuple[str, int], ...]]
    rows: list[Row]
    types: int
    tiers: int

    @property
    def size(self) -> int:
        """How many classes there are."""
        return int(self.classes.max(initial=-1)) + 1

    def program(
        self,
        *,
        left: Mapping[int, int] | None = None,
        everybody: bool = False,
        anywhere: bool = False,
        snapshot: Snapshot | None = None,
    ) -> Program:
        """The program, with more or fewer of its bounds.

        Args:
            left: evictions that are left by slot; None: any number.
            everybody: also pods that may not be evicted.
            anywhere: also nodes that do not suit.
            snapshot: bound what comes by the room there is; None: by nothing.
        """
        size = self.size
        movable = np.zeros((self.types, self.tiers, size), dtype=np.int64)
        by_slot: dict[tuple[int, int], int] = {}
        for mover in self.movers:
            if everybody or not mover.stays:
                movable[mover.type, mover.tier, self.classes[mover.slot]] += 1
                here = (int(self.classes[mover.slot]), mover.slot)
                by_slot[here] = by_slot.get(here, 0) + 1
        room = np.zeros((self.types, size), dtype=np.int64)
        for number, suits in enumerate(self.suits):
            there = np.flatnonzero((self.classes >= 0) & (True if anywhere else suits))
            amount = np.full(there.size, PLENTY, dtype=np.int64)
            if snapshot is not None:
                amount = _room(snapshot, self.requests[number])[there]
            np.add.at(room[number], self.classes[there], amount)
        leaving: Counts | None = None
        if left is not None:
            leaving = np.zeros(size, dtype=np.int64)
            for (number, slot), pods in by_slot.items():
                leaving[number] += min(pods, left.get(slot, 0))
        return Program(movable, np.minimum(room, PLENTY), self.rows, leaving)


def model(
    knot: Knot, snapshot: Snapshot, filters: EvictionFilters, stuck: Counter[str], turn: Turns
) -> Model:
    """Sort pods into types and nodes into classes.

    Args:
        knot: the constraints and their pods.
        snapshot: the state.
        filters: which pods may be evicted.
        stuck: why pods may not is counted here.
        turn: called for each pod.
    """
    limits = list(knot.limits)
    movers, suits, requests, tiers = _movers(knot, limits, snapshot, filters, turn)
    for mover in movers:
        if mover.stays:
            stuck[mover.stays] += 1
    classes = _classes(limits, movers, suits, snapshot)
    types = len(suits)
    # Pods of one type match the same selectors.
    labels = {mover.type: mover.kind.shape.pod.labels for mover in movers}
    matches = [
        [limit.group.selector.matches(labels[number]) for number in range(types)]
        for limit in limits
    ]
    rows = [
        _row(limit, meant, snapshot, classes, matches[number])
        for number, (limit, meant) in enumerate(knot.limits.items())
    ]
    return Model(movers, classes, suits, requests, rows, types, tiers)


def _movers(
    knot: Knot, limits: Sequence[Limit], snapshot: Snapshot, filters: EvictionFilters, turn: Turns
) -> tuple[list[Mover], list[Bools], list[tuple[tuple[str, int], ...]], int]:
    found: list[tuple[Kind, Member, EvictionFacts, int, str, int]] = []
    types: dict[object, int] = {}
    suits: list[Bools] = []
    requests: list[tuple[tuple[str, int], ...]] = []
    for kind in knot.kinds:
        labels = kind.shape.pod.labels
        own = kind.judgeable.constraints.hard
        alike = (
            tuple(limit.group.selector.matches(labels) for limit in limits),
            own.keys,
            kind.judgeable.constraints.requirements,
            kind.shape.pod.tolerations,
        )
        for member in kind.members:
            turn()
            slot = snapshot.slot(member.node)
            if slot < 0:
                continue
            with suppress(CorruptValue):
                facts = eviction_facts(member.payload)
                key = (*alike, facts.demand.requests)
                number = types.setdefault(key, len(types))
                if number == len(suits):
                    suits.append(_suits(kind, snapshot))
                    requests.append(facts.demand.requests)
                stays = _stays(kind, facts, filters)
                found.append((kind, member, facts, slot, stays, number))
    steps = sorted({(f.priority, f.deletion_cost) for _, _, f, _, _, _ in found})
    tiers = min(len(steps), MAX_TIERS) or 1
    tier = {step: place * tiers // len(steps) for place, step in enumerate(steps)}
    movers = [
        Mover(k, m, f, slot, stays, number, tier[f.priority, f.deletion_cost])
        for k, m, f, slot, stays, number in found
    ]
    return movers, suits, requests, tiers


def _stays(kind: Kind, facts: EvictionFacts, filters: EvictionFilters) -> str:
    if facts.owner == "DaemonSet":
        return "of a DaemonSet"
    if facts.owner == "Node":
        return "static pods"
    if not facts.owner and not filters.evict_bare_pods:
        return "without a controller"
    if facts.priority >= filters.priority_threshold:
        return "of too high a priority"
    if facts.claims and filters.protect_pods_with_pvc:
        return "with a persistent volume claim"
    protected = filters.protect_selector
    if protected is not None and protected.matches(kind.shape.pod.labels):
        return "with labels to keep"
    return ""


def _suits(kind: Kind, snapshot: Snapshot) -> Bools:
    """[slots] nodes that a replacement may go to, whatever the counts and the room."""
    constraints = kind.judgeable.constraints
    suits = suited(
        snapshot,
        kind.shape.pod,
        constraints.requirements,
        NO_DEMAND,
        Fit.NODE,
        comparison_operators=kind.rules.gates.taint_comparison_operators,
    ).nodes
    for key in constraints.hard.keys:
        suits = suits & (snapshot.domains(key).ids >= 0)
    there: Bools = suits & snapshot.alive
    return there


def _classes(
    limits: Sequence[Limit], movers: Sequence[Mover], suits: Sequence[Bools], snapshot: Snapshot
) -> NDArray[np.int64]:
    """[slots] nodes that neither constraints nor pods tell apart have one number.

    Where each node is a domain of its own, they are told apart by how many pods they hold.
    """
    columns: list[NDArray[np.int64]] = [each.astype(np.int64) for each in suits]
    alone = False
    for limit in limits:
        mask = snapshot.mask(limit.eligibility)
        domains = snapshot.domains(limit.topology_key)
        if domains.unique:
            alone = True
            counts = snapshot.node_counts(limit.group).astype(np.int64)
            columns.append(np.where(mask & (domains.ids >= 0), counts, -1))
        else:
            columns.append(np.where(mask, domains.ids, -1).astype(np.int64))
    if alone:
        by_type: dict[tuple[int, int, bool], NDArray[np.int64]] = {}
        for mover in movers:
            key = (mover.type, mover.tier, bool(mover.stays))
            column = by_type.get(key)
            if column is None:
                column = by_type[key] = np.zeros(snapshot.alive.size, dtype=np.int64)
            column[mover.slot] += 1
        columns += by_type.values()
    alive = np.flatnonzero(snapshot.alive)
    classes = np.full(snapshot.alive.size, -1, dtype=np.int64)
    if alive.size:
        table = np.stack([column[alive] for column in columns], axis=1)
        _, found = np.unique(table, axis=0, return_inverse=True)
        classes[alive] = found.reshape(-1)
        # Numbered by their first nodes' names: slots differ from one process to the next.
        in_order = classes[snapshot.nodes.order]
        _, first = np.unique(in_order, return_index=True)
        number = np.empty(first.size, dtype=np.int64)
        number[np.argsort(first)] = np.arange(first.size)
        classes[alive] = number[classes[alive]]
    return classes


def _row(
    limit: Limit,
    meant: bool,
    snapshot: Snapshot,
    classes: NDArray[np.int64],
    matches: Sequence[bool],
) -> Row:
    mask = snapshot.mask(limit.eligibility)
    domains = snapshot.domains(limit.topology_key)
    counts = snapshot.node_counts(limit.group)
    size = int(classes.max(initial=-1)) + 1
    counted = np.zeros(size, dtype=np.bool_)
    eligible = np.flatnonzero(mask & (domains.ids >= 0))
    counted[classes[eligible]] = True
    # Nodes of one domain, or, where each is a domain, those of one class.
    place = classes if domains.unique else domains.ids
    parts: dict[int, list[int]] = {}
    for slot in eligible.tolist():
        parts.setdefault(int(place[slot]), []).append(slot)
    membership = snapshot.membership(limit.eligibility, limit.topology_key)
    return Row(
        # What nobody asked to mend must not get worse.
        max_skew=limit.max_skew if meant else max(limit.max_skew, skew(limit, snapshot)),
        floats=membership.size >= limit.min_domains,
        matches=matches,
        counted=counted.tolist(),
        domains=[
            Domain(
                classes=np.unique(classes[slots]).tolist(),
                domains=len(slots) if domains.unique else 1,
                pods=int(counts[slots].sum()),
            )
            for slots in sorted(parts.values(), key=lambda slots: int(classes[slots].min()))
        ],
    )


def _room(snapshot: Snapshot, requests: Sequence[tuple[str, int]]) -> NDArray[np.int64]:
    """[slots] how many more such pods there is room for; nodes that say nothing have plenty."""
    nodes, usage = snapshot.nodes, snapshot.usage
    room = np.full(nodes.capacity, PLENTY, dtype=np.int64)
    for name, amount in ((PODS, 1), *requests):
        left = nodes.allocatable(name) - usage.taken(name, nodes.capacity)
        room = np.minimum(room, np.maximum(left, 0) // amount)
    return np.where(nodes.says_allocatable, room, PLENTY)
