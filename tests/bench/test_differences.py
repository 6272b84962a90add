"""Differences between answers are told apart, and excused only by what explains one."""

from __future__ import annotations

from bench.campaigns.differences import Differences

OLD = {"code": "OK", "nodes": [{"name": "a", "score": 1}, {"name": "b", "score": 2}]}
NEW = {"code": "OK", "nodes": [{"name": "a", "score": 3}, {"name": "c", "score": 2}]}


def test_each_value_that_differs_is_a_group():
    found = Differences({})
    assert found.compare("Score", OLD, OLD)
    assert not found.compare("Score", OLD, NEW, "of a pod")
    assert (found.equal, found.different) == (1, 1)
    assert found.unexplained() == {"Score: nodes[].score": 1, "Score: nodes[].name": 1}
    assert found.findings()[0] == "Score: nodes[].score (1)\nof a pod\nold 1\nnew 3"


def test_explained_difference_is_no_finding():
    found = Differences({r"Score: .*score\nold 1\nnew 3": "better scores", "name": "other names"})
    found.compare("Score", OLD, NEW)
    assert found.findings() == []
    assert found.excused() == {r"Score: .*score\nold 1\nnew 3": 1, "name": 1}


def test_explanation_of_nothing_is_a_finding():
    found = Differences({"Filter": "goes"})
    found.compare("Score", OLD, OLD)
    assert found.findings() == ["explained, but no answer differs so: Filter"]
    assert found.findings(whole=False) == []
