"""Disks and claims of pods that run, and of those that preemption makes way for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.fit.volumes import CLAIMED, CLASS, claim, fits, judged, pod

if TYPE_CHECKING:
    from tests.reference.objects import Json

DISK = {"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}
OTHER_DISK = {"name": "d", "awsElasticBlockStore": {"volumeID": "vol-2"}}
ALONE = claim(mode="ReadWriteOncePod")


@pytest.mark.parametrize(
    ("own", "other", "fitting"),
    [
        ([DISK], [OTHER_DISK], True),
        ([DISK], [DISK], False),
        ([CLAIMED], [DISK], True),
        ([CLAIMED], [CLAIMED], False),
        ([CLAIMED, DISK], [CLAIMED], False),
    ],
)
def test_a_pod_that_runs_has_its_disk_and_its_claim(
    own: list[Json], other: list[Json], fitting: bool
) -> None:
    running = pod(*other, name="other", node="n")
    assert fits(judged(pod(*own), ALONE, CLASS, running)) is fitting


@pytest.mark.parametrize(
    ("own", "other", "fitting"),
    [
        ([DISK], [OTHER_DISK], True),
        ([DISK], [DISK], False),
        # Without a disk and without a conflict the plugin is not asked any more.
        ([CLAIMED], [CLAIMED], True),
        ([CLAIMED, DISK], [CLAIMED], False),
    ],
)
def test_a_nominated_pod_is_looked_at_where_the_plugin_has_something_to_do(
    own: list[Json], other: list[Json], fitting: bool
) -> None:
    waiting = pod(*other, name="other", nominated="n")
    assert fits(judged(pod(*own), ALONE, CLASS, waiting)) is fitting


def test_a_claim_that_several_pods_may_have_is_shared() -> None:
    running = pod(CLAIMED, name="other", node="n")
    assert fits(judged(pod(CLAIMED), claim(), CLASS, running))
