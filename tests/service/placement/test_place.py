"""PlacePod: the best node, held; and every way in which it ends or stays."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.service.placement.placer import Placer, bound, named, untraced
from tests.service.world import (
    CLUSTER,
    HOSTNAME,
    ZONE,
    Process,
    World,
    constraint,
    node,
    running,
    soft,
)
from topospread.errors import InvalidRequest, NotFound
from topospread.replica.view import Token
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.request import PodRef
from topospread.service.fit.question import Fit
from topospread.service.placement.place import Preference, place, release
from topospread.service.placement.places import Places
from topospread.service.state.write import StateWriter
from topospread.spread.verdicts import Code
from topospread.store.model import Key, Kind, Remove

BY_ZONE = constraint()
BY_NODE = constraint(HOSTNAME)
SKEWED = "node(s) didn't match pod topology spread constraints"


@pytest.fixture
def placer(three_zones: World) -> Placer:
    return Placer(three_zones)


def test_the_node_that_fits_is_held_and_counts(placer: Placer):
    held = placer.place(named("a", BY_ZONE))

    assert (held.node, held.already_bound, held.message) == ("n-c", False, "")
    assert placer.held() == {"default/a": "n-c"}
    answer = evaluate(placer.engine, placer.world.ask(named("b", BY_ZONE)))
    assert [ranked.name for ranked in answer.top] == ["n-b", "n-c"]


def test_reservation_counts_until_it_is_released(placer: Placer):
    placer.place(named("a", BY_ZONE))
    assert placer.release("a")
    assert not placer.release("a")

    assert placer.held() == {}
    assert placer.place(named("b", BY_ZONE)).node == "n-c"


def test_a_pod_is_judged_without_what_is_held_for_it(placer: Placer):
    pod = named("a", BY_ZONE, uid="u1")
    placer.place(pod)

    for same, feasible in ((pod, 1), (named("a", BY_ZONE), 1), (named("a", BY_ZONE, uid="u2"), 2)):
        answer = evaluate(placer.engine, placer.world.ask(same))
        assert answer.feasible == feasible


def test_placing_again_renews(placer: Placer):
    first = placer.place(named("a", BY_ZONE), lifetime=60_000)
    again = placer.place(named("a", BY_ZONE), lifetime=3_600_000)

    assert again.node == first.node
    assert again.expires_at > first.expires_at
    assert placer.held() == {"default/a": first.node}


@pytest.mark.parametrize(
    ("change", "candidates"),
    [
        ({"spec": {"unschedulable": True}}, None),
        ({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, None),
        ({}, ["n-a", "n-b"]),
        ("gone", None),
        ("full", None),
    ],
)
def test_reservation_moves_when_its_node_is_no_place_any_more(placer: Placer, change, candidates):
    pod = named("a", constraint(maxSkew=3 if change != "full" else 1))
    assert placer.place(pod).node == "n-c"
    if change == "gone":
        placer.world.delete(Kind.NODE, "n-c")
    elif change == "full":
        placer.apply(running("w4", "n-c"), running("w5", "n-c"))
    else:
        placer.apply(node("n-c", "c") | change)

    assert placer.place(pod, candidates).node == "n-b"
    assert placer.held() == {"default/a": "n-b"}


def test_a_pod_of_another_uid_takes_the_place_of_the_old_one(placer: Placer):
    placer.place(named("a", BY_ZONE, uid="u1"))
    held = placer.place(named("a", BY_ZONE, uid="u2"))

    # The old one's counts no more: n-c has none, n-b one, n-a two.
    assert held.node == "n-c"
    assert placer.held() == {"default/a": "n-c"}


def test_bound_pod_gets_the_node_it_runs_on(placer: Placer):
    pod = named("a", BY_ZONE, uid="u1")
    placer.apply(bound(pod, "n-a"))

    for same in (pod, named("a", BY_ZONE), PodRef("a"), bound(pod, "n-a")):
        held = placer.place(same)
        assert (held.node, held.already_bound) == ("n-a", True)
    held = placer.reserve(pod, "n-c")
    assert (held.node, held.already_bound) == ("n-a", True)
    assert placer.held() == {}
    assert not placer.place(named("a", BY_ZONE, uid="u2")).already_bound


def test_reservation_ends_when_the_pod_is_bound_and_never_counts_twice(placer: Placer):
    pod = named("a", BY_ZONE)
    placer.place(pod)
    placer.apply(bound(pod, "n-c"))

    assert placer.held() == {}
    assert placer.place(named("b", BY_ZONE)).node in ("n-b", "n-c")
    assert placer.place(named("c", BY_ZONE)).node in ("n-b", "n-c")
    assert Counter(placer.held().values()) == {"n-b": 1, "n-c": 1}


def test_a_pending_pod_leaves_it_alone_and_a_deleted_one_ends_it(placer: Placer):
    pod = named("a", BY_ZONE)
    placer.place(pod)
    placer.apply(pod)
    assert placer.held() == {"default/a": "n-c"}
    placer.delete("a")
    assert placer.held() == {}


def test_a_pod_of_the_state_by_name(placer: Placer):
    placer.apply(named("a", BY_ZONE, uid="u1"))

    assert placer.place(PodRef("a")).node == "n-c"
    with pytest.raises(NotFound, match="default/nobody"):
        placer.place(PodRef("nobody"))


def test_a_pod_without_a_name_cannot_be_held_for(placer: Placer):
    with pytest.raises(InvalidRequest, match=r"metadata\.name"):
        placer.place(named(""))


def test_a_refusal_is_an_answer_in_kube_schedulers_words(placer: Placer):
    held = placer.place(named("a", BY_ZONE), ["n-a", "n-b", "nobody"])

    assert (held.node, held.status.code) == ("", Code.UNSCHEDULABLE)
    assert held.message == (
        f"0/3 nodes are available: 1 node is not in the cluster's state, 2 {SKEWED}."
    )
    assert placer.held() == {}


def test_empty_candidates_yield_no_place(placer: Placer):
    held = placer.place(named("a"), [])
    assert (held.node, held.message) == ("", "no nodes available to schedule pods")


def test_a_selector_that_does_not_parse_is_an_error_as_upstream_words_it(placer: Placer):
    broken = constraint(labelSelector={"matchLabels": {"a b": "c"}})
    held = placer.place(named("a", broken))

    assert held.status.code is Code.ERROR
    assert held.message.startswith('running PreFilter plugin "PodTopologySpread": get constraints')


def test_unsuitable_nodes_are_reported_by_the_first_reason(empty_world: World):
    taint = {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}
    empty_world.apply(
        node("cordoned", "a") | {"spec": {"unschedulable": True} | taint},
        node("tainted", "a") | {"spec": taint},
        node("elsewhere", "a"),
        node("keyless", disk="ssd"),
        node("small", "a", disk="ssd") | {"status": {"allocatable": {"cpu": "1", "pods": "1"}}},
        running("w1", "small"),
    )
    placer = Placer(empty_world)
    cpu = {"requests": {"cpu": "1500m"}}
    pod = named(
        "a",
        BY_ZONE,
        nodeSelector={"disk": "ssd"},
        containers=[{"name": "c", "resources": cpu}],
    )
    held = placer.place(pod)

    assert held.message == (
        "0/5 nodes are available: 1 Insufficient cpu, 1 Too many pods, "
        "1 node(s) didn't match Pod's node affinity/selector, "
        f"1 {SKEWED} (missing required label), "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )
    # Also without the pods that are there, the small one has less than is asked for.
    assert held.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert placer.place(pod, fit=Fit.NODE).node == "small"
    assert placer.place(named("b", BY_ZONE), ["cordoned"]).node == "cordoned"


def test_a_pod_that_tolerates_it_goes_to_a_cordoned_node(empty_world: World):
    empty_world.apply(node("n", "a") | {"spec": {"unschedulable": True}})
    tolerates = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}

    held = Placer(empty_world).place(named("a", tolerations=[tolerates]))
    assert held.node == "n"


def test_reservation_takes_resources_of_its_node(empty_world: World):
    empty_world.apply(
        *(
            node(name, "a") | {"status": {"allocatable": {"cpu": "1", "pods": "9"}}}
            for name in ("n1", "n2")
        )
    )
    placer = Placer(empty_world)
    container = {"name": "c", "resources": {"requests": {"cpu": "600m"}}}
    spec: dict[str, Any] = {"containers": [container]}

    places = [placer.place(named(name, **spec)).node for name in "abc"]

    assert sorted(places) == ["", "n1", "n2"]
    assert placer.place(named("a", **spec)).node == places[0]  # its own part is its own
    placer.apply(bound(named("a", **spec), places[0]))
    assert placer.place(named("c", **spec)).node == ""
    placer.delete("a")
    assert placer.place(named("c", **spec)).node == places[0]


def test_a_node_without_allocatable_takes_no_pod(empty_world: World):
    empty_world.apply(node("n1", "a") | {"status": {}})
    held = Placer(empty_world).place(named("a"))

    assert (held.node, held.status.code) == ("", Code.UNSCHEDULABLE)
    assert held.message == "0/1 nodes are available: 1 Too many pods."


def test_the_best_is_by_score_first(three_zones: World):
    three_zones.apply(node("n-c2", "c"), running("x1", "n-b", "other"))
    held = Placer(three_zones).place(named("a", soft(ZONE), constraint(ZONE, "other", maxSkew=9)))
    assert held.node in ("n-c", "n-c2")


def test_equal_scores_are_ordered_by_pods_in_the_hard_domains(three_zones: World):
    assert Placer(three_zones).place(named("a", constraint(maxSkew=9))).node == "n-c"


def test_equal_domains_are_ordered_by_pods_on_the_node(empty_world: World):
    empty_world.apply(
        *(node(f"n{number}", "a") for number in range(9)),
        *(running(f"w{number}", f"n{number}") for number in range(9) if number != 7),
    )
    assert Placer(empty_world).place(named("a", BY_ZONE)).node == "n7"


def test_equal_nodes_are_chosen_apart_by_seed_and_pod(empty_world: World):
    empty_world.apply(*(node(f"n{number:02}", "a") for number in range(40)))
    placer = Placer(empty_world)

    def chosen(name: str, seed: str) -> str:
        found = placer.place(named(name), seed=seed).node
        placer.release(name)
        return found

    by_seed = {seed: chosen("a", seed) for seed in map(str, range(30))}
    assert len(set(by_seed.values())) > 10
    assert {seed: chosen("a", seed) for seed in by_seed} == by_seed
    assert len({chosen(f"p{number}", "") for number in range(30)}) > 10


def test_many_callers_of_two_servers_never_break_a_constraint(three_zones: World):
    three_zones.apply(*(node(f"n-{zone}2", zone) for zone in "abc"))
    with closing(Process(three_zones.store)) as other:
        placers = [Placer(three_zones), Placer(three_zones, other.engine)]
        for placer in placers:
            placer.held()  # each follows the cluster before they race
        conflicts = Counter[int]()

        def place_all(caller: int) -> None:
            placer = placers[caller % 2]
            for number in range(20):
                wanted = placer.wanted(named(f"p-{caller}-{number}", BY_ZONE, BY_NODE))
                held = place(placer.holding, wanted, Preference(), untraced)
                assert held.node, held.message
                conflicts[caller] += wanted.conflicts

        threads = [threading.Thread(target=place_all, args=(caller,)) for caller in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        placers[0].world.revision = token_of_head(three_zones)
    on = Counter({"n-a": 2, "n-b": 1}) + Counter(placers[0].held().values())
    zones = Counter[str]()
    for name, pods in on.items():
        zones[name[2]] += pods
    assert sum(on.values()) == 123
    assert max(zones.values()) - min(zones.values()) <= 1
    assert max(on.values()) - min(on.values()) <= 1


def token_of_head(world: World) -> str:
    head = world.store.head(CLUSTER)
    return Token(head.identity, head.revision).encode()


def test_store_has_less_time_than_the_caller_so_that_errors_arrive(three_zones: World):
    given: list[float] = []

    class Noting:
        def __getattr__(self, name: str) -> Any:
            return getattr(three_zones.store, name)

        def apply(self, *args: Any, timeout: float, **more: Any) -> Any:
            given.append(timeout)
            return three_zones.store.apply(*args, timeout=timeout, **more)

    store: Any = Noting()
    placer = Placer(three_zones)
    placer.holding = Places(three_zones.engine, store)
    wanted = placer.wanted(named("a", BY_ZONE))
    late = wanted.decision._replace(deadline=time.monotonic() + 4.0)
    wanted = replace(wanted, decision=late)
    assert place(placer.holding, wanted, Preference(), untraced).node
    pod = ("default", "a", "")
    assert release(placer.holding, CLUSTER, pod, timeout=4.0, traced=untraced).released
    writes = StateWriter(store, three_zones.process.replicas)
    writes.delete(CLUSTER, [Remove(Key(Kind.POD, "default", "w1"))], timeout=4.0, traced=untraced)

    assert len(given) == 3
    assert max(given) <= 3.75
    assert min(given) > 0
