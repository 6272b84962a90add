"""The proposals' stories come out as the proposals tell them, on every evaluator."""

import copy

import pytest

from tests.conformance.evaluators import Evaluator
from tests.conformance.playing import Play, story_differences
from tests.conformance.stories import Story, parse_story, stories

STORIES = list(stories())


@pytest.mark.parametrize("story", [s for s in STORIES if not s.steps], ids=lambda story: story.name)
def test_story(evaluator: Evaluator, story: Story) -> None:
    assert story_differences(story, evaluator) == []


@pytest.mark.parametrize("story", [s for s in STORIES if s.steps], ids=lambda story: story.name)
def test_story_in_steps(evaluator: Evaluator, story: Story) -> None:
    play = Play(story, evaluator)
    for number, step in enumerate(story.steps, start=1):
        assert play.play(step) == [], f"step {number}: {step}"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_derived_constraints_are_not_written_back_to_the_pod(
    evaluator: Evaluator, story: Story
) -> None:
    case = story.decision()
    before = copy.deepcopy(case)
    evaluator.evaluate(case)
    assert case == before


def test_the_gate_scenario_has_its_17_steps() -> None:
    numbers = [
        [step["step"] for step in story.steps] for story in STORIES if "17 steps" in story.name
    ]
    assert numbers == [list(range(1, 18))]


def test_a_story_with_an_unknown_member_is_refused() -> None:
    story = {"name": "x", "source": "y", "cluster": {}, "pod": {}, "expect": {"fit": []}}
    with pytest.raises(ValueError, match=r"unknown \['fit'\]"):
        parse_story(story, "kep")


def test_a_wrong_expectation_is_noticed(evaluator: Evaluator) -> None:
    story = {
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
    found = story_differences(parse_story(story, "kep"), evaluator)
    assert {line.partition(":")[0] for line in found} >= {
        *("fits", "zone2-node", "prefers", "preFilter", "preScore", "message", "filter[zone1-node]")
    }


def test_a_wrong_expectation_of_a_step_is_noticed(evaluator: Evaluator) -> None:
    story = {
        "name": "wrong in every way",
        "source": "none",
        "cluster": {"zone1": 0},
        "pod": {"constraints": [{"maxSkew": 1, "topologyKey": "zone"}]},
        "steps": [{"create": 1, "placed": 0, "waiting": 1, "spread": {"zone1": 0}}],
    }
    play = Play(parse_story(story, "kep"), evaluator)
    assert len(play.play({"create": 1, "placed": 0, "waiting": 1, "spread": {"zone1": 0}})) == 3
