"""Nodes that are one place to the constraints of a group, and what may go there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from topospread.index.snapshot import PODS
from topospread.service.fit.headroom import headroom_of
from topospread.service.rebalancing.inventory import skew_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.service.rebalancing.evictions import EvictionStep
    from topospread.service.rebalancing.inventory import SkewLimit
    from topospread.service.rebalancing.model import RebalanceModel
    from topospread.spread.topology import Bools, Ints


class CountedLimit:
    """What a constraint counts in a state.

    Attributes:
        ids: [slots] the domain of each node; −1 without one.
        counted: [slots] whether pods there count.
        present: [domains] those that take part in the minimum.
        counts: [domains] before the plan.
        zero: the minimum is 0, whatever they have.
    """

    def __init__(self, limit: SkewLimit, state: Snapshot) -> None:
        key, eligibility = limit.topology_key, limit.eligibility
        membership = state.membership(eligibility, key)
        self.limit = limit
        self.ids: Ints = state.domains(key).ids.astype(np.int64)
        self.counted: Bools = state.mask(eligibility) & (self.ids >= 0) & state.alive
        self.present: Bools = membership.present
        self.counts: Ints = state.domain_counts(limit.group, eligibility, key).astype(np.int64)
        self.zero = not membership.size or membership.size < limit.min_domains

    def minimum(self, counts: Ints) -> int:
        """The global minimum."""
        return 0 if self.zero else int(counts[self.present].min())

    def skew(self, counts: Ints) -> int:
        """As inventory.skew."""
        return int(counts.max()) - self.minimum(counts) if self.present.any() else 0


@dataclass(slots=True, eq=False)
class PodKind:
    """Pods that are alike to constraints and nodes.

    Attributes:
        number: of the kind.
        type: in the model.
        own: the limits that their own hard constraints set.
        matches: for each limit, whether they count.
        capacity: [places] how many find room for certain, wherever pods of other kinds are.
    """

    number: int
    type: int
    own: frozenset[int]
    matches: Sequence[bool]
    capacity: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def kinds_of(
    limits: Sequence[SkewLimit], model: RebalanceModel, steps: Sequence[EvictionStep]
) -> Sequence[PodKind]:
    """The kind of each step's pod."""
    numbers = {limit: number for number, limit in enumerate(limits)}
    found: dict[tuple[int, frozenset[int]], PodKind] = {}
    kinds = []
    for step in steps:
        movable = step.movable
        hard = movable.pod_class.effective.constraints.hard.constraints
        own = frozenset(numbers[each] for each in map(skew_limit, hard) if each in numbers)
        key = movable.type, own
        if key not in found:
            matches = [bool(row.matches[movable.type]) for row in model.rows]
            found[key] = PodKind(len(found), movable.type, own, matches)
        kinds.append(found[key])
    return kinds


