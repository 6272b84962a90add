"""One inspection for all who ask the same; few under settings of callers, and none left over."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance.objects import object_of
from tests.errors.error_status import error_status
from tests.servers import Peer, served
from tests.service.inspecting.test_inventory import owned
from tests.service.world import CLUSTER, PATIENCE, World
from tests.waiting import until
from topospread.cache import BUDGETS
from topospread.errors import DeadlineExceeded, InvalidRequest, QueueFull
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.decisions.request import SettingsOverride
from topospread.service.inspecting import cluster_inspector
from topospread.service.inspecting.inspector import MAX_OWN_SETTINGS, Inspector
from topospread.service.inspecting.judging import count
from topospread.spread.settings import GATE_NAMES
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.app.server import Server
    from topospread.service.inspecting.cluster_inspector import Inspection
    from topospread.service.inspecting.inspector import InspectionReader

GATES = [
    dict(zip(sorted(GATE_NAMES), switched, strict=True))
    for switched in islice(product((False, True), repeat=len(GATE_NAMES)), MAX_OWN_SETTINGS + 1)
]
"""More settings than are inspected at once."""


@pytest.fixture
def world(empty_world: World) -> World:
    empty_world.apply(*owned(6))
    return empty_world


def inspected(world: World, reader: InspectionReader, patience: float = PATIENCE) -> Inspection:
    newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(world.revision))
    return reader.inspect(newest, seconds_from_now(patience))


def test_calls_with_equal_settings_share_an_inspection(world: World) -> None:
    inspects = Inspector(world.engine)
    settings = [SettingsOverride(gates=dict(GATES[0])) for _ in range(2)]
    with inspects.reader(CLUSTER, settings[0]) as one, inspects.reader(CLUSTER, settings[1]) as two:
        first = inspected(world, one)
        assert inspected(world, two) is first
    with inspects.reader(CLUSTER, settings[0]) as another:
        assert inspected(world, another) is not first


def test_an_inspection_ends_with_its_last_reader_for_others(world: World) -> None:
    inspects = Inspector(world.engine)
    with ExitStack() as opened:
        readers = [
            opened.enter_context(inspects.reader(CLUSTER, SettingsOverride(gates=gates)))
            for gates in GATES
        ]
        for reader in readers[:-1]:
            inspected(world, reader)
        with pytest.raises(QueueFull, match=f"under {MAX_OWN_SETTINGS} settings of other calls"):
            inspected(world, readers[-1])
        with inspects.reader(CLUSTER, SettingsOverride(gates=GATES[0])) as same:
            assert inspected(world, same) is inspected(world, readers[0])
        with inspects.reader(CLUSTER) as usual:
            inspected(world, usual)
        with pytest.raises(QueueFull):
            inspected(world, readers[-1])
        readers[0].__exit__()
        inspected(world, readers[-1])
    assert not inspects._own


def test_unknown_settings_keep_no_place(world: World) -> None:
    inspects = Inspector(world.engine)
    for _ in range(MAX_OWN_SETTINGS + 1):
        with (
            inspects.reader(CLUSTER, SettingsOverride("unknown")) as reader,
            pytest.raises(InvalidRequest),
        ):
            inspected(world, reader)
    assert not inspects._own


def test_bytes_of_all_are_bounded_and_one_alone_is_not_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspects = Inspector(world.engine)
    with ExitStack() as opened:
        readers = [
            opened.enter_context(inspects.reader(CLUSTER, SettingsOverride(gates=gates)))
            for gates in GATES[:2]
        ]
        inspected(world, readers[0])
        (held,) = (each.inspector for each in inspects._own.values())
        assert held.size >= 6 * cluster_inspector.ROW_BYTES
        monkeypatch.setattr(BUDGETS["inspections"], "most", 7 * cluster_inspector.ROW_BYTES)
        with pytest.raises(QueueFull, match="would take more than 0 MiB"):
            inspected(world, readers[1])
        world.apply(*owned(8))
        inspected(world, readers[0])


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The constraints that were counted; while it is empty, the first one waits in the middle."""
    counted: list[Any] = []
    go_on, begun = threading.Event(), threading.Event()

    def waits(key: Any, snapshot: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE)
        counted.append(key)
        return count(key, snapshot)

    monkeypatch.setattr(cluster_inspector, "count", waits)
    counted.append((begun, go_on))
    yield counted
    go_on.set()


def test_one_works_it_out_and_others_wait_as_long_as_they_may(
    world: World, counting: list[Any]
) -> None:
    begun, go_on = counting.pop()
    inspects = Inspector(world.engine)
    with ThreadPoolExecutor(3) as threads, inspects.reader(CLUSTER) as reader:
        first = threads.submit(inspected, world, reader)
        assert begun.wait(PATIENCE)
        with pytest.raises(DeadlineExceeded, match="before all constraints were looked at"):
            inspected(world, reader, 0.05)
        second = threads.submit(inspected, world, reader)
        until(lambda: first.running() and inspects.of(_replica(world))._turn.waiting, "it waits")
        go_on.set()
        assert first.result(PATIENCE) is second.result(PATIENCE)
    assert len(counting) == 6


def _replica(world: World) -> Any:
    return world.process.replicas.get(CLUSTER)


def test_counts_outlive_a_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []

    def times_out(key: Any, snapshot: Any) -> Any:
        if len(counted) == 4:
            counted.append(None)
            raise DeadlineExceeded("told to")
        counted.append(key)
        return count(key, snapshot)

    monkeypatch.setattr(cluster_inspector, "count", times_out)
    with Inspector(world.engine).reader(CLUSTER) as reader:
        with pytest.raises(DeadlineExceeded):
            inspected(world, reader)
        assert len(inspected(world, reader).statuses) == len(set(counted) - {None}) == 6
    assert len(counted) == 7


def test_nothing_is_begun_after_the_deadline(world: World, counting: list[Any]) -> None:
    counting.clear()
    inspects = Inspector(world.engine)
    world.process.replicas.preload([CLUSTER], seconds_from_now(PATIENCE))
    replica = _replica(world)
    with pytest.raises(DeadlineExceeded):
        inspects.of(replica).inspect(replica.current_view(), 0.0)
    assert not counting


def test_watches_with_settings_hold_few_inspections(of_its_own: tuple[Server, Peer]) -> None:
    """As many watches as there are streams, of more settings than may be in use."""
    server, peer = of_its_own

    def watch(gates: dict[str, bool]) -> Any:
        request = pb.WatchConstraintsRequest(settings=common_pb2.Settings(feature_gates=gates))
        return peer.inspector.WatchConstraints(request, timeout=PATIENCE)

    watches = [watch(gates) for gates in GATES[:-1] for _ in range(3)]
    assert {len(next(each).constraints) for each in watches} == {6}
    held = server.parts.inspector._own
    assert sorted(each.readers for each in held.values()) == [3] * MAX_OWN_SETTINGS
    assert BUDGETS["inspections"].size >= sum(each.inspector.size for each in held.values())
    with pytest.raises(grpc.RpcError) as refused:
        next(watch(GATES[-1]))
    found = error_status(refused.value).status
    assert found.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert f"{MAX_OWN_SETTINGS} settings" in found.message
    for each in watches:
        each.cancel()
    until(lambda: not held, "they ended with their watches")
    assert len(next(watch(GATES[-1])).constraints) == 6


@pytest.fixture
def of_its_own() -> Iterator[tuple[Server, Peer]]:
    with served() as server, Peer(server.address) as peer:
        peer.apply(*map(object_of, owned(6)))
        yield server, peer
