"""Requests that cost far more than any real one, and values that no one expects: never a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.service.world import HOSTNAME, World, constraint, incoming, node, running, soft
from topospread.codec.frames import json_pod
from topospread.errors import InvalidRequest
from topospread.kube.objects import SCHEDULE_ANYWAY, SpreadConstraint
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.extension_points import filter_, pre_filter, score
from topospread.service.decisions.request import SettingsOverride
from topospread.spread.settings import LIST, ConfiguredRules, Profile
from topospread.spread.verdicts import Code

USE_CASES = (pre_filter, filter_, score, evaluate)


@pytest.mark.parametrize("use_case", USE_CASES)
def test_thousands_of_constraints_are_refused(three_zones: World, use_case):
    pod = incoming(*[constraint(f"key-{n}") for n in range(4000)])
    with pytest.raises(InvalidRequest, match="4000 constraints, at most 64 are judged"):
        use_case(three_zones.engine, three_zones.ask(json_pod(pod)))


def test_as_many_constraints_as_are_allowed_are_judged(three_zones: World):
    pod = incoming(*[constraint(HOSTNAME, f"app-{n}") for n in range(32)], *[soft()] * 32)
    assert evaluate(three_zones.engine, three_zones.ask(pod)).feasible == 3


def huge(**selector: Any) -> dict[str, Any]:
    return incoming(constraint(labelSelector=selector))


@pytest.mark.parametrize(
    "pod",
    [
        huge(matchLabels={f"key-{n}": "x" for n in range(5001)}),
        huge(matchExpressions=[{"key": "a", "operator": "Exists"}] * 5001),
        huge(
            matchExpressions=[
                {"key": "a", "operator": "In", "values": [str(n) for n in range(5001)]}
            ]
        ),
        incoming(constraint(matchLabelKeys=["a"] * 5001)),
        incoming(tolerations=[{"operator": "Exists"}] * 5001),
        incoming(nodeSelector={f"key-{n}": "x" for n in range(5001)}),
        incoming(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In"}] * 2501},
                            {"matchExpressions": [{"key": "a", "operator": "Exists"}] * 2501},
                        ]
                    }
                }
            }
        ),
    ],
    ids=["labels", "expressions", "values", "label keys", "tolerations", "node selector", "terms"],
)
def test_huge_selectors_are_refused(three_zones: World, pod):
    with pytest.raises(InvalidRequest, match="more than 5000 expressions and values"):
        evaluate(three_zones.engine, three_zones.ask(json_pod(pod)))


def test_big_selectors_are_judged(three_zones: World):
    values = ["web", *(str(number) for number in range(4900))]
    expression = {"key": "app", "operator": "In", "values": values}
    pod = incoming(constraint(labelSelector={"matchExpressions": [expression]}))
    answer = evaluate(three_zones.engine, three_zones.ask(pod))
    assert [ranked.name for ranked in answer.top] == ["n-c"]


def test_a_profile_of_the_request_has_the_limit_of_a_pod(three_zones: World):
    """Defaults come to the pod as if they were its own."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}},
    }
    three_zones.apply(service)

    def asked(count: int) -> SettingsOverride:
        return SettingsOverride(
            Profile(
                defaulting=LIST,
                default_constraints=tuple(
                    SpreadConstraint(1, f"key-{n}", SCHEDULE_ANYWAY) for n in range(count)
                ),
            )
        )

    ask = three_zones.ask(incoming(), settings=asked(64))
    assert evaluate(three_zones.engine, ask).pre_score.code is Code.SUCCESS
    many = asked(10_000)
    with pytest.raises(InvalidRequest, match="10000 constraints, at most 64 are judged"):
        evaluate(three_zones.engine, three_zones.ask(incoming(), settings=many))
    assert isinstance(many.profile, Profile)
    configured = ConfiguredRules({"mine": replace(many.profile, name="mine")})
    three_zones.process.rules.replace(configured)
    assert evaluate(three_zones.engine, three_zones.ask(incoming(constraint()))).feasible == 1


def test_labels_and_domains_may_be_any_text(empty_world: World):
    odd = ["", " ", "ä ö", "\U0001f600", "a\x00b", "x" * 5000, "\n"]
    empty_world.apply(
        *(node(f"n{at}", text) for at, text in enumerate(odd)),
        *(running(f"w{at}", f"n{at}", text) for at, text in enumerate(odd)),
    )
    pod = incoming(constraint(maxSkew=1), app="web")
    answer = pre_filter(empty_world.engine, empty_world.ask(pod), with_counts=True)
    assert dict(answer.constraints[0].domains) == dict.fromkeys(odd, 0)
    assert [value for value, _ in answer.constraints[0].domains] == sorted(odd, key=str.encode)
    # As labels of pods they are facts; in a selector only what an API server takes parses.
    for text in odd:
        asked = incoming(constraint(app=text), app=text)
        status = pre_filter(empty_world.engine, empty_world.ask(asked)).status
        assert status.code is (Code.SUCCESS if text == "" else Code.ERROR)


def test_odd_keys_and_actions_are_answered(three_zones: World):
    keyless = evaluate(three_zones.engine, three_zones.ask(incoming(constraint("no key! ä"))))
    assert [status.code for status, _ in keyless.verdicts] == [Code.UNSCHEDULABLE_AND_UNRESOLVABLE]
    for action in ("", "doNotSchedule", "Sometimes"):
        pod = incoming(constraint(whenUnsatisfiable=action))
        assert evaluate(three_zones.engine, three_zones.ask(pod)).pre_filter.code is Code.SKIP


def test_the_largest_numbers_are_answered(three_zones: World):
    for skew in (2**31 - 1, -(2**31)):
        for domains in (2**31 - 1, -(2**31), None):
            pod = incoming(constraint(maxSkew=skew, minDomains=domains), soft(maxSkew=skew))
            answer = evaluate(three_zones.engine, three_zones.ask(pod))
            assert answer.feasible == (3 if skew > 0 else 0)
