"""A scheduling cycle: one pod judged at one frozen state.

Everything that PreFilter, Filter and Score say of a pod follows from here; each part is worked out
once, when it is first asked for. Snapshots are immutable, so a cycle costs only references.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from topospread.service.cached import cached_property
from topospread.service.shapes import pod_size
from topospread.spread.each import CellScores, scores_of_each, verdicts_of_each
from topospread.spread.filtering import DomainState, PodMove, Verdicts, filter_nodes, pre_filter
from topospread.spread.scoring import Scores, score
from topospread.spread.verdicts import FITS, SKIP, Code, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topospread.index.groups import Group
    from topospread.kube.objects import Pod
    from topospread.replica.view import View
    from topospread.service.shapes import Judgeable
    from topospread.spread.constraints import PodConstraints
    from topospread.spread.plans import Plan
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Bools


@dataclass(eq=False)
class Cycle:
    """A pod, the rules, and the state that it is judged at. Nobody changes one.

    Attributes:
        name, uid: the pod's own; `pod` is any pod of its shape.
        moves: what-ifs that PreFilter's counts include; scores do not (upstream fact 33).
        by_node: nodes are judged one by one in any case.
    """

    cluster: str
    pod: Pod
    rules: Rules
    judgeable: Judgeable
    view: View
    name: str = ""
    uid: str = ""
    moves: tuple[PodMove, ...] = ()
    by_node: bool = False

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
        """This cycle to be kept, for Filter and Score: it holds what they need, and no more."""
        snapshot, groups = self.view.snapshot, self.judgeable.groups
        # Where nodes are judged one by one, verdicts are shorter than what they follow from.
        by_node = self.pre_filter_status.code is not Code.ERROR and self.plan is None
        if by_node:
            soft = {constraint.group for constraint in self.constraints.soft.constraints}
            groups = tuple([group for group in groups if group in soft])
        view = replace(self.view, snapshot=snapshot.only(groups))
        kept = replace(self, view=view, moves=(), by_node=by_node)
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
        return self.judgeable.constraints

    @property
    def plan(self) -> Plan | None:
        """How to judge node classes; None when nodes must be judged one by one."""
        return None if self.moves or self.by_node else self.judgeable.plan(self.view.snapshot)

    @property
    def pre_filter_status(self) -> Status:
        """Success; Skip without hard constraints; Error when one does not parse."""
        return self.judgeable.pre_filter

    @cached_property
    def states(self) -> tuple[DomainState, ...]:
        """The counts behind the hard constraints; none when PreFilter skips."""
        return pre_filter(self.constraints.hard.constraints, self.view.snapshot, self.moves)

    @cached_property
    def verdicts(self) -> Verdicts:
        """[slots] the verdict on each node; all fit when PreFilter skips."""
        return filter_nodes(self.states, self.view.snapshot)

    @cached_property
    def verdicts_in_order(self) -> Verdicts:
        """[nodes] the verdict on each node, in the node table's order."""
        plan = self.plan
        if plan is None:
            return self.verdicts[self.view.snapshot.nodes.order]
        return verdicts_of_each(plan, self.view.snapshot)

    @cached_property
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
        return self.judgeable.pre_score if self.view.snapshot.node_count else SKIP

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
