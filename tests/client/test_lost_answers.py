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
from tests.servers import PATIENCE, served
from topospread_client import errors, rpcs
from topospread_client.answers import Kind, Outcome
from topospread_client.client import Client
from topospread_client.requests import Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.client.scripted import Script
    from topospread_client.rpcs import Rpc

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

    def lose(self, rpc: Rpc[Any, Any], between: Callable[[], object] = lambda: None) -> None:
        """Lose the answer to the next of these calls once it is carried out."""
        self._pass_on(rpc, [between])

    def _pass_on(self, rpc: Rpc[Any, Any], losses: list[Callable[[], object]]) -> None:
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
        return {each.name: each.node for each in self.other.reservations().reservations}

    def on(self, name: str) -> str:
        """The node of a pod."""
        return self.other.get(Kind.POD, name, namespace="default").object.pod.spec.node_name


@pytest.fixture(params=["sync-sqlite", "aio-redis"])
def lossy(request, tmp_path, script) -> Iterator[Lossy]:
    kind, _, backend = request.param.partition("-")
    store = f"sqlite://{tmp_path}/state.db"
    if backend == "redis":
        store = request.getfixturevalue("redis_url")
    with ExitStack() as running:
        server = running.enter_context(served(store=store))
        other = running.enter_context(Client(server.address))
        other.apply([node("n-a", "a"), node("n-b", "b")])
        ours = Caller(kind, script.address)
        running.callback(ours.end)
        yield Lossy(ours, other, script, server.address)


def versioned(version: str, on: str) -> dict[str, Any]:
    """A pod at a resourceVersion."""
    made = pod("p", on)
    return made | {"metadata": made["metadata"] | {"resourceVersion": version}}


# ------------------------------ Release


def test_a_repeated_release_leaves_what_somebody_else_holds_since(lossy: Lossy):
    first = lossy.other.reserve(pod("p"), "n-a")
    lossy.lose(rpcs.RELEASE, lambda: lossy.other.reserve(pod("p"), "n-b"))

    released = lossy.ours.release("p", reservation_id=first.reservation_id)

    assert lossy.script.calls(rpcs.RELEASE) == 2
    assert not released.released
    assert lossy.held() == {"p": "n-b"}


def test_a_release_leaves_what_was_renewed_since(lossy: Lossy):
    first = lossy.other.reserve(pod("p"), "n-a")
    renewed = lossy.other.place(pod("p"))
    assert renewed.node == "n-a"
    assert renewed.reservation_id != first.reservation_id

    assert not lossy.other.release("p", reservation_id=first.reservation_id).released

    assert lossy.held() == {"p": "n-a"}
    assert lossy.other.release("p", reservation_id=renewed.reservation_id).released
    assert lossy.held() == {}


def test_a_release_whose_answer_was_lost_has_happened_once(lossy: Lossy):
    held = lossy.other.reserve(pod("p"), "n-a")
    (listed,) = lossy.other.reservations().reservations
    assert listed.id == held.reservation_id
    lossy.lose(rpcs.RELEASE)

    lossy.ours.release("p", reservation_id=listed.id)

    assert lossy.script.calls(rpcs.RELEASE) == 2
    assert lossy.held() == {}


def test_a_release_by_name_alone_is_not_repeated(lossy: Lossy):
    lossy.other.reserve(pod("p"), "n-a")
    lossy.lose(rpcs.RELEASE, lambda: lossy.other.reserve(pod("p"), "n-b"))

    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.release("p")

    assert lossy.script.calls(rpcs.RELEASE) == 1
    assert lossy.held() == {"p": "n-b"}


# ------------------------------ Place and Reserve


def test_a_repeated_place_is_the_one_that_was_held(lossy: Lossy):
    lossy.lose(rpcs.PLACE)

    placed = lossy.ours.place(pod("p"))

    assert lossy.script.calls(rpcs.PLACE) == 2
    (held,) = lossy.other.reservations().reservations
    assert (held.node, held.id) == (placed.node, placed.reservation_id)


