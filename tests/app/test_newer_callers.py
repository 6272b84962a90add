"""Callers that know more fields than this version."""

from __future__ import annotations

import pytest

from tests.app.all_calls import SERVED, all_calls, make_calls
from tests.servers import Peer, served


@pytest.mark.parametrize(
    "more",
    [b"\xf8\xff\x01\x2a", b"\xfa\xff\x01\x03new", b"\xfa\xff\x01\x00\xf8\xff\x01\x00"],
    ids=["number", "bytes", "both"],
)
def test_fields_that_only_newer_callers_know_change_no_answer(more):
    answers = []
    for behind in (b"", more):
        with served(**SERVED) as server, Peer(server.address) as peer:
            answers.append(make_calls(peer.channel, behind))
    for call, plain, extended in zip(all_calls(), *answers, strict=True):
        assert extended == plain, call.call
        assert "failed" not in plain[0], call.call
