"""Victims that are known by their uid alone: found in the log, not by a scan for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.counting import Counting
from tests.service.world import CLUSTER, World, running
from topospread.service.extender.preemption import PodsByUid, Victim
from topospread.store.model import Kind

if TYPE_CHECKING:
    from tests.service.world import Json


def with_uid(name: str, uid: str) -> Json:
    pod = running(name, "n-a")
    pod["metadata"]["uid"] = uid
    return pod


@pytest.fixture
def counting(three_zones: World) -> Counting:
    three_zones.apply(*(with_uid(f"p-{n}", f"u-{n}") for n in range(50)))
    return Counting(three_zones.store)


def names(pods: PodsByUid, *uids: str) -> dict[str, str]:
    found = pods.find(CLUSTER, [Victim(uid) for uid in uids])
    return {uid: pod.name for uid, pod in found.items()}


def test_unknown_uids_cost_one_scan_and_then_what_the_log_has(
    three_zones: World, counting: Counting
) -> None:
    pods = PodsByUid(counting)
    assert names(pods, "u-3", "nobody") == {"u-3": "p-3"}
    once = counting.objects
    assert names(pods, "nobody", "another") == {}
    three_zones.apply(with_uid("later", "u-later"), with_uid("p-4", "u-of-a-successor"))
    three_zones.delete(Kind.POD, "p-3", "default")
    asked = ("u-later", "u-3", "u-4", "u-of-a-successor", "u-5")
    expected = {"u-later": "later", "u-of-a-successor": "p-4", "u-5": "p-5"}
    assert names(pods, *asked) == expected
    # Those that it knows by name are read.
    assert counting.objects - once <= len(asked)
    assert counting.calls["scan"] == 1


def test_uids_of_another_history_are_read_anew(three_zones: World, counting: Counting) -> None:
    pods = PodsByUid(counting)
    assert names(pods, "u-3") == {"u-3": "p-3"}
    three_zones.store.drop(CLUSTER)
    assert names(pods, "u-3") == {}
    three_zones.apply(with_uid("p-3-again", "u-3"))
    assert names(pods, "u-3") == {"u-3": "p-3-again"}
