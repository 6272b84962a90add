"""Callers that go, and deadlines that pass: what a server spends on their calls afterwards."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest

from bench.campaigns import attacker
from bench.campaigns.heavy import EVALUATE
from tests.overload import requests
from tests.overload.callers import BATCH, Caller, Service, at_once, difference
from tests.waiting import until

CONNECTIONS = 8
EVALUATES = 2000
ROUNDS = 6
"""Of a batch whose caller goes: one that is all but done by then is no fault."""

JUDGED = "scheduler_schedule_attempts_total"
"""Counts each pod that is judged: of a batch all, when the last one is."""


@pytest.fixture
def service(serve):
    service = serve("--decision-queue", str(EVALUATES))
    with Caller(service.address) as caller:
        caller.apply(requests.cluster())
        caller.begin(EVALUATE, requests.evaluate()).result()
    return service


def test_calls_whose_callers_cancel_in_the_queue_are_not_begun(service):
    sent = [requests.evaluate() for _ in range(EVALUATES)]
    before = service.rested()
    with ExitStack() as opened:
        callers = [opened.enter_context(Caller(service.address)) for _ in range(CONNECTIONS)]
        with service.suspended():
            calls = at_once(callers, EVALUATE, sent)
        until(lambda: any(call.done() for call in calls), "the first ends")
        with service.suspended():
            cancelled = sum(call.cancel() for call in calls)
        callers[0].evaluate()
        after = service.rested()
    judged = difference(before, after)(JUDGED)

    assert cancelled > EVALUATES / 2
    assert after.codes("EvaluatePod").keys() <= {"OK", "CANCELLED"}
    assert judged < EVALUATES - cancelled / 2


def test_calls_whose_deadline_passes_in_the_queue_are_not_begun(service):
    sent = [requests.evaluate() for _ in range(EVALUATES)]
    with Caller(service.address) as caller:
        cpu = service.cpu
        for _ in range(20):
            caller.begin(EVALUATE, requests.evaluate()).result()
        each = (service.cpu - cpu) / 20
    deadline = b"%dm" % (each * EVALUATES / 20 * 1e3)
    before = service.rested()
    # This caller does not end its calls when their deadline has passed: the server must know it.
    with closing(attacker.Line(service.address)) as line:
        with service.suspended():
            for request in sent:
                line.call(EVALUATE, attacker.short(request), ((b"grpc-timeout", deadline),))
            line.pump()

        def all_ended() -> bool:
            line.pump()
            return line.ended == EVALUATES

        until(all_ended, "all have ended")
    after = service.rested()

    assert difference(before, after)(JUDGED) < EVALUATES / 2


@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_a_batch_whose_caller_goes_ends_early(service, leave):
    with Caller(service.address) as other:
        cpu = service.cpu
        other.begin(BATCH, requests.batch(requests.LARGEST_BATCH)).result()
        whole = service.cpu - cpu
    before = service.rested()
    left = sum(_leaves(service, whole / 5, leave) for _ in range(ROUNDS))
    judged = difference(before, service.rested())(JUDGED)

    assert left > ROUNDS / 2
    assert judged < requests.LARGEST_BATCH * ROUNDS / 2


def _leaves(service: Service, after: float, leave: str) -> bool:
    """Go away from a batch for which so much processor time was spent.

    Returns:
        Whether it was still under way.
    """
    with Caller(service.address) as caller:
        cpu = service.cpu
        call = caller.begin(BATCH, requests.batch(requests.LARGEST_BATCH))
        until(lambda: service.cpu - cpu > after, "it is carried out")
        under_way = not call.done()
        if leave == "cancel":
            call.cancel()
        else:
            caller.channel.close()
        service.rested()
    return under_way
