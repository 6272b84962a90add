"""Every story, in process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.simulations.asking import answered
from tests.service.simulations.stories import Story, check, stories

if TYPE_CHECKING:
    from tests.service.world import World


@pytest.mark.parametrize("story", [*stories()], ids=lambda story: story.name)
def test_what_would_happen(empty_world: World, story: Story):
    empty_world.apply(*story.cluster)
    check(answered(empty_world, story.request), story.expect)
