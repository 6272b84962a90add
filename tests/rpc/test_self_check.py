"""What decisions need of grpcio's internals is tried, and done without where it is missing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers import Peer, served, two_zones
from tests.telemetry.expositions import samples
from topospread.rpc import completion_queue, self_check
from topospread.rpc.completion_queue import CompletionQueue, IncomingCall


class _WithoutName:
    """A module of grpcio's in which one name is missing."""

    def __init__(self, module: Any, missing: str) -> None:
        self._module = module
        self._missing = missing

    def __getattr__(self, name: str) -> Any:
        if name == self._missing:
            raise AttributeError(f"module 'cygrpc' has no attribute {name!r}")
        return getattr(self._module, name)


def _fails(*_: object, **__: object) -> Any:
    raise TypeError("request_registered_call() takes 3 positional arguments but 4 were given")


def _nothing(*_: object, **__: object) -> None:
    """An event that leads nowhere."""


def break_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module: Any = completion_queue
    monkeypatch.setattr(module, "cygrpc", _WithoutName(module.cygrpc, name))


BREAKS = {
    "no completion queue": lambda patch: break_name(patch, "CompletionQueue"),
    "no operation": lambda patch: break_name(patch, "SendStatusFromServerOperation"),
    "another signature": lambda patch: patch.setattr(CompletionQueue, "_request", _fails),
    "no server inside": lambda patch: patch.setattr(CompletionQueue, "register", _fails),
    "an event that never comes": lambda patch: patch.setattr(IncomingCall, "received", _nothing),
    "no deadline": lambda patch: patch.setattr(IncomingCall, "time_remaining", lambda _: 0.0),
    "no peer": lambda patch: patch.setattr(IncomingCall, "peer", lambda _: ""),
}


def test_grpcio_of_this_environment_is_as_expected():
    assert self_check.self_check() == ""


def test_a_deadline_may_be_rounded_up(monkeypatch):
    # gRPC does so: by up to 10 ms, in one of 150 calls.
    monkeypatch.setattr(IncomingCall, "time_remaining", lambda _: self_check.SECONDS + 0.01)
    assert self_check.self_check() == ""


def test_a_deadline_that_is_not_the_callers_is_reported(monkeypatch, caplog):
    monkeypatch.setattr(IncomingCall, "time_remaining", lambda _: float("inf"))
    assert "deadline" in self_check.self_check()
    assert not caplog.records


@pytest.mark.parametrize("broken", BREAKS)
def test_decisions_are_served_by_public_api_where_grpcio_is_another(broken, monkeypatch, caplog):
    monkeypatch.setattr(self_check, "SECONDS", 1.0)
    with monkeypatch.context() as patched:
        BREAKS[broken](patched)
        with served() as server, Peer(server.address) as peer:
            peer.apply(*two_zones())
            assert peer.evaluate().feasible_node_count == 1
            (info,) = (
                dict(labels)
                for name, labels in samples(server.metrics.expose()[0])
                if name == "topospread_transport_info"
            )
    assert info["used"] == "grpcio-threads"
    assert info["reason"]
    (warning,) = (line for line in caplog.messages if "is not as expected" in line)
    assert info["reason"] in warning
