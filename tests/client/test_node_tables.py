"""What goes over the wire about node names."""

from __future__ import annotations

import pytest

from topospread_client import _rpcs as rpcs
from topospread_proto.v1.common_pb2 import VERDICT_CODE_ERROR, VERDICT_CODE_SUCCESS, Verdict
from topospread_proto.v1.decision_service_pb2 import (
    FilterRequest,
    FilterResponse,
    ScoreRequest,
    ScoreResponse,
)

PASSES = Verdict(code=VERDICT_CODE_SUCCESS)
POD = {"kind": "Pod", "metadata": {"name": "incoming"}}


def full(table, *names):
    return FilterResponse(
        node_table_id=table,
        node_names=names,
        verdicts=[0] * len(names),
        verdict_table=[PASSES],
        verdict=PASSES,
    )


def short(table, count):
    return FilterResponse(
        node_table_id=table, verdicts=[0] * count, verdict_table=[PASSES], verdict=PASSES
    )


def held(script, message):
    return [message.FromString(request).node_table_id for _, request, _ in script.seen]


def test_known_table_is_named_and_its_names_are_used(connect, script):
    script.answer(
        rpcs.FILTER, full("t1", "a", "b"), short("t1", 2), full("t2", "a"), short("t2", 1)
    )
    client = connect(script.address)
    answers = [client.filter(POD) for _ in range(4)]
    assert held(script, FilterRequest) == ["", "t1", "t1", "t2"]
    assert [list(answer.node_names) for answer in answers] == [["a", "b"], ["a", "b"], ["a"], ["a"]]


def test_each_cluster_has_its_own_table(connect, script):
    script.answer(rpcs.FILTER, full("t1", "a"), full("t2", "b"), short("t1", 1))
    client = connect(script.address)
    client.filter(POD, cluster="one")
    client.filter(POD, cluster="two")
    assert list(client.filter(POD, cluster="one").node_names) == ["a"]
    assert held(script, FilterRequest) == ["", "", "t1"]


def test_chosen_nodes_need_no_table(connect, script):
    script.answer(rpcs.FILTER, full("t1", "a", "b"), short("t1", 1))
    client = connect(script.address)
    client.filter(POD)
    assert list(client.filter(POD, candidates=["b"]).node_names) == ["b"]
    assert held(script, FilterRequest) == ["", ""]


def test_an_error_about_the_pod_keeps_the_table_that_came_with_it(connect, script):
    refused = full("t1", "a", "b")
    del refused.verdicts[:]
    refused.verdict.code = VERDICT_CODE_ERROR
    script.answer(rpcs.FILTER, refused, short("t1", 2))
    client = connect(script.address)
    assert len(client.filter(POD)) == 0
    assert client.filter(POD).feasible() == ["a", "b"]


def test_scores_have_indices_where_the_table_is_known(connect, script):
    script.answer(rpcs.FILTER, full("t1", "a", "b", "c"))
    script.answer(
        rpcs.SCORE,
        ScoreResponse(
            node_table_id="t1", verdict=PASSES, node_names=["c"], raw=[7], normalized=[100]
        ),
        ScoreResponse(
            node_table_id="t1",
            verdict=PASSES,
            node_indices=[0, 2],
            raw=[3, 5],
            normalized=[100, 60],
        ),
        ScoreResponse(
            node_table_id="t2", verdict=PASSES, node_names=["d"], raw=[1], normalized=[100]
        ),
    )
    client = connect(script.address)
    assert client.score(POD).raw_by_node() == {"c": 7}
    client.filter(POD)
    assert client.score(POD).normalized_by_node() == {"a": 100, "c": 60}
    assert client.score(POD).raw_by_node() == {"d": 1}
    requests = [bytes_ for path, bytes_, _ in script.seen if path == rpcs.SCORE.path]
    assert [ScoreRequest.FromString(each).node_table_id for each in requests] == ["", "t1", "t1"]


@pytest.mark.parametrize("installed", [True, False], ids=["with NumPy", "without NumPy"])
def test_columns_are_arrays_with_and_without_numpy(connect, script, monkeypatch, installed):
    from topospread_client import _decoding as decoding

    if not installed:
        monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    decoding._numpy_fromiter.cache_clear()
    script.answer(
        rpcs.SCORE,
        ScoreResponse(
            verdict=PASSES, node_names=["a", "b"], raw=[-1, 1 << 40], normalized=[0, 100]
        ),
    )
    scores = connect(script.address).score(POD)
    decoding._numpy_fromiter.cache_clear()
    assert type(scores.raw).__module__ == ("numpy" if installed else "array")
    assert scores.raw.tolist() == [-1, 1 << 40]
    assert list(scores.normalized) == [0, 100]
    assert scores.raw_by_node() == {"a": -1, "b": 1 << 40}
