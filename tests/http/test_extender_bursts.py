"""Pods that come faster than the state learns where they went: what the extender answers them."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.extender_client import Scheduler, node, pod, spreading
from tests.servers import served
from tests.telemetry.expositions import value
from topospread.service.extender import assumed
from topospread.service.placement import places
from topospread_client import object_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NODES = {f"node-{number}": "abc"[number % 3] for number in range(300)}
LONG = 3600.0
"""Seconds for which the tests let last what a slow machine must not see the end of."""


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """A scheduler's questions to a server whose cluster has 300 nodes in three zones."""
    monkeypatch.setattr(assumed, "ASSUMED_SECONDS", LONG)
    monkeypatch.setattr(places, "CONTENDED", LONG)
    with served(http="127.0.0.1:0") as server, Scheduler(server) as made:
        made.write(*(node(name, zone=zone) for name, zone in NODES.items()))
        yield made


class Burst:
    """A scheduler's cycle for pods that are created at once.

    It takes one pod after the other, assumes it on one of the nodes that it is answered, and binds
    it meanwhile: the state has a pod some decisions later, as it comes from the API server.

    Args:
        verb: that is asked.
        behind: decisions by which the state is behind.
        chooses: the node that the scheduler takes of those that are left to it.

    Attributes:
        zones: pods by zone.
        calls: that were made.
    """

    def __init__(
        self, scheduler: Scheduler, verb: str, *, behind: int, chooses: Any = None
    ) -> None:
        self._scheduler = scheduler
        self._verb = verb
        self._behind = behind
        self._chooses = chooses or (lambda names: names[0])
        self._unseen: deque[dict[str, Any]] = deque()
        self.zones: Counter[str] = Counter()
        self.calls = 0

    def run(self, number: int) -> None:
        """Schedule so many pods."""
        for index in range(number):
            names = self.ask(f"web-{index}")
            assert names, f"pod {index} fits nowhere"
            chosen = self._chooses(names)
            self.zones[NODES[chosen]] += 1
            self._unseen.append(pod(f"web-{index}", chosen))
            if len(self._unseen) > self._behind:
                # Two by two, as they come together.
                self._bind(2)
        self._bind(len(self._unseen))

    def ask(self, name: str) -> Sequence[str]:
        """The nodes that a pod is left."""
        self.calls += 1
        names: Sequence[str] = self._scheduler.ask(self._verb, spreading(name), [*NODES])[
            "NodeNames"
        ]
        return names

    def _bind(self, number: int) -> None:
        bound = [self._unseen.popleft() for _ in range(min(number, len(self._unseen)))]
        made = [object_from_manifest(each) for each in bound]
        self._scheduler.peer.apply(*[each for each in made if each is not None])

    @property
    def skew(self) -> int:
        """Of the zones."""
        counts = [self.zones[zone] for zone in "abc"]
        return max(counts) - min(counts)


@pytest.mark.parametrize("behind", [0, 1, 40])
def test_place_keeps_the_skew_with_one_call_a_pod(scheduler: Scheduler, behind: int) -> None:
    burst = Burst(scheduler, "place", behind=behind)
    burst.run(500)
    assert burst.skew <= 1
    assert burst.calls == 500
    # The first one tells that others write in the namespace; from then on their writes are fetched
    # before a place is sought.
    assert conflicts(scheduler) in (0, 1)


@pytest.mark.parametrize("chosen", ["first", "last", "any"])
@pytest.mark.parametrize("behind", [1, 40])
def test_filter_counts_what_it_answered_a_moment_ago(
    scheduler: Scheduler, behind: int, chosen: str
) -> None:
    choices = {
        "first": lambda names: names[0],
        "last": lambda names: names[-1],
        "any": random.Random(behind).choice,
    }
    burst = Burst(scheduler, "filter", behind=behind, chooses=choices[chosen])
    burst.run(500)
    # The first one was left the choice of all.
    assert burst.skew <= 2
    assert burst.calls == 500


def test_a_pod_that_comes_alone_is_left_all_nodes_that_suit(scheduler: Scheduler) -> None:
    names = [*NODES]
    for number in range(3):
        fit = scheduler.ask("filter", spreading(f"web-{number}"), names)["NodeNames"]
        assert len({NODES[name] for name in fit}) == 3 - number
        scheduler.write(pod(f"web-{number}", fit[0]))
    assert decided_in_burst(scheduler) == 0


def test_a_pod_amid_others_is_left_one_domain(scheduler: Scheduler) -> None:
    names = [*NODES]
    scheduler.ask("filter", spreading("one"), names)
    again = scheduler.ask("filter", spreading("one"), names)["NodeNames"]
    assert again == names, "it is not its own predecessor"
    second = scheduler.ask("filter", spreading("two"), names)
    (zone,) = {NODES[name] for name in second["NodeNames"]}
    assert len(second["NodeNames"]) == 100
    assert second["FailedNodes"] == {}, "the others are not refused"
    third = scheduler.ask("filter", spreading("three"), names)
    (other,) = {NODES[name] for name in third["NodeNames"]}
    assert other != zone
    assert set(third["FailedNodes"]) == {name for name in names if NODES[name] == zone}
    assert decided_in_burst(scheduler) == 2


def test_each_constraint_has_one_domain(scheduler: Scheduler) -> None:
    scheduler.ask("filter", spreading("one", key="kubernetes.io/hostname"), [*NODES])
    second = scheduler.ask("filter", spreading("two", key="kubernetes.io/hostname"), [*NODES])
    assert len(second["NodeNames"]) == 1


def test_pods_that_no_constraint_counts_are_left_to_the_scheduler(scheduler: Scheduler) -> None:
    names = [*NODES]
    other = spreading("one")
    other["metadata"]["labels"] = {"app": "other"}
    scheduler.ask("filter", other, names)
    assert scheduler.ask("filter", spreading("two"), names)["NodeNames"] == names
    elsewhere = spreading("three")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    assert scheduler.ask("filter", elsewhere, names)["NodeNames"] == names
    soft = spreading("four", action="ScheduleAnyway")
    assert scheduler.ask("filter", soft, names)["NodeNames"] == names
    assert decided_in_burst(scheduler) == 0


def test_a_pod_that_is_not_bound_is_forgotten_after_a_moment(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assumed, "ASSUMED_SECONDS", 0.0)
    for name in ("one", "two", "three"):
        assert scheduler.ask("filter", spreading(name), [*NODES])["NodeNames"] == [*NODES]


def conflicts(scheduler: Scheduler) -> float | None:
    exposed = scheduler.http.get("/metrics").content
    return value(exposed, "topospread_placement_conflicts_total", call="Extender/filter")


def decided_in_burst(scheduler: Scheduler) -> float | None:
    exposed = scheduler.http.get("/metrics").content
    return value(exposed, "topospread_extender_stale_decisions_total", cluster="default")