class NodePlaces:
    """Nodes by what constraints and kinds of pods can tell apart, those that are alike together.

    Attributes:
        roles: [places] equal for places that may stand for one another, ascending.
        domains: for each limit, [places] the domain; −1 without one.
        counted: for each limit, [places] whether pods there count.
        reach: for each kind, [places] whether a pod may go there, counts and room apart.
    """

    def __init__(
        self,
        limits: Sequence[CountedLimit],
        steps: Sequence[tuple[PodKind, int]],
        model: RebalanceModel,
        state: Snapshot,
        spoiled: Sequence[Demand],
    ) -> None:
        self.limits = limits
        self.kinds = sorted({kind for kind, _ in steps}, key=lambda kind: kind.number)
        suits = [model.suits[kind.type] for kind in self.kinds]
        alive = np.flatnonzero(state.alive)
        columns = [each.ids for each in limits] + [each.counted for each in limits] + suits
        table = np.stack([np.asarray(each[alive], dtype=np.int64) for each in columns], axis=1)
        rows, of_node = np.unique(table, axis=0, return_inverse=True)
        roles = _roles(limits, steps, rows)
        order = np.argsort(roles, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        rows, many = rows[order], len(limits)
        self.roles: Ints = roles[order]
        self.domains: Sequence[Ints] = [rows[:, n] for n in range(many)]
        self.counted: Sequence[Bools] = [rows[:, many + n] > 0 for n in range(many)]
        self.reach: Sequence[Bools] = [rows[:, 2 * many + n] > 0 for n in range(len(suits))]
        of_slot = place[of_node.reshape(-1)]
        own = Counter(kind for kind, _ in steps)
        every = Counter(spoiled)
        for kind, pods in own.items():
            every[model.demands[kind.type]] += pods
        for kind, there in zip(self.kinds, suits, strict=True):
            demand = model.demands[kind.type]
            others = every - Counter({demand: own[kind]})
            kind.capacity = SureCapacity(state, demand, there, alive).sure(
                others, of_slot, self.size
            )

    @property
    def size(self) -> int:
        """The number of places."""
        return int(self.roles.size)

    def fits(self, kind: PodKind, counts: Sequence[Ints]) -> Bools:
        """[places] where the scheduler may put a pod of a kind."""
        fits = self.reach[kind.number]
        for number in kind.own:
            limit, domains = self.limits[number], self.domains[number]
            most = limit.limit.max_skew + limit.minimum(counts[number]) - kind.matches[number]
            fits = fits & (domains >= 0) & (counts[number][domains] <= most)
        return fits


def _roles(
    limits: Sequence[CountedLimit], steps: Sequence[tuple[PodKind, int]], rows: Ints
) -> Ints:
    """[places] a number for each role.

    Places are alike if for each limit they are of one domain, or of domains of their own that have
    as many pods and lose them at the same steps.
    """
    many = len(limits)
    parts: list[list[object]] = []
    for number, limit in enumerate(limits):
        ids = rows[:, number].tolist()
        leaves: dict[int, list[int]] = {}
        for at, (kind, slot) in enumerate(steps):
            if kind.matches[number] and limit.counted[slot]:
                leaves.setdefault(int(limit.ids[slot]), []).append(at)
        places_of: dict[int, int] = {}
        for domain in ids:
            places_of[domain] = places_of.get(domain, 0) + 1
        part: list[object] = []
        for domain in ids:
            if domain < 0 or places_of[domain] > 1:
                part.append(domain)
            else:
                pods, present = int(limit.counts[domain]), bool(limit.present[domain])
                part.append((pods, present, tuple(leaves.get(domain, ()))))
        parts.append(part)
    rest = [tuple(row) for row in rows[:, many:].tolist()]
    numbers: dict[object, int] = {}
    return np.array(
        [numbers.setdefault(key, len(numbers)) for key in zip(*parts, rest, strict=True)],
        dtype=np.int64,
    )


@dataclass(frozen=True, slots=True)
class SureCapacity:
    """Capacity for pods on the nodes that suit them.

    Attributes:
        suits: [slots] those nodes.
        alive: [nodes] slots.
    """

    state: Snapshot
    demand: Demand
    suits: Bools
    alive: NDArray[np.intp]

    def sure(self, others: Counter[Demand], of_node: Ints, size: int) -> Ints:
        """[places] pods that find room wherever others come; 0 where other filters may refuse them.

        The higher of two bounds: each of the others takes away no more than one node, at worst the
        roomiest; and from no node they take more than all of them together demand.
        """
        demand = self.demand
        refused = demand.has_terms or demand.volumes or demand.resource_claims
        if refused or any(each.anti_affinity for each in others):
            return np.zeros(size, dtype=np.int64)
        headroom = self._beside({})
        order = np.lexsort((-headroom, of_node))
        place = of_node[order]
        first = np.searchsorted(place, place, side="left")
        kept = np.arange(place.size) - first >= others.total()
        one_each = np.bincount(place, weights=np.where(kept, headroom[order], 0), minlength=size)
        if demand.ports and any(each.ports for each in others):
            return one_each.astype(np.int64)
        left = self._beside(_taken(others))
        together = np.bincount(of_node, weights=left, minlength=size)
        return np.maximum(one_each, together).astype(np.int64)

    def _beside(self, taken: Mapping[str, int]) -> Ints:
        """[nodes] pods for which there is room beside what others take."""
        found: Ints = np.where(self.suits, headroom_of(self.state, self.demand, taken), 0)
        return found[self.alive]


def _taken(demands: Counter[Demand]) -> Counter[str]:
    """What pods take of their nodes together."""
    taken = Counter({PODS: demands.total()})
    for demand, pods in demands.items():
        for name, amount in demand.requests:
            taken[name] += pods * amount
    return taken
