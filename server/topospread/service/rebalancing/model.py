"""The integer program of dependent constraints: types of pods, classes of nodes, rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.codec.stored_pods import EvictionFacts, EvictionReader
from topospread.errors import CorruptValue
from topospread.service.fit.headroom import PLENTY, headroom_of
from topospread.service.fit.profile import gaps_of, suited
from topospread.service.fit.question import Fit, FitQuestion
from topospread.service.rebalancing.integer_program import (
    ConstraintRow,
    Counts,
    DomainVariables,
    IntegerProgram,
)
from topospread.service.rebalancing.inventory import skew

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.checkpoints import CooperativeYield
    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.service.rebalancing.inventory import (
        ConstraintComponent,
        InventoryPod,
        RebalanceQuestion,
        ShapedPods,
        SkewLimit,
    )
    from topospread.spread.topology import Bools

MAX_TIERS: Final = 8
"""Steps of priority and deletion cost that a search distinguishes."""

CLAIMS_UNKNOWN: Final = "with claims whose volumes are not in the state"
"""Why pods stay that a volume may hold where they are."""


class MovablePod(NamedTuple):
    """A pod that may be moved.

    Attributes:
        stays: why it may not be evicted; empty when it may.
        type, tier: in the program.
    """

    pod_class: ShapedPods
    member: InventoryPod
    facts: EvictionFacts
    slot: int
    stays: str
    type: int
    tier: int


@dataclass(slots=True, eq=False)
class RebalanceModel:
    """The pod types and node classes that an integer program is made of.

    Attributes:
        movable_pods: pods of the component on nodes that are there, also those that stay.
        classes: [slots] the class of each node; −1 where there is none.
        suits: [types, slots] nodes that a pod of the type may go to, spreading apart.
        demands: [types] of each.
        types: how many.
        tiers: how many.
    """

    movable_pods: list[MovablePod]
    classes: NDArray[np.int64]
    suits: Sequence[Bools]
    demands: Sequence[Demand]
    rows: list[ConstraintRow]
    types: int
    tiers: int

    @property
    def size(self) -> int:
        """The number of classes."""
        return int(self.classes.max(initial=-1)) + 1

    def program(
        self,
        *,
        left: Mapping[int, int] | None = None,
        snapshot: Snapshot | None = None,
    ) -> IntegerProgram:
        """Return the integer program.

        Args:
            left: evictions that are left by slot; None: any number.
            snapshot: bound what comes by the room there is; None: by nothing.
        """
        size = self.size
        movable = np.zeros((self.types, self.tiers, size), dtype=np.int64)
        by_slot: dict[tuple[int, int], int] = {}
        for pod in self.movable_pods:
            if not pod.stays:
                movable[pod.type, pod.tier, self.classes[pod.slot]] += 1
                here = (int(self.classes[pod.slot]), pod.slot)
                by_slot[here] = by_slot.get(here, 0) + 1
        headroom = np.zeros((self.types, size), dtype=np.int64)
        for number, suits in enumerate(self.suits):
            there = np.flatnonzero((self.classes >= 0) & suits)
            amount = np.full(there.size, PLENTY, dtype=np.int64)
            if snapshot is not None:
                amount = headroom_of(snapshot, self.demands[number])[there]
            np.add.at(headroom[number], self.classes[there], amount)
        leaving: Counts | None = None
        if left is not None:
            leaving = np.zeros(size, dtype=np.int64)
            for (number, slot), pods in by_slot.items():
                leaving[number] += min(pods, left.get(slot, 0))
        return IntegerProgram(movable, np.minimum(headroom, PLENTY), self.rows, leaving)


def build_model(
    component: ConstraintComponent,
    snapshot: Snapshot,
    question: RebalanceQuestion,
    stuck: Counter[str],
    gaps: set[str],
    turn: CooperativeYield,
) -> RebalanceModel:
    """Sort pods into types and nodes into classes.

    Args:
        component: the constraints and their pods.
        snapshot: the state.
        question: which pods may be evicted.
        stuck: why pods may not is counted here.
        gaps: what was not looked at is added here.
        turn: called for each pod.
    """
    limits = list(component.limits)
    movable_pods, suits, demands, tiers = _movable_pods(
        component, limits, snapshot, question, gaps, turn
    )
    for movable in movable_pods:
        if movable.stays:
            stuck[movable.stays] += 1
    classes = _classes(limits, movable_pods, suits, snapshot)
    types = len(suits)
    # Pods of one type match the same selectors.
    labels = {movable.type: movable.pod_class.shape.pod.labels for movable in movable_pods}
    matches = [
        [limit.group.selector.matches(labels[number]) for number in range(types)]
        for limit in limits
    ]
    rows = [
        _row(limit, meant, snapshot, classes, matches[number])
        for number, (limit, meant) in enumerate(component.limits.items())
    ]
    return RebalanceModel(movable_pods, classes, suits, demands, rows, types, tiers)


def _movable_pods(
    component: ConstraintComponent,
    limits: Sequence[SkewLimit],
    snapshot: Snapshot,
    question: RebalanceQuestion,
    gaps: set[str],
    turn: CooperativeYield,
) -> tuple[list[MovablePod], list[Bools], list[Demand], int]:
    found: list[tuple[ShapedPods, InventoryPod, EvictionFacts, int, str, int]] = []
    types: dict[object, int] = {}
    suits: list[Bools] = []
    demands: list[Demand] = []
    reader = EvictionReader()
    for pod_class in component.pod_classes:
        labels = pod_class.shape.pod.labels
        own = pod_class.effective.constraints.hard
        alike = (
            tuple(limit.group.selector.matches(labels) for limit in limits),
            own.keys,
            pod_class.effective.constraints.requirements,
            pod_class.shape.pod.tolerations,
            pod_class.shape.pod.scheduler_name,
        )
        for member in pod_class.members:
            turn()
            slot = snapshot.slot(member.node)
            if slot < 0:
                continue
            with suppress(CorruptValue):
                facts = reader.facts(member.payload)
                # Whom it could preempt is not looked at: it makes no other type.
                demand = replace(facts.demand, priority=0, preempts=True)
                key = (*alike, demand)
                number = types.setdefault(key, len(types))
                if number == len(suits):
                    asked = FitQuestion(
                        snapshot,
                        pod_class.shape.pod,
                        pod_class.effective.constraints.requirements,
                        demand,
                        pod_class.rules,
                    )
                    gaps.update(gaps_of(asked, Fit.ALL))
                    suits.append(_suits(asked, pod_class.effective.constraints.hard.keys))
                    demands.append(demand)
                stays = _stays(pod_class, facts, question, snapshot)
                found.append((pod_class, member, facts, slot, stays, number))
    steps = sorted({(f.priority, f.deletion_cost) for _, _, f, _, _, _ in found})
    tiers = min(len(steps), MAX_TIERS) or 1
    tier = {step: place * tiers // len(steps) for place, step in enumerate(steps)}
    movable_pods = [
        MovablePod(k, m, f, slot, stays, number, tier[f.priority, f.deletion_cost])
        for k, m, f, slot, stays, number in found
    ]
    return movable_pods, suits, demands, tiers


def _stays(
    pod_class: ShapedPods, facts: EvictionFacts, question: RebalanceQuestion, snapshot: Snapshot
) -> str:
    filters, protected = question.message.filters, question.protected
    if facts.owner == "DaemonSet":
        return "of a DaemonSet"
    if facts.owner == "Node":
        return "static pods"
    if not facts.owner and not filters.evict_bare_pods:
        return "without a controller"
    if facts.priority >= question.threshold:
        return "of too high a priority"
    if facts.claims and filters.protect_pods_with_pvc:
        return "with a persistent volume claim"
    if protected is not None and protected.matches(pod_class.shape.pod.labels):
        return "with labels to keep"
    if facts.claims and not filters.evict_pods_with_unknown_volumes:
        objects, namespace = snapshot.objects, pod_class.shape.pod.namespace
        claims = [
            objects.claim(namespace, each.claim) for each in facts.demand.volumes if each.claim
        ]
        if any(each is None or objects.volume(each.volume_name) is None for each in claims):
            return CLAIMS_UNKNOWN
    return ""


def _suits(asked: FitQuestion, keys: Sequence[str]) -> Bools:
    """[slots] nodes that a replacement may go to, whatever the counts and the room."""
    snapshot = asked.snapshot
    suits = suited(asked, Fit.NODE).nodes
    for key in keys:
        suits = suits & (snapshot.domains(key).ids >= 0)
    there: Bools = suits & snapshot.alive
    return there


def _classes(
    limits: Sequence[SkewLimit],
    movable_pods: Sequence[MovablePod],
    suits: Sequence[Bools],
    snapshot: Snapshot,
) -> NDArray[np.int64]:
    """[slots] nodes that are equal for constraints and pods have one number.

    Where each node is a domain of its own, nodes with different numbers of pods are not equal.
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
        for movable in movable_pods:
            key = (movable.type, movable.tier, bool(movable.stays))
            column = by_type.get(key)
            if column is None:
                column = by_type[key] = np.zeros(snapshot.alive.size, dtype=np.int64)
            column[movable.slot] += 1
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
    limit: SkewLimit,
    meant: bool,
    snapshot: Snapshot,
    classes: NDArray[np.int64],
    matches: Sequence[bool],
) -> ConstraintRow:
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
    return ConstraintRow(
        # A constraint outside the request must not get worse.
        max_skew=limit.max_skew if meant else max(limit.max_skew, skew(limit, snapshot)),
        floats=membership.size >= limit.min_domains,
        matches=matches,
        counted=counted.tolist(),
        domains=[
            DomainVariables(
                classes=np.unique(classes[slots]).tolist(),
                domains=len(slots) if domains.unique else 1,
                pods=int(counts[slots].sum()),
            )
            for slots in sorted(parts.values(), key=lambda slots: int(classes[slots].min()))
        ],
    )
