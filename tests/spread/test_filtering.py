"""The verdict on one node is its verdict among all, and names the constraint that decides."""

from __future__ import annotations

from tests.conformance.cases import decisions
from tests.conformance.core import folded, pod_of, prepared, verdicts_on
from tests.conformance.objects import rules_of
from topospread.spread.filtering import filter_nodes, first_rejecting, pre_filter, verdict_of
from topospread.spread.verdicts import FITS, LABEL_MISSING, TOO_SKEWED


def test_single_node_is_judged_as_among_all():
    judged = [case for case in decisions() if "filter" in case.expect]
    assert len(judged) > 500
    for case in judged:
        constraints, snapshot = prepared(
            folded(case.cluster), pod_of(case.pod), rules_of(case.args, case.gates)
        )
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
    case = next(decisions())
    snapshot = folded(case.cluster).snapshot
    assert filter_nodes((), snapshot).tolist() == [FITS] * snapshot.nodes.capacity
    assert verdict_of((), snapshot, int(snapshot.nodes.order[0])) == FITS
