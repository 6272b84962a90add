"""Every case, with pods of the request and with pods of the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.service.ranking.calls import kept
from tests.service.ranking.cases import Case, cases
from topospread.spread.deletion import Strategy
from topospread_proto.v1.deletion_order_pb2 import RankStrategy

if TYPE_CHECKING:
    from tests.service.ranking.calls import Ranker

NUMBERS = {each: RankStrategy.Value(f"RANK_STRATEGY_{each.name}") for each in Strategy}


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


@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("given", ["in the request", "in the state"])
def test_the_order_is_the_expected_one(case: Case, given: str, ranker: Ranker):
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
