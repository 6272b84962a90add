"""Every case, on the core and through gRPC, with pods of the request and with pods of the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.conformance.objects import object_of
from tests.service.ranking.calls import kept
from tests.service.ranking.cases import Case, cases
from topospread.codec.pods import node_from_proto
from topospread.codec.stored_pods import EncodedPod
from topospread.kube.selectors import selector_from_pairs
from topospread.replica.replicas import seconds_from_now
from topospread.service.ranking import DeletionRanker, KeptSpread, RankRequest
from topospread.spread.ranking import Strategy
from topospread_proto.v1.deletion_order_pb2 import RankStrategy

if TYPE_CHECKING:
    from tests.service.ranking.calls import Ranker
    from tests.service.world import World

NUMBERS = {each: RankStrategy.Value(f"RANK_STRATEGY_{each.name}") for each in Strategy}
ALL = pytest.mark.parametrize("case", cases(), ids=str)


@dataclass(frozen=True)
class Answer:
    """What any evaluator says."""

    order: list[str]
    ranks: dict[str, float]
    skews: list[int]
    best: str | None


def check(case: Case, answer: Answer) -> None:
    if case.order is not None:
        assert answer.order == case.order
    if case.levels is not None:
        by_rank: dict[float, list[str]] = {}
        for name in answer.order:
            if answer.ranks[name] > 0:
                by_rank.setdefault(round(answer.ranks[name], 6), []).append(name)
        assert list(by_rank.values()) == case.levels
    for name, rank in case.ranks.items():
        assert answer.ranks[name] == pytest.approx(rank, abs=1e-4), name
    if case.skews is not None:
        assert answer.skews == case.skews
    if case.best is not None:
        assert answer.best == case.best


@ALL
def test_the_core(case: Case, empty_world: World):
    process = empty_world.process
    ask = RankRequest(
        deadline=seconds_from_now(30),
        selector=selector_from_pairs(case.select.items()),
        pods=[EncodedPod(object_of(pod).pod.SerializeToString()) for pod in case.pods],
        nodes=[node_from_proto(object_of(node).node) for node in case.nodes],
        replica_sets=[
            object_of(each).replica_set.SerializeToString() for each in case.replica_sets
        ],
        constraints=tuple(
            KeptSpread(each["key"], tuple(each.get("values", ()))) for each in case.constraints
        ),
        strategy=Strategy(case.strategy),
        delete=case.delete,
        now=case.now * 1_000_000_000,
    )
    ranked = DeletionRanker(empty_world.store, process.replicas, process.rules).rank(ask)
    ranking = ranked.rankings[ask.strategy]
    count = case.delete or len(ranked.pods)
    check(
        case,
        Answer(
            [ranked.pods[position].name for position in ranking.order[:count]],
            {pod.name: rank for pod, rank in zip(ranked.pods, ranking.ranks, strict=True)},
            [step[0] for step in ranking.skews if step],
            ranked.best.value if ranked.best else None,
        ),
    )


@ALL
@pytest.mark.parametrize("given", ["in the request", "in the state"])
def test_grpc(case: Case, given: str, ranker: Ranker):
    objects = [*case.nodes, *case.replica_sets, *case.pods]
    if given == "in the state":
        ranker.apply(*objects)
        objects = []
    strategy = NUMBERS[Strategy(case.strategy)]
    ranked = ranker.rank(
        case.select,
        objects,
        constraints=[kept(e["key"], e.get("values", ())) for e in case.constraints],
        delete_count=case.delete,
        strategy=strategy,
        evaluation_time=Timestamp(seconds=case.now),
    )
    assert ranked.meta.revision == ranker.revision
    assert ranked.strategy == strategy
    best = {number: strategy.value for strategy, number in NUMBERS.items()}
    check(
        case,
        Answer(
            [each.pod.name for each in ranked.pods],
            {each.pod.name: each.rank for each in ranked.pods},
            [each.skews[0] for each in ranked.pods if each.skews],
            best.get(ranked.keeps_longest),
        ),
    )
