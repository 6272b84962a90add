"""A call is carried out, its answer is lost, somebody else writes, and the client goes on.

Between the client and a real server stands one that passes calls on and keeps answers for itself.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest

from tests.client.callers import Caller
from tests.client.manifests import node, pod
from tests.servers import served
from tests.waiting import PATIENCE
from topospread_client import Client
from topospread_client import _errors as errors
from topospread_client._methods import METHODS
from topospread_proto.v1 import cluster_state_service_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.client.scripted import Script
    from topospread_client._methods import Method

NOT_KNOWN = "whether the call was carried out is not known"


class Lossy(NamedTuple):
    """A client whose answers get lost, another that writes in between, and what lies between them.

    Attributes:
        ours: its calls go by way of the script.
        other: its calls go to the server.
    """

    ours: Caller
    other: Client
    script: Script
    address: str

    def lose(self, rpc: Method, between: Callable[[], object] = lambda: None) -> None:
        """Lose the answer to the next of these calls once it is carried out."""
        self._pass_on(rpc, [between])

    def _pass_on(self, rpc: Method, losses: list[Callable[[], object]]) -> None:
        def answer(context: grpc.ServicerContext) -> Any:
            request = next(sent for path, sent, _ in reversed(self.script.seen) if path == rpc.path)
            with grpc.insecure_channel(self.address) as channel:
                method: Any = channel.unary_unary(rpc.path, None, rpc.response.FromString)
                try:
                    found = method(request, timeout=PATIENCE)
                except grpc.RpcError as failed:
                    context.abort(failed.code(), failed.details() or "")
            if losses:
                losses.pop()()
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return found

        self.script.answer(rpc, answer)

    def held(self) -> dict[str, str]:
        """The node held for each pod."""
        return {each.pod.name: each.node for each in self.other.list_reservations()}

    def on(self, name: str) -> str:
        """The node of a pod."""
        return self.other.get_object("POD", name, namespace="default").object.pod.spec.node_name


@pytest.fixture(params=["sync-sqlite", "aio-redis"])
def lossy(request, tmp_path, script) -> Iterator[Lossy]:
    kind, _, backend = request.param.partition("-")
    store = f"sqlite://{tmp_path}/state.db"
    if backend == "redis":
        store = request.getfixturevalue("redis_url")
    with ExitStack() as running:
        server = running.enter_context(served(store=store))
        other = running.enter_context(Client(server.address))
        other.apply_objects([node("n-a", "a"), node("n-b", "b")])
        ours = Caller(kind, script.address)
        running.callback(ours.end)
        yield Lossy(ours, other, script, server.address)


def versioned(version: str, on: str) -> dict[str, Any]:
    """A pod at a resourceVersion."""
    made = pod("p", on)
    return made | {"metadata": made["metadata"] | {"resourceVersion": version}}


# ------------------------------ ReleaseReservation


def test_repeated_release_leaves_a_later_reservation(lossy: Lossy):
    first = lossy.other.reserve_node(pod("p"), "n-a")
    lossy.lose(METHODS["ReleaseReservation"], lambda: lossy.other.reserve_node(pod("p"), "n-b"))

    released = lossy.ours.release_reservation("p", reservation_id=first.reservation_id)

    assert lossy.script.calls(METHODS["ReleaseReservation"]) == 2
    assert not released.released
    assert lossy.held() == {"p": "n-b"}


def test_a_release_whose_answer_was_lost_has_happened_once(lossy: Lossy):
    held = lossy.other.reserve_node(pod("p"), "n-a")
    (listed,) = lossy.other.list_reservations()
    assert listed.reservation_id == held.reservation_id
    lossy.lose(METHODS["ReleaseReservation"])

    lossy.ours.release_reservation("p", reservation_id=listed.reservation_id)

    assert lossy.script.calls(METHODS["ReleaseReservation"]) == 2
    assert lossy.held() == {}


def test_a_release_by_name_alone_is_not_repeated(lossy: Lossy):
    lossy.other.reserve_node(pod("p"), "n-a")
    lossy.lose(METHODS["ReleaseReservation"], lambda: lossy.other.reserve_node(pod("p"), "n-b"))

    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.release_reservation("p")

    assert lossy.script.calls(METHODS["ReleaseReservation"]) == 1
    assert lossy.held() == {"p": "n-b"}


# ------------------------------ PlacePod and ReserveNode


def test_repeated_placement_returns_the_first_reservation(lossy: Lossy):
    lossy.lose(METHODS["PlacePod"])

    placed = lossy.ours.place_pod(pod("p"))

    assert lossy.script.calls(METHODS["PlacePod"]) == 2
    (held,) = lossy.other.list_reservations()
    assert (held.node, held.reservation_id) == (placed.node, placed.reservation_id)


@pytest.mark.parametrize(
    ("by", "method"), [("place_pod", "PlacePod"), ("reserve_node", "ReserveNode")]
)
def test_repeat_does_not_replace_a_later_placement(lossy: Lossy, by: str, method: str):
    lossy.lose(METHODS[method], lambda: lossy.other.reserve_node(pod("p"), "n-b"))

    where: dict[str, Any] = {"candidates": ["n-a"]} if by == "place_pod" else {"node": "n-a"}
    with pytest.raises(errors.Conflict, match="another call holds a node for the pod by now"):
        getattr(lossy.ours, by)(pod("p"), **where)

    assert lossy.held() == {"p": "n-b"}


def test_repeated_placement_of_a_bound_pod_reserves_nothing(lossy: Lossy):
    lossy.lose(METHODS["PlacePod"], lambda: lossy.other.apply_objects([pod("p", "n-b")]))

    placed = lossy.ours.place_pod(pod("p"))

    assert (placed.node, placed.already_bound, placed.reservation_id) == ("n-b", True, "")
    assert lossy.held() == {}


# ------------------------------ ApplyObjects


@pytest.mark.parametrize("force", [False, True])
def test_retry_does_not_undo_writes_of_others(lossy: Lossy, force: bool):
    made = versioned("7", "n-a") if force else pod("p", "n-a")
    lossy.lose(METHODS["ApplyObjects"], lambda: lossy.other.apply_objects([pod("p", "n-b")]))
    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.apply_objects([made], force=force)
    assert lossy.on("p") == "n-b"

    lossy.lose(
        METHODS["ApplyObjects"], lambda: lossy.other.delete_objects([{"kind": "POD", "name": "p"}])
    )
    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.apply_objects([made], force=force)
    with pytest.raises(errors.NotFound):
        lossy.on("p")
    assert lossy.script.calls(METHODS["ApplyObjects"]) == 2


def test_write_with_an_unversioned_object_is_not_retried(lossy: Lossy):
    lossy.lose(METHODS["ApplyObjects"])
    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.apply_objects([versioned("7", "n-a"), pod("q", "n-a")])
    assert lossy.script.calls(METHODS["ApplyObjects"]) == 1


def test_versioned_apply_is_retried_and_later_writes_stay(lossy: Lossy):
    lossy.lose(METHODS["ApplyObjects"], lambda: lossy.other.apply_objects([versioned("8", "n-b")]))
    written = lossy.ours.apply_objects([versioned("7", "n-a")])
    assert [each.outcome for each in written.results] == [state.OBJECT_OUTCOME_IGNORED_STALE]
    assert lossy.on("p") == "n-b"

    gone = {"kind": "POD", "name": "p", "resource_version": "9"}
    lossy.lose(METHODS["ApplyObjects"], lambda: lossy.other.delete_objects([gone]))
    written = lossy.ours.apply_objects([versioned("9", "n-a")])
    assert [each.outcome for each in written.results] == [state.OBJECT_OUTCOME_IGNORED_STALE]
    with pytest.raises(errors.NotFound):
        lossy.on("p")
    assert lossy.script.calls(METHODS["ApplyObjects"]) == 4
