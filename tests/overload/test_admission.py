"""More calls than there is room for: each is answered or refused by the server, and counted."""

from __future__ import annotations

from bench.campaigns.overload import flooded

CALLS = 4800
QUEUE = 64


def test_calls_past_the_queue_are_refused_and_all_are_counted(serve):
    found = flooded(serve("--decision-queue", str(QUEUE)), CALLS, QUEUE)
    assert not found.broken, found.figures
