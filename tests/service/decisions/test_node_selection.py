"""Which nodes an answer is about: all, none, some by name, some by position in a node table."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.service.world import HOSTNAME, Process, World, constraint, incoming, node, running, soft
from topospread.errors import InvalidRequest, NodeTableChanged
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.extension_points import filter_, pre_filter, score
from topospread.service.decisions.request import NodeSelection
from topospread.spread.verdicts import FITS, TOO_SKEWED, UNKNOWN_NODE, Code
from topospread.store.model import Kind

HARD = incoming(constraint())
BROKEN = {"matchExpressions": [{"key": "app", "operator": "In"}]}
SPREADING = incoming(constraint(maxSkew=9), soft(HOSTNAME))


def verdicts(world: World, nodes=None, pod=HARD) -> list[int]:
    return filter_(world.engine, world.ask(pod, nodes=nodes)).verdicts.tolist()


def raw(world: World, nodes=None, pod=SPREADING) -> list[int]:
    scores = score(world.engine, world.ask(pod, nodes=nodes)).scores
    return [] if scores is None else scores.raw.tolist()


def table(world: World) -> str:
    return filter_(world.engine, world.ask(HARD)).resolved.cycle.view.snapshot.nodes.id


# ------------------------------ absent, empty, unknown, twice


def test_missing_selection_means_all_nodes_by_name(three_zones: World):
    assert verdicts(three_zones) == [TOO_SKEWED, TOO_SKEWED, FITS]
    assert raw(three_zones) == [3, 2, 0]


def test_an_empty_choice_is_no_node(three_zones: World):
    assert verdicts(three_zones, []) == []
    answer = score(three_zones.engine, three_zones.ask(SPREADING, nodes=[]))
    assert answer.status.code is Code.SUCCESS
    assert answer.scores is None
    evaluated = evaluate(three_zones.engine, three_zones.ask(SPREADING, nodes=[]))
    assert (evaluated.nodes, evaluated.feasible, evaluated.top) == (0, 0, ())
    assert evaluated.message == "no nodes available to schedule pods"


def test_answers_come_in_the_callers_order(three_zones: World):
    assert verdicts(three_zones, ["n-c", "n-a"]) == [FITS, TOO_SKEWED]
    assert raw(three_zones, ["n-c", "n-a", "n-b"]) == [0, 3, 2]


def test_fewer_candidates_weigh_less(three_zones: World):
    assert raw(three_zones, ["n-a"]) == [2]  # 2 pods · ln(1 + 2), not · ln(3 + 2)


def test_filter_names_unknown_nodes_and_score_rejects_them(three_zones: World):
    chosen = ["n-c", "nowhere", "n-a"]
    assert verdicts(three_zones, chosen) == [FITS, UNKNOWN_NODE, TOO_SKEWED]
    with pytest.raises(InvalidRequest, match=r"not in the cluster's state: nowhere$"):
        raw(three_zones, chosen)


def test_first_of_many_unknown_nodes_are_named(three_zones: World):
    unknown = [f"stranger-{n:04}" for n in range(3000)]
    with pytest.raises(InvalidRequest, match=r"stranger-0009 … and 2990 more") as refused:
        raw(three_zones, unknown)
    assert len(str(refused.value)) < 500


def test_filter_answers_twice_about_a_node_given_twice_and_score_refuses_it(three_zones: World):
    assert verdicts(three_zones, ["n-c", "n-a", "n-c"]) == [FITS, TOO_SKEWED, FITS]
    with pytest.raises(InvalidRequest, match="each node may be given once"):
        raw(three_zones, ["n-c", "n-a", "n-c"])


def test_evaluate_judges_the_chosen_and_counts_all(three_zones: World):
    answer = evaluate(three_zones.engine, three_zones.ask(HARD, nodes=["n-c", "n-a"]))
    assert (answer.nodes, answer.feasible) == (2, 1)
    assert [ranked.name for ranked in answer.top] == ["n-c"]
    answer = evaluate(three_zones.engine, three_zones.ask(HARD, nodes=["n-a", "n-b"]))
    assert answer.message == (
        "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."
    )


def test_evaluate_counts_unknown_nodes_as_errors(three_zones: World):
    answer = evaluate(three_zones.engine, three_zones.ask(HARD, nodes=["n-a", "who", "what"]))
    assert {status.code: count for status, count in answer.verdicts} == {
        Code.ERROR: 2,
        Code.UNSCHEDULABLE: 1,
    }
    assert answer.message == (
        "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, "
        "2 node is not in the cluster's state."
    )


@pytest.mark.parametrize(
    "pod", [HARD, incoming(constraint(labelSelector={"matchLabels": {"": ""}}))]
)
def test_evaluate_refuses_a_node_given_twice(three_zones: World, pod):
    with pytest.raises(InvalidRequest, match="each node may be given once"):
        evaluate(three_zones.engine, three_zones.ask(pod, nodes=["n-a", "n-c", "n-a"]))


def test_equally_good_nodes_come_by_name_whatever_the_callers_order(empty_world: World):
    names = ["n-b", "n-e", "n-a", "n-d", "n-c"]
    empty_world.apply(*(node(name, "z") for name in names))
    answer = evaluate(empty_world.engine, empty_world.ask(incoming(), nodes=names), top_k=3)
    assert [ranked.name for ranked in answer.top] == ["n-a", "n-b", "n-c"]


# ------------------------------ node tables


def test_positions_stand_for_names(three_zones: World):
    by_position = NodeSelection(indices=[2, 0], node_table=table(three_zones))
    assert verdicts(three_zones, by_position) == verdicts(three_zones, ["n-c", "n-a"])
    assert raw(three_zones, by_position) == raw(three_zones, ["n-c", "n-a"])
    assert evaluate(three_zones.engine, three_zones.ask(HARD, nodes=by_position)).feasible == 1


def test_positions_in_another_table_are_refused(three_zones: World):
    before = table(three_zones)
    three_zones.apply(node("n-d", "d"))
    stale = NodeSelection(indices=[2, 0], node_table=before)
    for use_case in (filter_, score, evaluate):
        with pytest.raises(NodeTableChanged, match="the current one with GetNodeTable") as gone:
            use_case(three_zones.engine, three_zones.ask(SPREADING, nodes=stale))
        assert gone.value.metadata == {"nodeTableId": table(three_zones)}
    with pytest.raises(NodeTableChanged):
        verdicts(three_zones, NodeSelection(indices=[0]))


def test_positions_refer_to_the_table_of_a_resumed_cycle(three_zones: World):
    begun = pre_filter(three_zones.engine, three_zones.ask(HARD)).resolved
    of_cycle = NodeSelection(indices=[2], node_table=table(three_zones))
    three_zones.apply(node("m", "a"))
    of_now = NodeSelection(indices=[3], node_table=table(three_zones))
    ask = three_zones.ask(cycle=begun.cycle_id, nodes=of_cycle)
    assert filter_(three_zones.engine, ask).verdicts.tolist() == [FITS]
    with pytest.raises(NodeTableChanged):
        filter_(three_zones.engine, three_zones.ask(cycle=begun.cycle_id, nodes=of_now))
    assert verdicts(three_zones, of_now) == [FITS]


def test_positions_outside_the_table_are_refused(three_zones: World):
    current = table(three_zones)
    for outside in (3, -1):
        with pytest.raises(InvalidRequest, match="the table has 3 nodes"):
            verdicts(three_zones, NodeSelection(indices=[0, outside], node_table=current))


def test_a_position_given_twice_is_a_node_given_twice(three_zones: World):
    twice = NodeSelection(indices=[1, 1], node_table=table(three_zones))
    assert verdicts(three_zones, twice) == [TOO_SKEWED, TOO_SKEWED]
    with pytest.raises(InvalidRequest, match="once"):
        raw(three_zones, twice)


def test_a_table_is_known_by_its_names_alone(three_zones: World):
    """Other slots, other labels, another process: the same table, as long as the names are."""
    before = table(three_zones)
    three_zones.apply(node("n-a", "other"), running("w9", "n-a"))
    assert table(three_zones) == before
    three_zones.apply(node("n-0"))
    assert table(three_zones) != before
    three_zones.delete(Kind.NODE, "n-0")
    three_zones.delete(Kind.NODE, "n-b")
    three_zones.apply(node("n-b", "b"))
    assert table(three_zones) == before
    with closing(Process(three_zones.store)) as other:
        answer = filter_(other.engine, three_zones.ask(HARD))
        assert answer.resolved.cycle.view.snapshot.nodes.id == before


def test_names_are_in_order_as_bytes(empty_world: World):
    names = ["n-2", "n-10", "N-1", "n-1", "n.1", "n-1-a", "~n", "n_1", "0"]
    empty_world.apply(*map(node, names))
    answer = filter_(empty_world.engine, empty_world.ask(incoming()))
    found = answer.resolved.cycle.view.snapshot.nodes.sorted_names
    assert list(found) == sorted(names, key=str.encode)
    assert answer.verdicts.size == len(names)


def test_scores_without_a_choice_are_aligned_with_the_nodes_that_pass(three_zones: World):
    three_zones.apply(node("a-keyless"))
    answer = score(three_zones.engine, three_zones.ask(incoming(constraint(), soft(HOSTNAME))))
    assert answer.positions is not None
    names = answer.resolved.cycle.view.snapshot.nodes.sorted_names
    assert [names[p] for p in answer.positions] == ["n-c"]
    assert answer.scores is not None
    assert answer.scores.raw.tolist() == [0]
    chosen = three_zones.ask(SPREADING, nodes=["n-b"])
    assert score(three_zones.engine, chosen).positions is None
