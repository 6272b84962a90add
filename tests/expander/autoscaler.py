"""A double of cluster-autoscaler's loop: options by estimate, a choice, nodes, and pods on them.

It knows one workload with one constraint over zones, and judges in a few lines of its own what the
engine knows of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

CPU = 3
"""What a pod takes."""


@dataclass(frozen=True, order=True)
class Group:
    """A node group of one zone, with nodes of so many CPUs, and so many at most."""

    zone: str
    cpu: int
    most: int = 20

    @property
    def name(self) -> str:
        return f"ng-{self.zone}"

    @property
    def capacity(self) -> int:
        """Pods that fit on a node of it."""
        return self.cpu // CPU


@dataclass(frozen=True)
class Workload:
    """The constraint over zones that its pods have."""

    max_skew: int = 1
    hard: bool = True
    min_domains: int | None = None


class Option(NamedTuple):
    """An option of the autoscaler's."""

    group: Group
    nodes: int
    pods: int


@dataclass(frozen=True)
class State:
    """Pods of each node, by group, and how many wait."""

    workload: Workload
    nodes: tuple[tuple[Group, tuple[int, ...]], ...]
    waiting: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Pods of each zone that has a node."""
        return {group.zone: sum(pods) for group, pods in self.nodes if pods}

    @property
    def zones(self) -> tuple[int, ...]:
        """Pods of each zone, also of those without a node."""
        return tuple(sum(pods) for _, pods in self.nodes)

    @property
    def size(self) -> int:
        """Nodes of all groups."""
        return sum(len(pods) for _, pods in self.nodes)

    def allows(self, zone: str) -> bool:
        """Whether the constraint lets another pod into a zone that has a node."""
        if not self.workload.hard:
            return True
        counts = self.counts
        least = min(counts.values()) if len(counts) >= (self.workload.min_domains or 1) else 0
        return counts[zone] + 1 - least <= self.workload.max_skew

    def placed(self, group: Group, node: int) -> State:
        """With one of those that wait on a node."""
        pods = dict(self.nodes)[group]
        there = (*pods[:node], pods[node] + 1, *pods[node + 1 :])
        return self._with(group, there, self.waiting - 1)

    def grown(self, group: Group, nodes: int) -> State:
        """With so many nodes more."""
        return self._with(group, dict(self.nodes)[group] + (0,) * nodes, self.waiting)

    def without_idle(self, group: Group) -> State:
        """Without the nodes of a group that have no pod."""
        return self._with(group, tuple(filter(None, dict(self.nodes)[group])), self.waiting)

    def _with(self, group: Group, pods: tuple[int, ...], waiting: int) -> State:
        nodes = tuple((g, pods if g == group else there) for g, there in self.nodes)
        return replace(self, nodes=nodes, waiting=waiting)

    def places(self) -> Iterator[tuple[Group, int]]:
        """The nodes that take another pod."""
        for group, pods in self.nodes:
            for node, there in enumerate(pods):
                if there < group.capacity and self.allows(group.zone):
                    yield group, node

    def settled(self) -> State:
        """With all pods on nodes that a scheduler finds one for, the emptiest zone first."""
        state = self
        while state.waiting:
            counts = state.counts
            group, node = min(state.places(), key=lambda p: counts[p[0].zone], default=(None, 0))
            if group is None:
                break
            state = state.placed(group, node)
        return state

    def options(self) -> list[Option]:
        """What the autoscaler would ask about, its estimate of each group by itself."""
        tried = [self._estimate(group) for group, _ in self.nodes]
        return [option for option in tried if option.pods]

    def _estimate(self, group: Group) -> Option:
        state, first = self, len(dict(self.nodes)[group])
        pods = 0
        while state.waiting:
            last = len(dict(state.nodes)[group]) - 1
            if last < first or dict(state.nodes)[group][last] == group.capacity:
                if last + 1 == group.most:
                    break
                state, last = state.grown(group, 1), last + 1
            if not state.allows(group.zone) or not group.capacity:
                break
            state, pods = state.placed(group, last), pods + 1
        used = [there for there in dict(state.nodes)[group][first:] if there]
        return Option(group, len(used), pods)


def empty(workload: Workload, groups: Sequence[Group]) -> State:
    """Groups without a node."""
    return State(workload, tuple((group, ()) for group in groups))


def least_waste(state: State, options: Sequence[Option]) -> Sequence[Group]:
    """The autoscaler's own expander of that name; the pods ask for no memory."""
    del state
    waste = {o.group: 1 - CPU * o.pods / (o.group.cpu * o.nodes) for o in options}
    lowest = min(waste.values())
    return [group for group in waste if waste[group] == lowest]


