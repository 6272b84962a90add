"""What PlacePod and ReserveNode answer where something is held, or bound, already: on two servers
over one store, each asked about what came by way of the other.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.client.manifests import ZONE, node, pod, spread
from tests.servers import served
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json = dict[str, Any]

ROUNDS = 60
"""So often a server is asked about what another one wrote a moment ago: one time in four it has
not heard of it.
"""


class Pair(NamedTuple):
    """Two servers."""

    here: Client
    there: Client

    def held(self) -> dict[str, str]:
        """The node held for each pod, as the server sees it that was asked last."""
        return {each.pod.name: each.node for each in self.there.list_reservations()}


@pytest.fixture(params=["sqlite", "redis"])
def pair(request, tmp_path) -> Iterator[Pair]:
    """Two servers over one store, with three zones of one node each."""
    store = f"sqlite://{tmp_path}/state.db"
    if request.param == "redis":
        store = request.getfixturevalue("redis_url")
    with ExitStack() as running:
        servers = [running.enter_context(served(store=store)) for _ in range(2)]
        found = Pair(*(running.enter_context(Client(each.address)) for each in servers))
        found.here.apply_objects([node(f"n-{zone}", zone) for zone in "abc"])
        yield found


def wanting(name: str, *constraints: Json, uid: str = "", **spec: Any) -> Json:
    """A pod that looks for a node."""
    made = pod(name, **{"topologySpreadConstraints": list(constraints)} | spec)
    made["metadata"]["uid"] = uid
    return made


def on(made: Json, where: str, **others: Any) -> Json:
    """The pod as it is bound, with more of its status or metadata."""
    metadata = made["metadata"] | others.pop("metadata", {})
    return made | {"metadata": metadata, "spec": made["spec"] | {"nodeName": where}} | others


def uneven(pair: Pair, *counts: int) -> None:
    """So many running pods in zones a, b and c."""
    pair.here.apply_objects(
        [
            pod(f"w-{z}-{n}", f"n-{z}")
            for z, pods in zip("abc", counts, strict=True)
            for n in range(pods)
        ]
    )


# ------------------------------ a pod that has ended


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_just_ended_is_not_bound(pair: Pair, phase: str, by_name: bool):
    found = Counter[bool]()
    for number in range(ROUNDS):
        made = wanting(f"p-{number}", uid=f"u-{number}")
        subject = f"default/p-{number}" if by_name else made
        pair.here.apply_objects([on(made, "n-a")])
        placed = pair.there.place_pod(subject)
        assert (placed.node, placed.already_bound) == ("n-a", True)
        pair.here.apply_objects([on(made, "n-a", status={"phase": phase})])
        found[pair.there.place_pod(subject).already_bound] += 1
    assert found == {False: ROUNDS}


# ------------------------------ renewals

BY_ZONE = spread()
LOOSE = spread(maxSkew=100)
KEEP_OUT = {"key": "keep-out", "effect": "NoSchedule"}
STANDS_IT = {"key": "keep-out", "operator": "Exists"}
ZONE_B = {"key": ZONE, "operator": "In", "values": ["b"]}
IN_B = {"nodeSelectorTerms": [{"matchExpressions": [ZONE_B]}]}


def wants(cpu: str) -> Sequence[Json]:
    """Containers."""
    return [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"topologySpreadConstraints": []}, {"topologySpreadConstraints": [BY_ZONE]}),
        ({"topologySpreadConstraints": [LOOSE]}, {"topologySpreadConstraints": [BY_ZONE]}),
        ({}, {"nodeSelector": {ZONE: "b"}}),
        (
            {},
            {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": IN_B}
                }
            },
        ),
        ({"tolerations": [STANDS_IT]}, {"tolerations": []}),
        ({"containers": wants("1")}, {"containers": wants("3")}),
    ],
)
def test_reservation_is_renewed_only_where_the_new_request_is_met(pair: Pair, before, now):
    small = {"status": {"allocatable": {"cpu": "2", "pods": "100"}}}
    pair.here.apply_objects([node("n-a", "a") | {"spec": {"taints": [KEEP_OUT]}} | small])
    uneven(pair, 5, 0, 0)
    stands = {"tolerations": [STANDS_IT]}
    assert pair.here.place_pod(wanting("p", **stands | before), candidates=["n-a"]).node == "n-a"

    placed = pair.there.place_pod(wanting("p", **stands | now))

    assert placed.node in ("n-b", "n-c")
    assert pair.held() == {"p": placed.node}


@pytest.mark.parametrize(
    "change",
    [
        [node("n-c", "c") | {"metadata": {"name": "n-c", "labels": {}}}],
        [node("n-c", "a")],
        [node("n-c", "c") | {"spec": {"taints": [KEEP_OUT]}}],
        [node("n-c", "c") | {"status": {"allocatable": {"cpu": "0", "pods": "100"}}}],
        [pod(f"x-{number}", "n-c") for number in range(4)],
    ],
)
def test_reservation_moves_when_its_node_is_not_feasible_any_more(pair: Pair, change):
    uneven(pair, 3, 1, 0)
    asked = wanting("p", spread(maxSkew=2), containers=wants("1"))
    assert pair.here.place_pod(asked).node == "n-c"
    pair.here.apply_objects(change)

    assert pair.there.place_pod(asked).node == "n-b"
    assert pair.held() == {"p": "n-b"}


# ------------------------------ successors


def test_successor_is_judged_without_the_reservation_that_it_ends(pair: Pair):
    uneven(pair, 2, 1, 0)
    for number in range(8):
        name = f"p-{number}"
        assert pair.here.place_pod(wanting(name, BY_ZONE, uid="old")).node == "n-c"

        # Zone c is alone with the fewest, once the old place is gone.
        assert pair.there.place_pod(wanting(name, BY_ZONE, uid="new")).node == "n-c"
        assert pair.held() == {name: "n-c"}
        assert pair.here.release_reservation(name).released


def test_a_successor_is_simulated_as_it_is_placed(pair: Pair):
    uneven(pair, 2, 1, 0)
    for number in range(8):
        name = f"p-{number}"
        pair.here.place_pod(wanting(name, BY_ZONE, uid="old"))
        new = wanting(name, BY_ZONE, uid="new")
        (simulated,) = pair.here.simulate(new).placements
        assert simulated.node == pair.here.place_pod(new).node == "n-c"
        assert pair.here.release_reservation(name).released
