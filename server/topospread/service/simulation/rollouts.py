"""Rollouts in simulations: of workloads whose template is another, or of which an image may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.codec.rollouts import rollout_from_proto
from topospread.codec.rows import decode_pod
from topospread.errors import InvalidRequest
from topospread.service.decisions.pods import JudgedPod
from topospread.service.rollouts.walk import MOST_STATES, RolloutWalk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.errors import FieldViolation
    from topospread.index.snapshot import Snapshot
    from topospread.kube.rollouts import Rollout
    from topospread.replica.view import View
    from topospread.service.fit.question import Fit
    from topospread.service.simulation.plans import WorkloadPlan
    from topospread.service.simulation.request import SimulationQuestion
    from topospread.service.simulation.run import PodBatch
    from topospread.spread.rollouts import RolloutOutcome


_ALL_STATES: Final = 4 * MOST_STATES
"""States of all rollouts of a call that are judged; each may have its fair share."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRollout:
    """A rollout that is asked about.

    Attributes:
        plan: of the workload.
        batch: has a new pod, of a new revision.
        rollout: how pods are replaced.
        drained: nodes whose pods are gone.
    """

    plan: WorkloadPlan
    batch: PodBatch
    rollout: Rollout
    drained: frozenset[str]

    @property
    def judged(self) -> JudgedPod:
        """A new pod, with the name of the workload."""
        batch = self.batch
        pod = batch.pod._replace(name=self.plan.pods.name.name, uid="")
        return JudgedPod(pod, batch.rules, batch.demand)

    def walk(self, view: View, fit: Fit) -> RolloutWalk:
        """Its courses at a view with the old pods."""
        of, wanted = self.plan.pods, self.plan.asked_for
        rows = [decode_pod(payload) for payload in of.payloads_by_number]
        # What drained nodes had is made anew before, and may wait.
        old = [row for row in rows if row.node_name not in self.drained]
        waiting = max(len(of.waiting) + len(rows) - len(old), wanted - len(old))
        return RolloutWalk(view, self.judged, self.rollout, wanted, old, waiting, fit)


def planned_rollouts(
    question: SimulationQuestion,
    batches: Iterable[PodBatch],
    plans: Iterable[WorkloadPlan],
    wrong: list[FieldViolation],
) -> Iterator[PlannedRollout]:
    """The rollouts that a request asks about; what is wrong with their strategies goes to `wrong`.

    Args:
        question: the request.
        batches: its pods, as if all were new.
        plans: of its workloads.
        wrong: gets what is wrong.
    """
    drained = frozenset(each.node for each in question.changes.drain_nodes)
    of_request = {batch.asked: batch for batch in batches}
    for plan in plans:
        at = plan.pods.asked
        asked = question.message.pods[at]
        if not asked.HasField("rolling_update") or not plan.rolls:
            continue
        try:
            rollout = rollout_from_proto(asked.rolling_update, f"pods[{at}].rollingUpdate")
        except InvalidRequest as refused:
            wrong += refused.violations
            continue
        if rollout is None or rollout.partition >= plan.asked_for:
            continue  # nothing is replaced
        if rollout.ordered and plan.pods.waiting:
            continue  # nothing is replaced before these run
        yield PlannedRollout(plan, of_request[at], rollout, drained)


def outcomes(
    rollouts: Iterable[PlannedRollout], view: View, snapshot: Snapshot, fit: Fit
) -> Mapping[int, RolloutOutcome]:
    """What becomes of rollouts, each by itself, by their positions in the request."""
    there = replace(view, snapshot=snapshot)
    walks: list[tuple[int, RolloutWalk]] = []
    for each in rollouts:
        checkpoint()
        walks.append((each.plan.pods.asked, each.walk(there, fit)))
    most = fair_share([walk.wanted for _, walk in walks], _ALL_STATES)
    found: dict[int, RolloutOutcome] = {}
    while walks:  # what one has looked at is let go of with it
        asked, walk = walks.pop()
        found[asked] = walk.outcome(most)
    return found


def fair_share(wanted: Sequence[int], total: int) -> int:
    """The most that each may have, so that all together have no more than a total.

    It is the same in whatever order they are: those that want less leave it to the others.
    """
    left = total
    for number, least in enumerate(sorted(wanted)):
        share = left // (len(wanted) - number)
        if least > share:
            return share
        left -= least
    return total
