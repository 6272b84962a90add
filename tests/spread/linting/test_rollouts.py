"""What a manifest says of rollouts, compared with every way that one can go."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.spread.linting.rollout_model import placements, rollouts_end
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    ZONE_LABEL,
    LabelSelector,
    Pod,
    SpreadConstraint,
)
from topospread.kube.rollouts import Rollout, Share
from topospread.spread.linting.engine import Knowledge, lint
from topospread.spread.linting.workloads import DomainNumbers, LintedWorkload

SELECTOR = LabelSelector((("app", "web"),))


def deployment(replicas, max_skew, surge, unavailable, min_domains=None, keys=()):
    constraint = SpreadConstraint(
        max_skew,
        ZONE_LABEL,
        DO_NOT_SCHEDULE,
        SELECTOR,
        min_domains=min_domains,
        match_label_keys=keys,
    )
    return LintedWorkload(
        "Deployment",
        Pod("web", labels={"app": "web"}, constraints=(constraint,)),
        replicas,
        SELECTOR,
        ("pod-template-hash",),
        Rollout(Share(surge), Share(unavailable)),
    )


CASES = [
    (replicas, domains, usable, max_skew, min_domains, surge, unavailable)
    for replicas, domains, max_skew, surge, unavailable in product(
        (2, 3, 4), (2, 3), (1, 2), (0, 1), (0, 1)
    )
    for usable in (domains - 1, domains)
    for min_domains in (1, domains + 1)
    if surge or unavailable
]


def lint_codes(case):
    replicas, domains, usable, max_skew, min_domains, surge, unavailable = case
    workload = deployment(replicas, max_skew, surge, unavailable, min_domains)
    known = Knowledge({0: DomainNumbers(domains, usable)})
    return {each.code: each.severity for each in lint(workload, known)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_the_numbers_of_a_cluster_lint_says_which_replicas_find_no_place(case):
    replicas, domains, usable, max_skew, min_domains, _, _ = case
    starts = placements(replicas, domains, usable, max_skew, min_domains)
    assert ("TooFewDomains" in lint_codes(case)) == (not starts)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rollout_that_lint_passes_ends_within_max_skew(case):
    replicas, domains, usable, max_skew, min_domains, surge, unavailable = case
    rules = {"usable": usable, "max_skew": max_skew, "min_domains": min_domains}
    ends = {
        end
        for start in placements(replicas, domains, **rules)
        for end in rollouts_end(start, replicas, surge, unavailable, **rules)
        if end is not None
    }
    skewed = any(max(end) - min(end) > max_skew for end in ends)
    if skewed:
        assert "RolloutSkew" in lint_codes(case)
    if min_domains > domains or usable < domains or domains >= replicas + surge:
        assert not skewed
        assert "RolloutSkew" not in lint_codes(case)


def test_a_rollout_that_adds_pods_is_said_to_skew_where_it_can():
    assert "RolloutSkew" in lint_codes((2, 2, 2, 1, 1, 1, 0))
    assert (2, 0) in rollouts_end((1, 1), 2, 1, 0, usable=2, max_skew=1, min_domains=1)


def test_a_constraint_on_each_revision_by_itself_gets_neither():
    workload = deployment(3, 1, 1, 0, keys=("pod-template-hash",))
    found = {each.code for each in lint(workload)}
    assert not found & {"RolloutSkew", "RolloutDeadlock"}


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable"), [(1, 1, 0), (3, 1, 0), (4, 1, 1), (5, 2, 1), (8, 2, 2)]
)
def test_percentages_are_rounded_as_upstream_does(replicas, surge, unavailable):
    quarter = Rollout(Share(25, is_percentage=True), Share(25, is_percentage=True))
    assert (quarter.surge(replicas), quarter.unavailable(replicas)) == (surge, unavailable)


def test_neither_surge_nor_unavailable_makes_one_unavailable():
    neither = Rollout(Share(0), Share(10, is_percentage=True))
    assert (neither.surge(4), neither.unavailable(4)) == (0, 1)


@pytest.mark.parametrize(("unavailable", "stuck"), [(0, True), (1, False)])
def test_replicas_that_an_autoscaler_sets_may_get_stuck_with_none_unavailable(unavailable, stuck):
    found = {each.code: each.text for each in lint(deployment(None, 1, 1, unavailable))}
    assert ("RolloutDeadlock" in found) == stuck
    assert "RolloutSkew" in found


def test_a_percentage_of_an_unknown_number_is_that_of_several_replicas():
    quarter = Rollout(Share(25, is_percentage=True), Share(25, is_percentage=True))
    found = {each.code for each in lint(replace(deployment(None, 1, 1, 0), rollout=quarter))}
    assert "RolloutDeadlock" not in found
    assert "RolloutSkew" in found


def test_places_for_an_unknown_number_of_replicas_are_not_counted():
    workload = deployment(None, 1, 1, 0)
    found = {each.code for each in lint(workload, Knowledge({0: DomainNumbers(3, 2)}))}
    assert not found & {"RolloutDeadlock", "TooFewDomains"}
