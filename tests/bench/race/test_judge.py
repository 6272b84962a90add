"""The race's judge agrees with the reference model, which shares no line with it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.race import scenario
from bench.race.judge import allows
from tests.reference.evaluation import evaluate

Json = dict[str, Any]


def bound(random: Random, number: int, nodes: list[Json]) -> Json:
    """A pod on a node, or on one that is gone, in one of the states that pods are in."""
    app = scenario.any_app(random)
    namespace = random.choice(["team-0", "team-0", "team-0", "team-1"])
    pod = scenario.pod(namespace, app, f"0-{number}")
    names = [node["metadata"]["name"] for node in nodes]
    pod["spec"]["nodeName"] = random.choice([*names, *names, *names, "gone"])
    state = random.random()
    if state < 0.1:
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T04:00:00Z"
    elif state < 0.2:
        pod["status"] = {"phase": random.choice(["Failed", "Succeeded"])}
    elif state < 0.3:
        pod["status"] = {"phase": "Running"}
    return pod


@given(seed=st.integers(0, 2**32), size=st.integers(1, 16), pods=st.integers(0, 60))
def test_judge_agrees_with_the_reference_model(seed: int, size: int, pods: int) -> None:
    random = Random(seed)
    numbers = random.sample(range(40), size)
    nodes = [scenario.node(number, tainted=random.random() < 0.25) for number in numbers]
    cluster = {
        "nodes": nodes,
        "pods": [bound(random, number, nodes) for number in range(pods)],
        "services": scenario.services(random.choice([["team-0"], ["team-1"], []])),
    }
    for app in scenario.APPS:
        incoming = scenario.pod("team-0", app, "1-1")
        verdicts = evaluate(cluster, incoming, args=scenario.ARGS).get("filter")
        for node in nodes:
            name = node["metadata"]["name"]
            fits = verdicts is None or verdicts[name]["code"] == "Success"
            assert allows(cluster, incoming, name, scenario.ARGS) == fits


@pytest.mark.parametrize("app", scenario.APPS)
def test_no_app_is_allowed_everywhere_or_nowhere_only(app: str) -> None:
    """Otherwise the comparison above would prove nothing about it."""
    random = Random(app)
    verdicts = set()
    for number in range(200):
        nodes = [scenario.node(n) for n in random.sample(range(19), 8)]
        pods = [bound(random, n, nodes) for n in range(60)]
        cluster = {"nodes": nodes, "pods": pods, "services": scenario.services(["team-0"])}
        incoming = scenario.pod("team-0", app, f"1-{number}")
        name = random.choice(nodes)["metadata"]["name"]
        verdicts.add(allows(cluster, incoming, name, scenario.ARGS))
    assert verdicts == {True, False}


def test_pod_is_made_again_from_its_name() -> None:
    for app in scenario.APPS:
        pod = scenario.pod("team-3", app, "7-12")
        assert scenario.pod_named("team-3", pod["metadata"]["name"]) == pod
