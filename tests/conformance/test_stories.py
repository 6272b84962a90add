"""The proposals' stories come out as the proposals tell them, on every evaluator."""

import copy

import pytest

from tests.conformance.evaluators import Evaluator
from tests.conformance.playing import Play, told_otherwise
from tests.conformance.stories import Story, stories, story

STORIES = list(stories())


@pytest.mark.parametrize("told", [s for s in STORIES if not s.steps], ids=lambda told: told.name)
def test_story(evaluator: Evaluator, told: Story) -> None:
    assert told_otherwise(told, evaluator) == []


@pytest.mark.parametrize("told", [s for s in STORIES if s.steps], ids=lambda told: told.name)
def test_story_in_steps(evaluator: Evaluator, told: Story) -> None:
    play = Play(told, evaluator)
    for number, step in enumerate(told.steps, start=1):
        assert play.play(step) == [], f"step {number}: {step}"


@pytest.mark.parametrize("told", STORIES, ids=lambda told: told.name)
def test_derived_constraints_are_not_written_back_to_the_pod(
    evaluator: Evaluator, told: Story
) -> None:
    case = told.decision()
    before = copy.deepcopy(case)
    evaluator.evaluate(case)
    assert case == before


def test_the_gate_scenario_has_its_17_steps() -> None:
    numbers = [[step["step"] for step in told.steps] for told in STORIES if "17 steps" in told.name]
    assert numbers == [list(range(1, 18))]


def test_a_story_with_an_unknown_member_is_refused() -> None:
    told = {"name": "x", "source": "y", "cluster": {}, "pod": {}, "expect": {"fit": []}}
    with pytest.raises(ValueError, match=r"unknown \['fit'\]"):
        story(told, "kep")


def test_a_wrong_expectation_is_noticed(evaluator: Evaluator) -> None:
    told = {
        "name": "wrong in every way",
        "source": "none",
        "cluster": {"zone1": 1, "zone2": 0},
        "pod": {
            "constraints": [
                {"maxSkew": 1, "topologyKey": "zone"},
                {"maxSkew": 1, "topologyKey": "node", "whenUnsatisfiable": "ScheduleAnyway"},
            ]
        },
        "expect": {
            "fits": ["zone1"],
            "verdicts": {"zone2": "Unschedulable"},
            "prefers": [["zone1"], ["zone2"]],
            "preFilter": "Skip",
            "preScore": "Skip",
            "message": "0/2 nodes are available: none.",
            "derived": [{"maxSkew": 2, "topologyKey": "zone"}],
        },
    }
    found = told_otherwise(story(told, "kep"), evaluator)
    assert {line.partition(":")[0] for line in found} >= {
        *("fits", "zone2-node", "prefers", "preFilter", "preScore", "message", "filter[zone1-node]")
    }


def test_a_wrong_expectation_of_a_step_is_noticed(evaluator: Evaluator) -> None:
    told = {
        "name": "wrong in every way",
        "source": "none",
        "cluster": {"zone1": 0},
        "pod": {"constraints": [{"maxSkew": 1, "topologyKey": "zone"}]},
        "steps": [{"create": 1, "placed": 0, "waiting": 1, "spread": {"zone1": 0}}],
    }
    play = Play(story(told, "kep"), evaluator)
    assert len(play.play({"create": 1, "placed": 0, "waiting": 1, "spread": {"zone1": 0}})) == 3
