"""What is wrong with a request is said, all of it; what matches nothing is an answer."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.ranking.cases import pod
from tests.servers import PATIENCE, ZONE, served
from topospread_client.client import Client
from topospread_client.errors import InvalidRequest, NotFound
from topospread_client.ranking import KeepSpread
from topospread_proto.v1 import planner_pb2
from topospread_proto.v1.kubernetes_pb2 import LabelSelector, LabelSelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {ZONE: "a"}}}
ODD = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Near")])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as server:
        yield server.address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, cluster=f"test-{secrets.token_hex(6)}") as client:
        yield client


def test_everything_wrong_is_said_at_once(client: Client):
    nameless = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
    with pytest.raises(InvalidRequest) as refused:
        client.rank_for_deletion(
            ODD,
            objects=[nameless, pod("a"), pod("a"), NODE, NODE],
            constraints=[KeepSpread(""), KeepSpread("a b"), KeepSpread(ZONE, max_skew=-1)],
        )
    assert [violation.field for violation in refused.value.violations] == [
        "labelSelector",
        "constraints[0].topologyKey",
        "constraints[1].topologyKey",
        "constraints[2].maxSkew",
        "pods[0].metadata.name",
        "pods[2].metadata.name",
        "nodes[1].metadata.name",
    ]


def test_the_same_constraint_twice_is_refused(client: Client):
    twice: list[KeepSpread | str] = [
        KeepSpread(ZONE, ["a", "b"]),
        KeepSpread(ZONE),
        KeepSpread(ZONE, ["b", "a"]),
        KeepSpread(ZONE, max_skew=2),
        ZONE,
    ]
    with pytest.raises(InvalidRequest) as refused:
        client.rank_for_deletion({}, constraints=twice)
    assert [(each.field, each.type) for each in refused.value.violations] == [
        ("constraints[2]", "Duplicate value"),
        ("constraints[4]", "Duplicate value"),
    ]


def test_pods_must_be_named_in_some_way(client: Client):
    with pytest.raises(InvalidRequest, match="select pods of the state, or give pods"):
        client.rank_for_deletion()


@pytest.mark.parametrize(
    "asked", [{"strategy": "random"}, {"delete": -1}, {"objects": [{"kind": "Service"}]}]
)
def test_the_client_refuses_what_no_request_can_carry(client: Client, asked):
    with pytest.raises(InvalidRequest):
        client.rank_for_deletion({}, **asked)


@pytest.mark.parametrize("seconds", [-1, 2**62])
def test_a_time_that_is_none_is_refused(address: str, seconds: int):
    request = planner_pb2.RankForDeletionRequest(
        label_selector=LabelSelector(), now=Timestamp(seconds=seconds)
    )
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary("/topospread.v1.Planner/RankForDeletion")
        with pytest.raises(grpc.RpcError) as refused:
            call(request.SerializeToString(), timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "now: must be between the years 1970 and 9999"


def test_an_unknown_cluster_is_not_found(client: Client):
    with pytest.raises(NotFound):
        client.rank_for_deletion({"app": "web"})
    with pytest.raises(NotFound):
        client.rank_for_deletion(objects=[pod("a")])


def test_a_selector_that_matches_nothing_gives_an_answer_that_says_so(client: Client):
    client.apply([NODE, pod("a", "n1")])
    ranked = client.rank_for_deletion({"app": "db"}, delete=1_000_000)
    assert (ranked.pods, ranked.ranked, ranked.left_out) == ((), 0, 0)
    assert ranked.notes == ("no pod of namespace 'default' matches the selector",)
    assert ranked.keeps_longest is None


def test_given_pods_that_have_ended_are_no_pods_of_a_namespace(client: Client):
    ranked = client.rank_for_deletion({}, objects=[NODE, pod("a", "n1", terminating=True)])
    assert ranked.notes == ("none of the pods given is running and matches the selector",)


def test_more_deletions_than_pods_are_all_pods(client: Client):
    client.apply([NODE, pod("a", "n1"), pod("b", "n1", terminating=True)])
    ranked = client.rank_for_deletion({}, delete=1_000_000, constraints=[ZONE])
    assert [each.name for each in ranked.pods] == ["a"]
    assert (ranked.ranked, ranked.left_out) == (1, 1)
    assert ranked.constraints[0].pods == {"a": 1}


def test_what_the_constraint_does_not_say_is_as_the_pods_say(client: Client):
    own = {
        "maxSkew": 3,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 2,
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spread = pod("a", "n1", created=5)
    spread["spec"]["topologySpreadConstraints"] = [own]
    client.apply([NODE, spread, pod("b", "n1", created=1)])
    ranked = client.rank_for_deletion({"app": "web"})
    (understood,) = ranked.constraints
    assert (understood.max_skew, understood.min_domains, understood.skew) == (3, 2, 2)
    assert ranked.notes == (
        "the pods have different constraints; those of the newest, default/a, are kept",
    )
    named = client.rank_for_deletion({"app": "web"}, constraints=[ZONE]).constraints[0]
    assert (named.max_skew, named.min_domains) == (3, 2)
    chosen = client.rank_for_deletion({"app": "web"}, constraints=[KeepSpread(ZONE, ["b"], 1)])
    assert chosen.constraints[0].pods == {}
    assert chosen.notes == (f"no pod is in a domain of {ZONE}",)


def test_without_constraints_the_answer_says_so(client: Client):
    client.apply([NODE, pod("a", "n1")])
    ranked = client.rank_for_deletion({})
    assert ranked.notes == ("no constraints: pods that stack on a node go first, and no more",)