@pytest.mark.parametrize("by", ["place", "reserve"])
def test_a_repeat_takes_no_place_from_who_placed_the_pod_since(lossy: Lossy, by: str):
    lossy.lose(getattr(rpcs, by.upper()), lambda: lossy.other.reserve(pod("p"), "n-b"))

    where: dict[str, Any] = {"candidates": ["n-a"]} if by == "place" else {"node": "n-a"}
    with pytest.raises(errors.Conflict, match="something else is held for the pod by now"):
        getattr(lossy.ours, by)(pod("p"), **where)

    assert lossy.held() == {"p": "n-b"}


def test_a_repeated_place_holds_anew_what_was_released_since(lossy: Lossy):
    lossy.lose(rpcs.PLACE, lambda: lossy.other.release("p"))

    placed = lossy.ours.place(pod("p"))

    assert lossy.held() == {"p": placed.node}


def test_a_repeated_place_of_a_pod_that_is_bound_by_now_holds_nothing(lossy: Lossy):
    lossy.lose(rpcs.PLACE, lambda: lossy.other.apply([pod("p", "n-b")]))

    placed = lossy.ours.place(pod("p"))

    assert (placed.node, placed.already_bound, placed.reservation_id) == ("n-b", True, "")
    assert lossy.held() == {}


def test_a_call_that_is_a_repeat_says_of_which(lossy: Lossy):
    rpc = rpcs.RESERVE
    with grpc.insecure_channel(lossy.address) as channel:
        call: Any = channel.unary_unary(rpc.path, rpc.request.SerializeToString)
        with pytest.raises(grpc.RpcError) as refused:
            call(rpc.request(node="n-a", is_repeat=True), timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "requestId" in (refused.value.details() or "")


# ------------------------------ Apply


@pytest.mark.parametrize("force", [False, True])
def test_what_others_wrote_or_removed_is_not_undone(lossy: Lossy, force: bool):
    made = versioned("7", "n-a") if force else pod("p", "n-a")
    lossy.lose(rpcs.APPLY, lambda: lossy.other.apply([pod("p", "n-b")]))
    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.apply([made], force=force)
    assert lossy.on("p") == "n-b"

    lossy.lose(rpcs.APPLY, lambda: lossy.other.delete([Reference(Kind.POD, "p")]))
    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.apply([made], force=force)
    with pytest.raises(errors.NotFound):
        lossy.on("p")
    assert lossy.script.calls(rpcs.APPLY) == 2


def test_one_object_without_a_version_is_enough(lossy: Lossy):
    lossy.lose(rpcs.APPLY)
    with pytest.raises(errors.Unavailable, match=NOT_KNOWN):
        lossy.ours.apply([versioned("7", "n-a"), pod("q", "n-a")])
    assert lossy.script.calls(rpcs.APPLY) == 1


def test_with_versions_an_apply_is_repeated_and_later_writes_stay(lossy: Lossy):
    lossy.lose(rpcs.APPLY, lambda: lossy.other.apply([versioned("8", "n-b")]))
    written = lossy.ours.apply([versioned("7", "n-a")])
    assert [each.outcome for each in written.results] == [Outcome.IGNORED_STALE]
    assert lossy.on("p") == "n-b"

    gone = Reference(Kind.POD, "p", resource_version="9")
    lossy.lose(rpcs.APPLY, lambda: lossy.other.delete([gone]))
    written = lossy.ours.apply([versioned("9", "n-a")])
    assert [each.outcome for each in written.results] == [Outcome.IGNORED_STALE]
    with pytest.raises(errors.NotFound):
        lossy.on("p")
    assert lossy.script.calls(rpcs.APPLY) == 4


# ------------------------------ Hold and Leave


def test_a_repeated_leave_leaves_the_lease_of_the_next_feeder(lossy: Lossy):
    lossy.other.hold("first", 60)
    lossy.lose(rpcs.LEAVE, lambda: lossy.other.hold("next", 60))

    lossy.ours.leave("first")

    assert lossy.script.calls(rpcs.LEAVE) == 2
    assert lossy.other.hold("next", 60).held


def test_a_repeated_hold_takes_the_lease_from_nobody(lossy: Lossy):
    def pass_on() -> None:
        lossy.other.leave("first")
        assert lossy.other.hold("next", 60).held

    lossy.lose(rpcs.HOLD, pass_on)

    found = lossy.ours.hold("first", 60)

    assert lossy.script.calls(rpcs.HOLD) == 2
    assert (found.held, found.holder) == (False, "next")
