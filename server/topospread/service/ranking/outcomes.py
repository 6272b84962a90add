"""The orders that are compared, who goes by each in any case, and between which skews it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import checkpoint
from topospread.kube.workloads import STATEFUL_SET
from topospread.service.ranking.request import STRATEGY_NUMBERS
from topospread.spread.certain_orders import is_certain, replica_set_is_certain
from topospread.spread.deletion import Strategy, job_order, rank, ranking_of, stateful_set_order
from topospread.spread.possible_deletions import (
    any_cut,
    job_cuts,
    job_groups,
    ordered_cut,
    possible_deletions,
    replica_set_cuts,
)
from topospread_proto.v1 import common_pb2, deletion_order_pb2
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.service.ranking.choosing import RankedPods
    from topospread.service.ranking.deciders import Decider
    from topospread.spread.deletion import (
        DeletionCandidate,
        DeletionConstraint,
        DeletionOrder,
        Ranking,
    )
    from topospread.spread.possible_deletions import PossibleDeletions

MAX_ALTERNATIVES: Final = 1000
"""Pods that an answer lists beside those that go."""


class RankedOutcome(NamedTuple):
    """An order, what is open in it, and whether that leaves the skews on the way certain."""

    ranking: Ranking
    possible: PossibleDeletions
    is_certain: bool

    def message(
        self, strategy: deletion_order_pb2.RankStrategy.ValueType, present: int
    ) -> deletion_order_pb2.RankOutcome:
        """As answers have it; `present` is the largest skew before any deletion."""
        ranking, skews = self.ranking, self.possible.skews
        last = ranking.skews[-1].tolist() if len(ranking.skews) else [present]
        return deletion_order_pb2.RankOutcome(
            strategy=strategy,
            kept_count=ranking.kept,
            within_count=ranking.within,
            last_skew=max(last, default=0),
            lowest_last_skew=max((low for low, _ in skews), default=0),
            highest_last_skew=max((high for _, high in skews), default=0),
            certain=self.is_certain,
        )


Outcomes = dict["deletion_order_pb2.RankStrategy.ValueType", RankedOutcome]


def outcomes_by_strategy(
    order: DeletionOrder,
    spreads: Sequence[DeletionConstraint],
    found: RankedPods,
    now: int,
    deletions: int,
) -> Mapping[Strategy, RankedOutcome]:
    """What each strategy that may be chosen leaves."""
    outcomes = {}
    for each in Strategy:
        made = rank(each, order, spreads, found.related, now, deletions)
        cuts, certain = ordered_cut(made.order, deletions), True
        if len(found.revisions) > 1:
            # How many go of each is not known.
            cuts = any_cut(len(order.pods), deletions)
            certain = is_certain([made.order], deletions, spreads)
        elif each is Strategy.REPLICA_SET:
            cuts = replica_set_cuts(order, made.ranks, now, deletions)
            certain = replica_set_is_certain(order, made.ranks, now, deletions, spreads)
        outcomes[each] = RankedOutcome(made, possible_deletions(cuts, spreads), certain)
    return outcomes


def numbered(outcomes: Mapping[Strategy, RankedOutcome]) -> Outcomes:
    """By the strategies' numbers."""
    return {STRATEGY_NUMBERS[each]: outcome for each, outcome in outcomes.items()}


def own_outcome(
    decider: Decider | None,
    pods: Sequence[DeletionCandidate],
    spreads: Sequence[DeletionConstraint],
    deletions: int,
    completions: int | None,
) -> Outcomes:
    """The order of a controller that takes no other, by its number; empty for others."""
    if decider is None or not (decider.kind == STATEFUL_SET or decider.is_job):
        return {}
    if decider.kind == STATEFUL_SET:
        number = deletion_order_pb2.RANK_STRATEGY_STATEFUL_SET
        chosen, ranks = stateful_set_order(pods)
        cuts, certain = ordered_cut(chosen, deletions), True
    else:
        number = deletion_order_pb2.RANK_STRATEGY_JOB
        chosen, ranks = job_order(pods, completions)
        cuts = job_cuts(pods, chosen, ranks, deletions)
        certain = is_certain(job_groups(pods, chosen, ranks), deletions, spreads)
    ranking = ranking_of(chosen, ranks, spreads, deletions)
    return {number: RankedOutcome(ranking, possible_deletions(cuts, spreads), certain)}


def add_pods(
    response: pb.RankDeletionsResponse,
    pods: Sequence[DeletionCandidate],
    outcome: RankedOutcome,
    spreads: Sequence[DeletionConstraint],
) -> None:
    """The pods that go in an order, and those that may go in the place of some."""
    ranking, possible, _ = outcome

    def ranked(position: int) -> deletion_order_pb2.RankedPod:
        pod = pods[position]
        return deletion_order_pb2.RankedPod(
            pod=common_pb2.PodReference(namespace=pod.namespace, name=pod.name, uid=pod.uid),
            node=pod.node,
            rank=ranking.ranks[position],
            domains=[spread.domains[position] or "" for spread in spreads],
            certain=position in possible.certain,
        )

    deletions = len(ranking.skews)
    for position, skews in zip(ranking.order, ranking.skews.tolist(), strict=False):
        checkpoint()
        response.pods.append(ranked(position))
        response.pods[-1].skews.extend(skews)
    others = [each for each in ranking.order[deletions:] if each in possible.possible]
    response.alternatives.extend(map(ranked, others[:MAX_ALTERNATIVES]))
    response.alternative_count = len(others)
