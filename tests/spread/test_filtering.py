"""The verdict on one node is its verdict among all; messages when nothing fits."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.cases import FitCount, decisions, fit_counts
from tests.conformance.core import folded, pod_of, prepared, verdicts_on
from tests.conformance.objects import rules_of
from topospread.spread.filtering import filter_nodes, first_rejecting, pre_filter, verdict_of
from topospread.spread.verdicts import (
    FITS,
    LABEL_MISSING,
    NO_NODES,
    TOO_SKEWED,
    error_message,
    fit_message,
)


def test_single_node_is_judged_as_among_all():
    judged = [case for case in decisions() if "filter" in case.expect]
    assert len(judged) > 500
    for case in judged:
        constraints, snapshot = prepared(folded(case.cluster), pod_of(case.pod), rules_of(case))
        hard = constraints.hard.constraints
        verdicts = verdicts_on(constraints, snapshot)
        states = pre_filter(hard, snapshot)
        for slot in snapshot.nodes.order.tolist():
            assert verdict_of(states, snapshot, slot) == verdicts[slot], case.name
            position = first_rejecting(states, snapshot, slot)
            # The constraints before it let the node pass, and it alone rejects it so.
            before = filter_nodes(states[: max(position, 0)], snapshot)
            assert before[slot] == FITS
            if position >= 0:
                alone = filter_nodes(states[position : position + 1], snapshot)
                assert alone[slot] == verdicts[slot]
                assert verdicts[slot] in (TOO_SKEWED, LABEL_MISSING)
            else:
                assert verdicts[slot] == FITS


def test_without_constraints_every_node_fits():
    case = decisions()[0]
    snapshot = folded(case.cluster).snapshot
    assert filter_nodes((), snapshot).tolist() == [FITS] * snapshot.nodes.capacity
    assert verdict_of((), snapshot, int(snapshot.nodes.order[0])) == FITS


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
