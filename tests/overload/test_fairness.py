"""One caller with much under way, or that sends no messages, beside another with little."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

import grpc

from bench.campaigns.crowd import PLANNER, simulated
from bench.campaigns.heavy import ENGINE, EVALUATE, QUESTION, HeavyCaller
from tests.overload import requests
from tests.overload.callers import BATCH, OPTIONS, Caller, Outcomes, at_once
from tests.waiting import PATIENCE, until

UNDER_WAY = 1000
LIGHT_CALLS = 40
SHORT_QUEUE = 64
FEW_CALLS = 8
BATCHES = 5
SIMULATES = 8
"""As many as the planner has threads; each takes seconds."""


def test_a_light_caller_waits_for_a_few_calls_of_a_heavy_one(serve):
    service = serve()
    outcomes = Outcomes()
    meanwhile = []
    with Caller(service.address) as light, HeavyCaller(service.address, UNDER_WAY) as heavy:
        heavy.await_ended(UNDER_WAY)
        for _ in range(LIGHT_CALLS):
            answered = heavy.answered
            call = light.begin(EVALUATE, QUESTION)
            outcomes.note(call)
            meanwhile.append(heavy.answered - answered)
        failed = heavy.failed
    assert outcomes.codes == {"OK": LIGHT_CALLS}
    assert not failed
    assert median(meanwhile) < UNDER_WAY / 10, sorted(meanwhile)


def test_a_full_queue_refuses_the_heavy_caller_alone(serve):
    service = serve("--decision-queue", str(SHORT_QUEUE))
    outcomes = Outcomes()
    with (
        Caller(service.address) as light,
        # It calls again as soon as it is refused.
        HeavyCaller(service.address, UNDER_WAY) as heavy,
    ):
        heavy.await_ended(UNDER_WAY)
        for _ in range(FEW_CALLS):
            outcomes.note(light.begin(EVALUATE, QUESTION))
        failed = heavy.failed
    assert outcomes.codes == {"OK": FEW_CALLS}
    assert failed


def test_long_batches_and_short_calls_take_turns(serve):
    service = serve()
    with Caller(service.address) as light, Caller(service.address) as heavy:
        light.apply(requests.cluster())
        sent = [requests.batch(requests.LARGEST_BATCH) for _ in range(BATCHES)]
        cpu = service.cpu
        heavy.begin(BATCH, sent.pop()).result()
        whole = service.cpu - cpu
        cpu = service.cpu
        batches = at_once([heavy], BATCH, sent)
        until(lambda: service.cpu - cpu > whole / 5, "they are carried out")
        for _ in range(LIGHT_CALLS):
            light.evaluate()
        over = sum(batch.done() for batch in batches)
        assert over < len(batches) / 2
        outcomes = Outcomes()
        for batch in batches:
            outcomes.note(batch)
        assert outcomes.codes == {"OK": len(batches)}


def test_simulates_of_one_caller_keep_no_other_from_the_planner(serve):
    service = serve()
    with Caller(service.address) as other, Caller(service.address) as planning:
        other.apply(requests.cluster())
        sent = [simulated(number).SerializeToString() for number in range(SIMULATES)]
        simulates = at_once([planning], f"{PLANNER}Simulate", sent)
        # What is queued waits for a thread though others are idle.
        until(
            lambda: (
                service.figures().total("topospread_inflight_calls", pool="planner")
                >= SIMULATES / 2
            ),
            "they are under way",
        )
        explained = other.begin(f"{ENGINE}ExplainPod", QUESTION)
        explained.result()
        assert not any(simulate.done() for simulate in simulates)
        for simulate in simulates:
            simulate.cancel()


# ------------------------------ calls without messages

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
