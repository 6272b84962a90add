"""Callers that go, and deadlines that pass: what a server spends on their calls afterwards."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest

from tests.fuzz import attacker
from tests.overload import requests
from tests.overload.callers import BATCH, EVALUATE, Caller, at_once, difference
from tests.waiting import until

CONNECTIONS = 8
BATCHES = 500
PODS = 20
"""Of each of these batches."""

EVALUATES = 400
JUDGED = "scheduler_schedule_attempts_total"
"""Counts each pod that is judged."""


@pytest.fixture
def service(serve):
    service = serve()
    with Caller(service.address) as caller:
        caller.apply(requests.cluster())
        caller.begin(EVALUATE, requests.evaluate()).result()
    return service


def test_batches_whose_callers_cancel_in_the_queue_are_not_begun(service):
    with ExitStack() as opened:
        callers = [opened.enter_context(Caller(service.address)) for _ in range(CONNECTIONS)]
        cpu = service.cpu
        for _ in range(10):
            callers[0].begin(BATCH, requests.batch(PODS)).result()
        each = (service.cpu - cpu) / 10
        sent = [requests.batch(PODS) for _ in range(BATCHES)]
        before = service.rested()

        calls = at_once(callers, BATCH, sent)
        until(lambda: any(call.done() for call in calls), "the first ends")
        cancelled = sum(call.cancel() for call in calls)
        cpu = service.cpu
        callers[0].evaluate()
        after = service.rested()
        spent = service.cpu - cpu

    answered = after.codes("BatchEvaluatePods")["OK"] - before.codes("BatchEvaluatePods")["OK"]
    assert cancelled > BATCHES / 2
    assert spent < cancelled * each / 10
    assert difference(before, after)(JUDGED) < PODS * (answered + cancelled / 10)


def test_calls_whose_deadline_passes_in_the_queue_are_not_begun(service):
    sent = [requests.evaluate() for _ in range(EVALUATES)]
    with Caller(service.address) as caller:
        cpu = service.cpu
        for _ in range(20):
            caller.begin(EVALUATE, requests.evaluate()).result()
        each = (service.cpu - cpu) / 20
    deadline = b"%dm" % (each * EVALUATES / 10 * 1e3)
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
        with Caller(service.address) as caller:
            cpu = service.cpu
            call = caller.begin(BATCH, requests.batch(requests.LARGEST_BATCH))
            until(lambda: service.cpu - cpu > whole / 5, "it is carried out")
            other.evaluate()
            assert not call.done()
            if leave == "cancel":
                call.cancel()
            else:
                caller.channel.close()
            cpu = service.cpu
            other.evaluate()
            service.rested()
            assert service.cpu - cpu < whole / 2