@dataclass
class Run:
    """What a run of the loop came to, after each step."""

    states: list[State] = field(default_factory=list)

    @property
    def last(self) -> State:
        return self.states[-1]

    @property
    def text(self) -> str:
        return " ".join("".join(map(str, state.zones)) for state in self.states)


def run(
    state: State,
    steps: Sequence[int],
    choose: Callable[[State, Sequence[Option]], Sequence[Group]],
    chance: random.Random,
    settle: Callable[[State], State] = State.settled,
) -> Run:
    """Grow a workload by so many pods a step, each until no option is left."""
    found = Run()
    for step in steps:
        state = settle(replace(state, waiting=state.waiting + step))
        while options := state.options():
            group = chance.choice(sorted(choose(state, options)))
            (nodes,) = [option.nodes for option in options if option.group == group]
            state = settle(state.grown(group, nodes))
        found.states.append(state)
    return found


@cache
def all_ends(state: State, steps: tuple[int, ...]) -> frozenset[State]:
    """Where any choices can lead to."""
    if not steps:
        return frozenset([state])
    state = replace(state, waiting=state.waiting + steps[0]).settled()
    return frozenset(end for after in _answers(state) for end in all_ends(after, steps[1:]))


@cache
def _answers(state: State) -> frozenset[State]:
    options = state.options()
    if not options:
        return frozenset([state])
    grown = [state.grown(option.group, option.nodes).settled() for option in options]
    return frozenset(end for after in grown for end in _answers(after))


def skew(state: State) -> int:
    """Of the workload, over the zones whose groups can still grow."""
    zones = [sum(pods) for group, pods in state.nodes if len(pods) < group.most]
    return max(zones, default=0) - min(zones, default=0)


def even(state: State, options: Sequence[Option], prefer: str = "spread") -> Sequence[Group]:
    """What the rules of docs/cluster-autoscaler.md choose."""
    growing = {option.group for option in options}
    # A group that is no option can grow later where the constraint alone refuses its pods.
    open_ = {
        g.zone for g, pods in state.nodes if g in growing or (len(pods) < g.most and g.capacity)
    }
    lead = max(options, key=lambda option: option.pods)
    ranks = {}
    for option in options:
        after = replace(state, waiting=option.pods).grown(option.group, option.nodes).settled()
        if not state.workload.hard and option.pods < lead.pods:
            # What a soft constraint leaves waiting is placed by the next scale-up.
            waiting = after.waiting + lead.pods - option.pods
            after = replace(after, waiting=waiting).grown(lead.group, lead.nodes).settled()
            after = after.without_idle(lead.group)
        to_come = replace(after, waiting=sum(after.zones) - sum(state.zones)).settled()
        spread = _excess(after, open_), _excess(to_come, open_)
        nodes = after.size - state.size
        first, second = (spread, nodes) if prefer == "spread" else (nodes, spread)
        ranks[option.group] = (-sum(after.zones), first, second, _skew(after, open_))
    best = min(ranks.values())
    return [group for group in ranks if ranks[group] == best]


def _domains(state: State, open_: set[str]) -> tuple[list[int], int]:
    counts = dict.fromkeys(open_, 0) | state.counts
    enough = len(counts) >= (state.workload.min_domains or 1)
    return [*counts.values()], min(counts.values()) if enough else 0


def _excess(state: State, open_: set[str]) -> tuple[int, ...]:
    pods, least = _domains(state, open_)
    past = [there - least - state.workload.max_skew for there in pods]
    return tuple(sorted((each for each in past if each > 0), reverse=True))


def _skew(state: State, open_: set[str]) -> int:
    pods, least = _domains(state, open_)
    return max(pods) - least
