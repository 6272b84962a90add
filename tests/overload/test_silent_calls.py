"""Calls whose messages are held back: they keep others from nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import grpc

from bench.campaigns.heavy import EVALUATE, QUESTION
from tests.overload.callers import OPTIONS, Outcomes
from tests.waiting import PATIENCE

CONNECTIONS = 6
CALLS = 1000
"""Of each connection, begun at once, all of which send headers alone."""

ANSWERS = 20
"""To another caller beside each connection's calls."""


def test_calls_without_a_message_give_way_and_hold_up_no_other(serve):
    service = serve()
    silent, others = asyncio.run(_ended(service.address))
    assert others.codes == {"OK": CONNECTIONS * ANSWERS}
    assert silent.codes.keys() == {"RESOURCE_EXHAUSTED"}


async def _ended(address: str) -> tuple[Outcomes, Outcomes]:
    """How silent calls ended, as far as they have, and how the calls of another caller did."""
    silent, others = Outcomes(), Outcomes()
    some_ended = asyncio.Event()
    async with AsyncExitStack() as opened:

        async def connect() -> grpc.aio.Channel:
            channel = grpc.aio.insecure_channel(address, options=OPTIONS)
            await opened.enter_async_context(channel)
            await channel.channel_ready()
            return channel

        other: Any = (await connect()).unary_unary(EVALUATE)
        calls: list[Any] = []
        for _ in range(CONNECTIONS):
            begin: Any = (await connect()).stream_unary(EVALUATE)
            for _ in range(CALLS):
                calls.append(begin(timeout=PATIENCE))
                calls[-1].add_done_callback(lambda _: some_ended.set())
            for _ in range(ANSWERS):
                await _count(others, other(QUESTION, timeout=PATIENCE))
        await asyncio.wait_for(some_ended.wait(), PATIENCE)
        for call in [call for call in calls if call.done()]:
            await _count(silent, call)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    return silent, others


async def _count(outcomes: Outcomes, call: Any) -> None:
    outcomes.count(await call.code(), await call.trailing_metadata())
