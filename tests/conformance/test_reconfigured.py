"""Args and gates of a configuration file that changes while the server runs.

The other evaluators bring the rules with each request; here they are the server's own.
"""

from collections.abc import Iterator

import pytest

from tests.batches import check_each
from tests.conformance.cases import decisions, differences
from tests.conformance.playing import played
from tests.conformance.reconfigured import Reconfigured, configured_server
from tests.conformance.stories import stories

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
    with configured_server() as (server, peer, file):
        evaluator = Reconfigured(peer, server, file)
        yield evaluator
        evaluator.close()


def test_stories_by_the_rules_of_the_file(reconfigured: Reconfigured) -> None:
    check_each(STORIES, lambda story: played(story, reconfigured))


def test_decisions_by_the_rules_of_the_file(reconfigured: Reconfigured) -> None:
    accepted = [case for case in decisions() if "newError" not in case.expect]
    check_each(accepted[::SOME], lambda case: differences(case.expect, reconfigured.evaluate(case)))
