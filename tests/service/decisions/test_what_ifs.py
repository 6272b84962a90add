"""Pods added and removed in thought: PreFilterExtensions, with the true minimum."""

from __future__ import annotations

import pytest

from tests.service.world import (
    HOSTNAME,
    World,
    constraint,
    incoming,
    node,
    running,
    soft,
)
from topospread.errors import InvalidRequest
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.extension_points import filter_, pre_filter, score
from topospread.spread.verdicts import FITS, SUCCESS, TOO_SKEWED, Code

HARD = incoming(constraint())


def verdicts(world: World, pod=HARD, **what_ifs) -> list[int]:
    return filter_(world.engine, world.ask(pod, **what_ifs)).verdicts.tolist()


def minimum(world: World, pod=HARD, **what_ifs) -> tuple[int, dict[str, int]]:
    """The global minimum, and the pods by domain."""
    answer = pre_filter(world.engine, world.ask(pod, **what_ifs), with_counts=True)
    (counts,) = answer.constraints
    return counts.state.global_minimum, dict(counts.domains)


def test_what_ifs_on_several_domains_leave_the_true_minimum(empty_world: World):
    """Upstream remembers the two emptiest domains only, and would take a stale one here."""
    empty_world.apply(*(node(f"n-{zone}", zone) for zone in "abc"), running("w", "n-c"))
    added = [(running(f"new-{n}", where), where) for n, where in enumerate(["n-a", "n-b"] * 2)]
    assert minimum(empty_world, add=added) == (1, {"a": 2, "b": 2, "c": 1})
    assert verdicts(empty_world, add=added) == [TOO_SKEWED, TOO_SKEWED, FITS]


def test_removing_a_victim_makes_a_node_feasible(three_zones: World):
    assert verdicts(three_zones) == [TOO_SKEWED, TOO_SKEWED, FITS]
    gone = [(running(name, "n-a"), "n-a") for name in ("w1", "w2")]
    assert minimum(three_zones, remove=gone) == (0, {"a": 0, "b": 1, "c": 0})
    assert verdicts(three_zones, remove=gone) == [FITS, TOO_SKEWED, FITS]


def test_pods_with_counts_below_zero_come_first(empty_world: World):
    """Fewer matching pods are better, also when there are fewer than none."""
    empty_world.apply(node("n-a", "a"), node("n-b", "b"))
    gone = [(running("old", "n-b"), "n-b")]
    pod = incoming(constraint(maxSkew=5))
    answer = evaluate(empty_world.engine, empty_world.ask(pod, remove=gone))
    assert [ranked.name for ranked in answer.top] == ["n-b", "n-a"]


@pytest.mark.parametrize(
    "move",
    [
        (running("new", "n-c", "other"), "n-c"),
        (running("new", "n-c", namespace="other"), "n-c"),
        (running("new", "n-c"), "nowhere"),
        (running("new", ""), ""),
    ],
    ids=["another app", "another namespace", "an unknown node", "no node at all"],
)
def test_what_ifs_without_effect_change_no_verdict(three_zones: World, move):
    assert verdicts(three_zones, add=[move]) == verdicts(three_zones)
    answer = pre_filter(three_zones.engine, three_zones.ask(HARD, add=[move], remove=[move]))
    assert answer.extensions == (SUCCESS, SUCCESS)


def test_a_what_if_without_a_node_is_on_the_pods_own(three_zones: World):
    assert minimum(three_zones, add=[(running("new", "n-c"), "")]) == (1, {"a": 2, "b": 1, "c": 1})


def test_one_status_for_each_what_if_and_none_when_pre_filter_skips(three_zones: World):
    moves = [(running("new", "n-a"), "n-a")] * 3
    answer = pre_filter(three_zones.engine, three_zones.ask(HARD, add=moves, remove=moves[:1]))
    assert [status.code for status in answer.extensions] == [Code.SUCCESS] * 4
    skipped = pre_filter(three_zones.engine, three_zones.ask(incoming(soft()), add=moves))
    assert skipped.status.code is Code.SKIP
    assert skipped.extensions == ()


def test_scores_do_not_look_at_what_ifs(three_zones: World):
    pod = incoming(constraint(maxSkew=9), soft(HOSTNAME))
    moves = [(running(f"new-{n}", "n-c"), "n-c") for n in range(3)]
    plain = score(three_zones.engine, three_zones.ask(pod))
    moved = score(three_zones.engine, three_zones.ask(pod, add=moves))
    assert plain.scores is not None
    assert moved.scores is not None
    assert moved.scores.raw.tolist() == plain.scores.raw.tolist() == [3, 2, 0]


def test_evaluate_takes_what_ifs_as_filter_does(three_zones: World):
    gone = [(running(name, "n-a"), "n-a") for name in ("w1", "w2")]
    answer = evaluate(three_zones.engine, three_zones.ask(HARD, remove=gone))
    assert {ranked.name for ranked in answer.top} == {"n-a", "n-c"}
    assert answer.feasible == 2


def test_what_ifs_leave_the_state_alone(three_zones: World):
    before = minimum(three_zones)
    minimum(three_zones, add=[(running("new", "n-c"), "n-c")])
    assert minimum(three_zones) == before


def test_too_many_what_ifs_are_refused(three_zones: World):
    move = (running("new", "n-c"), "n-c")
    ask = three_zones.ask(HARD, add=[move] * 600, remove=[move] * 400)
    assert len(pre_filter(three_zones.engine, ask).extensions) == 1000
    with pytest.raises(InvalidRequest, match="at most 1000 together"):
        pre_filter(three_zones.engine, three_zones.ask(HARD, add=[move] * 1001))
