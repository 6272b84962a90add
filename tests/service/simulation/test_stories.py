"""Every story, in process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.simulation.calls import answered
from tests.service.simulation.stories import Story, check, stories

if TYPE_CHECKING:
    from tests.service.world import World


@pytest.mark.parametrize("story", [*stories()], ids=lambda story: story.name)
def test_stories_have_the_expected_result(empty_world: World, story: Story):
    empty_world.apply(*story.cluster)
    check(answered(empty_world, story.request), story.expect)
