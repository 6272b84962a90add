"""Short campaigns that are the same each time; long ones are `python -m bench.campaigns`.

What they have found is tried beside what it was found in, and below where that is the API as a
whole.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest

from bench.campaigns import campaign, memory, wounds
from bench.campaigns.cuts import cut
from bench.campaigns.damage import in_redis, in_sqlite
from bench.campaigns.files import Files
from bench.campaigns.floods import flooded
from bench.campaigns.fuzz import Fuzzer
from tests.servers import Peer, served, two_zones
from tests.waiting import PATIENCE
from topospread_proto.v1 import planner_service_pb2, planner_service_pb2_grpc

if TYPE_CHECKING:
    from bench.campaigns.findings import Findings

MIB = 1 << 20
MOST = 200 * MIB
"""More memory than before."""


def test_arbitrary_requests_break_nothing():
    with served(http="127.0.0.1:0", extender="filter") as server:
        found = Fuzzer(server, seed=1).run(1000)
    assert found.faults == []
    assert found.sent == 1000
    # It is no campaign against a closed door.
    assert found.codes["OK"] > 50
    assert found.codes["INVALID_ARGUMENT"] > 50
    assert found.codes["HTTP 200"] > 2
    assert found.grown < MOST


def test_changed_files_break_nothing():
    with served() as server:
        found = Files(server.address, seed=1).run(250)
    assert found.faults == []
    assert found.sent == 250
    # They are neither all refused nor all read.
    assert found.codes["refused"] > 25
    assert found.codes["read"] > 25
    assert found.grown < MOST


def test_lists_that_are_cut_take_nothing_away():
    found = cut(8, seed=1)
    assert found.faults == []
    assert found.codes["objects lost"] == 0
    # Each of the two stores has three more, which are cut after the server has begun them; of the
    # others the server may see none, if it is slow.
    assert found.sent == 8 + 6
    assert found.codes["cut before the commit was sent"] >= 8
    assert found.codes["seen by the server"] >= 8


def test_many_hostile_peers_hold_up_no_other_call():
    found = flooded(300)
    assert found.faults == []
    assert found.sent == 300 + 300 + 300 + 30
    assert 0 < found.codes["idle gRPC connections"] <= 270
    assert 0 < found.codes["idle HTTP connections"] <= 270
    assert found.codes["answers to others"] >= 6


@pytest.mark.parametrize(
    ("attack", "many", "tls"),
    [
        (memory.packed_checks, 200, False),
        (memory.idle_lines, 4200, True),
        (memory.long_bodies, 12, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_attack_costs_little_memory(attack, many, tls):
    memory.open_files()
    came = memory.attacked(attack, many, tls=tls, settle=0.5)
    assert came["peak"] - came["before"] <= MOST / MIB
    assert came["answered"]
    assert not came["failed"]
    # No more come at once than gRPC keeps, or they are no calls.
    assert not came["dropped"]


def check_damaged(found: Findings) -> None:
    assert found.faults == []
    assert found.sent == 15
    # The damage was seen, and most of what was asked was answered all the same.
    assert found.codes["OK"] > 50
    assert found.codes["UNAVAILABLE"] + found.codes["DATA_LOSS"] > 0
    assert found.grown < MOST


def test_damage_to_a_file_breaks_nothing(tmp_path):
    check_damaged(in_sqlite(tmp_path / "state.db", seed=1, rounds=15))


@pytest.mark.usefixtures("redis_binary")
def test_damage_to_a_redis_breaks_nothing(start_redis):
    check_damaged(in_redis(start_redis().url, seed=1, rounds=15))


QUICK = ("40 KiB name", "removed file", "3,000 resources", "hostile SNI", "SIGTERM, unread log")
"""Wounds that do not depend on a machine's speed; the others are tried by the campaign alone."""


@pytest.mark.long
def test_each_wound_is_tried_and_nothing_is_lost_or_forged(capsys, monkeypatch):
    monkeypatch.setattr(wounds, "TIMES", 3)
    only = [word for name in QUICK for word in ("--only", name)]
    small = ("--nodes", "20", "--pods", "40")
    assert campaign.run(wounds.command, [*small, *only, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for name in QUICK:
        assert found[name]["tried"]
        assert not found[name]["fault"]
    for name in ("removed file", "hostile SNI"):
        assert found[name]["value"] == 0


def test_a_file_that_stays_makes_the_check_fail(capsys, monkeypatch):
    monkeypatch.setattr("pathlib.Path.unlink", lambda _: None)
    assert campaign.run(wounds.command, ["--only", "removed file", "--check"]) == 1
    assert "writes acknowledged: 12, at most 0" in capsys.readouterr().err


@pytest.fixture(scope="module")
def planner():
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        yield planner_service_pb2_grpc.PlannerServiceStub(peer.channel)


@pytest.mark.parametrize("replicas", [10_000_000, 2**31 - 1])
def test_more_replicas_than_can_be_simulated_are_refused_before_they_are_named(planner, replicas):
    request = planner_service_pb2.SimulateRequest()
    request.pods.add(replicas=replicas).pod.object.metadata.name = "web"
    with pytest.raises(grpc.RpcError) as refused:
        planner.Simulate(request, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "pods: at most" in str(refused.value.details())


def test_more_nodes_than_can_be_simulated_are_refused_before_they_are_named(planner):
    request = planner_service_pb2.SimulateRequest()
    request.pods.add().pod.object.metadata.name = "web"
    group = request.scenario.changes.add_node_groups.add(node_count=2**31 - 1)
    group.template.metadata.name = "node"
    with pytest.raises(grpc.RpcError) as refused:
        planner.Simulate(request, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [(-(2**63), 64), (0, -1), (-1, 0), (2**63 - 1, 0), (253_402_300_800, 0)],
)
def test_a_time_that_cannot_be_is_an_invalid_argument(planner, seconds, nanos):
    request = planner_service_pb2.RankDeletionsRequest()
    request.evaluation_time.seconds, request.evaluation_time.nanos = seconds, nanos
    with pytest.raises(grpc.RpcError) as refused:
        planner.RankDeletions(request, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "evaluationTime" in str(refused.value.trailing_metadata())
