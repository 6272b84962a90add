"""Args and gates of a configuration file that changes while the server runs.

The other evaluators bring the rules with each request; here they are the server's own.
"""

from collections.abc import Iterator

import pytest

from tests.conformance.cases import decisions, differences
from tests.conformance.playing import Play, story_differences
from tests.conformance.reconfigured import Reconfigured, configured_server
from tests.conformance.stories import Story, stories

STORIES = [
    story
    for story in stories()
    # Args that are refused never get into force.
    if (story.gates or story.args or story.steps) and "newError" not in story.expect
]
SOME = 25
"""Every so many-th decision is asked; all of them are elsewhere."""


@pytest.fixture(scope="module")
def reconfigured() -> Iterator[Reconfigured]:
    """One server for all stories."""
    with configured_server() as (server, channel, file):
        evaluator = Reconfigured(channel, server, file)
        yield evaluator
        evaluator.close()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_story(reconfigured: Reconfigured, story: Story) -> None:
    assert story_differences(story, reconfigured) == []
    play = Play(story, reconfigured)
    for number, step in enumerate(story.steps, start=1):
        assert play.play(step) == [], f"step {number}: {step}"


def test_decisions_by_the_rules_of_the_file(reconfigured: Reconfigured) -> None:
    accepted = [case for case in decisions() if "newError" not in case.expect]
    for case in accepted[::SOME]:
        assert differences(case.expect, reconfigured.evaluate(case)) == [], case.name
