"""A scheduling cycle: one pod judged at one frozen state.

The answers of PreFilter, Filter and Score follow from here; each part is worked out
once, when it is first asked for. Snapshots are immutable, so a cycle costs only references.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

import numpy as np

from topospread.cache import BUDGETS, Cache
from topospread.errors import CycleExpired
from topospread.kube.demands import NO_DEMAND
from topospread.replica.view import View
from topospread.service.decisions.pods import plan_of, pod_size
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.service.fit.question import FitQuestion
from topospread.spread.filtering import DomainState, PodMove, Verdicts, filter_nodes, pre_filter
from topospread.spread.per_node import CellScores, scores_of_each, verdicts_of_each
from topospread.spread.scoring import Scores, score
from topospread.spread.verdicts import FITS, SKIP, Code, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topospread.index.groups import Group
    from topospread.kube.demands import Demand
    from topospread.kube.objects import Pod
    from topospread.service.decisions.pods import EffectiveConstraints
    from topospread.spread.constraints import PodConstraints
    from topospread.spread.plans import Plan
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Bools, GroupKey


_Value = TypeVar("_Value")

CYCLE_SECONDS: Final = 60.0
"""A scheduling cycle takes milliseconds, with slow extenders some seconds."""


class computed_once(Generic[_Value]):  # noqa: N801 - a decorator, as functools.cached_property
    """A property whose value is computed at its first use and kept with the instance, lock-free.

    functools.cached_property of Python 3.11 holds one lock for all instances of a class while it
    computes, so that a short decision would wait for all long ones. Threads that compute a value at
    once get equal ones.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _Value: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Self | _Value:
        if instance is None:
            return self
        computed: _Value
        computed = instance.__dict__[self._name] = self._compute(instance)
        return computed


