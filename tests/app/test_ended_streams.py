"""Streams end when their caller's token or certificate is known no more, idle or not."""

from __future__ import annotations

import queue
from typing import Any

import grpc
import pytest

from tests.access.callers import AccessFile
from tests.app.certificates import Mint
from tests.servers import Peer, replacement, served, two_zones
from tests.waiting import PATIENCE, until
from topospread.app.files import ACCESS_POLL, CredentialWatcher
from topospread.calls.memory import CHECK_SECONDS, GRACE_SECONDS
from topospread.config.settings import ServerSettings
from topospread.service.state.log import POLL as WATCH_POLL
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

GONE = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.CANCELLED}
SECONDS = 2.0
"""In which a stream ends."""


def test_a_stream_is_given_up_in_time():
    # A change of the access file is seen, then a look finds the stream, and one ends it.
    assert ACCESS_POLL + CHECK_SECONDS + GRACE_SECONDS + CHECK_SECONDS < SECONDS - 0.2
    assert WATCH_POLL < GRACE_SECONDS


def test_the_access_file_is_looked_at_in_time(tmp_path):
    access = AccessFile(tmp_path / "access.yaml", mine=["read"])
    watcher = CredentialWatcher(ServerSettings(access_file=str(access)))
    assert watcher._access is not None
    assert watcher._access._interval == ACCESS_POLL


@pytest.fixture(params=["token", "certificate"])
def known(request, tmp_path):
    """A server; a channel, metadata of a caller who is known; and what ends that."""
    access = AccessFile(tmp_path / "access.yaml", feeder=["write"], mine=["decide", "write"])
    flags: dict[str, Any] = {"access_file": str(access)}
    credentials, metadata = None, access.bearer("mine")
    if request.param == "certificate":
        mint = Mint(tmp_path)
        flags |= mint.flags
        access.certificate("decide", "write", commonName="mine")
        access.write()
        credentials = mint.credentials(mint.client(common_name="mine"))
        metadata = ()
    with served(**flags) as server, Peer(server.address, credentials) as peer:
        bearer = access.bearer("feeder")
        peer.state.ApplyObjects(
            pb.ApplyObjectsRequest(objects=two_zones()), metadata=bearer, timeout=PATIENCE
        )

        def end() -> None:
            if request.param == "certificate":
                access.forget_certificates()
            else:
                access.remove("mine")
            access.write()
            assert server.reload()

        yield peer, metadata, end


def code_of(call: Any) -> grpc.StatusCode:
    """How a call ends without a further answer, which it must before its deadline."""
    with pytest.raises(grpc.RpcError):
        next(call)
    code: grpc.StatusCode = call.code()
    return code


def test_a_watch_ends(known):
    peer, metadata, end = known
    call = peer.state.WatchObjects(pb.WatchObjectsRequest(), metadata=metadata, timeout=PATIENCE)
    next(call)
    end()
    assert code_of(call) in GONE


def test_a_list_that_waits_for_more_ends(known):
    peer, metadata, end = known
    more: Any = queue.SimpleQueue()
    more.put(replacement(kind=common_pb2.KIND_POD)[0])
    call = peer.state.ReplaceObjects.future(
        iter(more.get, None), metadata=metadata, timeout=PATIENCE
    )
    until(more.empty, "the start is sent")
    end()
    error = call.exception(timeout=PATIENCE)
    assert error.code() in GONE, error
    more.put(None)
