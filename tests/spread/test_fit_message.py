"""The message on a pod that fits nowhere."""

from collections import Counter

import pytest

from tests.conformance.cases import FitCount, fit_counts
from topospread.spread.verdicts import NO_NODES, error_message, fit_message


@pytest.mark.parametrize("case", list(fit_counts()), ids=lambda case: case.name)
def test_recorded_messages(case: FitCount):
    counts: Counter[str] = Counter()
    for status in case.statuses:
        counts.update(dict.fromkeys(status["reasons"], status["nodes"]))
    assert fit_message(sum(s["nodes"] for s in case.statuses), counts) == case.message


def test_a_cluster_without_nodes():
    assert fit_message(0, {}) == NO_NODES


def test_counts_are_ordered_as_text():
    counts = {"a": 2, "b": 10, "c": 2}
    assert fit_message(14, counts) == "0/14 nodes are available: 10 b, 2 a, 2 c."


def test_a_prefilter_that_failed():
    assert error_message("why") == 'running PreFilter plugin "PodTopologySpread": why'