@dataclass(eq=False)
class Cycle:
    """A pod, the rules, and the state that it is judged at; immutable but for what it caches.

    Attributes:
        name, uid: the pod's own; `pod` is any pod of its shape.
        moves: what-ifs that PreFilter's counts include; scores do not (upstream fact 33).
        by_node: nodes are judged one by one in any case.
        demand: what the pod demands of its node, where more than spreading is asked.
    """

    cluster: str
    pod: Pod
    rules: Rules
    effective: EffectiveConstraints
    view: View
    name: str = ""
    uid: str = ""
    moves: tuple[PodMove, ...] = ()
    by_node: bool = False
    demand: Demand = NO_DEMAND

    @property
    def size(self) -> int:
        """Bytes, about, of a cycle that is kept, with what Filter and Score will work out.

        Without the counts and the nodes, which others may keep, too.
        """
        # Verdicts by slot and by name, and who passes.
        return 3072 + pod_size(self.pod) + 3 * self.view.snapshot.nodes.capacity

    @property
    def growth(self) -> int:
        """Bytes, about, that Filter and Score will add to the counts, once for all cycles."""
        return 0 if self.by_node else 16 * self.view.snapshot.node_count

    def alone(self) -> Cycle:
        """The cycle as it is kept for Filter and Score: it holds what they need, and no more."""
        snapshot, groups = self.view.snapshot, self.effective.groups
        # Where nodes are judged one by one, verdicts are shorter than what they follow from.
        by_node = self.pre_filter_status.code is not Code.ERROR and self.plan is None
        if by_node:
            soft = {constraint.group for constraint in self.constraints.soft.constraints}
            groups = tuple([group for group in groups if group in soft])
        # Field by field: dataclasses.replace takes as long as all the rest.
        of, counts = self.view, snapshot.only(groups)
        view = View(
            counts, of.identity, of.revision, of.token, of.published_at, of.observed, of.meta
        )
        kept = Cycle(self.cluster, self.pod, self.rules, self.effective, view, self.name, self.uid)
        kept.by_node = by_node
        if by_node:
            kept.__dict__["verdicts"] = self.verdicts
        return kept

    @property
    def groups(self) -> tuple[Group, ...]:
        """The versions of the groups that it holds."""
        return tuple(self.view.snapshot.groups.values())

    @property
    def constraints(self) -> PodConstraints:
        """The pod's effective constraints."""
        return self.effective.constraints

    @computed_once
    def needed(self) -> Sequence[GroupKey]:
        """The groups that must be counted wherever it is judged."""
        groups = self.effective.groups
        if self.demand.has_terms:
            groups += counted_groups(self.demand, self.view.snapshot.objects)
        return groups

    @property
    def asked(self) -> FitQuestion:
        """What the filters beside spreading are asked."""
        return FitQuestion(
            self.view.snapshot,
            self.pod,
            self.constraints.requirements,
            self.demand,
            self.rules,
            self.name,
            self.uid,
            self.constraints.hard.constraints,
        )

    @property
    def plan(self) -> Plan | None:
        """The plan to judge node classes by; None when nodes must be judged one by one."""
        return None if self.moves or self.by_node else plan_of(self.effective, self.view.snapshot)

    @property
    def pre_filter_status(self) -> Status:
        """Success; Skip without hard constraints; Error when one does not parse."""
        return self.effective.pre_filter

    @computed_once
    def states(self) -> tuple[DomainState, ...]:
        """The counts behind the hard constraints; none when PreFilter skips."""
        return pre_filter(self.constraints.hard.constraints, self.view.snapshot, self.moves)

    @computed_once
    def verdicts(self) -> Verdicts:
        """[slots] the verdict on each node; all fit when PreFilter skips."""
        return filter_nodes(self.states, self.view.snapshot)

    @computed_once
    def verdicts_in_order(self) -> Verdicts:
        """[nodes] the verdict on each node, in the node table's order."""
        plan = self.plan
        if plan is None:
            return self.verdicts[self.view.snapshot.nodes.order]
        return verdicts_of_each(plan, self.view.snapshot)

    @computed_once
    def feasible(self) -> Bools:
        """[slots] the nodes that pass; none after an Error."""
        alive = self.view.snapshot.alive
        if self.pre_filter_status.code is Code.ERROR:
            return np.zeros_like(alive)
        fits: Bools = alive & (self.verdicts == FITS)
        return fits

    @property
    def pre_score_status(self) -> Status:
        """Success; Skip without soft constraints or nodes; Error when one does not parse."""
        return self.effective.pre_score if self.view.snapshot.node_count else SKIP

    def feasible_and_scores(self) -> tuple[NDArray[np.intp], Scores | CellScores | None]:
        """[feasible] positions in the node table of the nodes that pass, and their scores.

        No scores where there are no such nodes, or where PreScore is not Success.
        """
        order = self.view.snapshot.nodes.order
        scored = self.pre_score_status.code is Code.SUCCESS
        failed = Code.ERROR in (self.pre_filter_status.code, self.pre_score_status.code)
        plan = None if failed else self.plan
        quick = None if plan is None else scores_of_each(plan, self.view.snapshot)
        if quick is not None:
            return quick
        positions = np.flatnonzero(self.feasible[order])
        return positions, self.scores(order[positions]) if scored and positions.size else None

    def scores(self, candidates: NDArray[np.intp]) -> Scores:
        """Scores of some nodes, by slot; only when PreScore is Success and there are candidates."""
        return score(
            self.constraints.soft.constraints,
            self.view.snapshot,
            candidates,
            require_all_keys=self.constraints.require_all_keys,
        )


class CycleCache:
    """Keeps cycles by identifier; those that were not asked for longest go first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: Cache[str, tuple[float, Cycle]] = Cache(BUDGETS["cycles"])

    def put(self, cycle: Cycle) -> str:
        """Keep a cycle; returns its identifier, which no other process has."""
        identifier = secrets.token_urlsafe(12)
        growth = cycle.growth
        counts = [(group, group.size + growth) for group in cycle.groups]
        self._kept.put(identifier, (self._clock() + CYCLE_SECONDS, cycle), cycle.size, counts)
        return identifier

    def get(self, identifier: str) -> Cycle | None:
        """The cycle, or None when it is unknown here or too old."""
        kept = self._kept.get(identifier)
        return None if kept is None or kept[0] <= self._clock() else kept[1]

    def expired(self, identifier: str) -> CycleExpired:
        """The error for a cycle that cannot be resumed."""
        return CycleExpired(
            f"cycle {identifier!r} is not known to this process: it expired after "
            f"{CYCLE_SECONDS:g} s, or another process made it. Call PreFilter again, or send the "
            "pod along"
        )
