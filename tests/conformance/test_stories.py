"""The proposals' stories come out as the proposals tell them, on every evaluator."""

import copy

import pytest

from tests.batches import check_each
from tests.conformance.evaluators import Evaluator
from tests.conformance.playing import Play, played, story_differences
from tests.conformance.stories import parse_story, stories

STORIES = list(stories())


def test_stories(evaluator: Evaluator) -> None:
    check_each(STORIES, lambda story: played(story, evaluator))


def test_derived_constraints_are_not_written_back_to_the_pod(evaluator: Evaluator) -> None:
    for story in STORIES:
        case = story.decision()
        before = copy.deepcopy(case)
        evaluator.evaluate(case)
        assert case == before, story.name


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
