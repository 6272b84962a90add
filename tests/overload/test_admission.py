"""More calls than there is room for: each is answered or refused by the server, and counted."""

from __future__ import annotations

from contextlib import ExitStack

from bench.campaigns.heavy import EVALUATE, QUESTION
from tests.overload.callers import Caller, Outcomes, Scraper, at_once, difference

CONNECTIONS = 8
CALLS = 4800
QUEUE = 64
BURSTS = 5
"""Until a scraper has seen calls in the queue, which most often happens with the first."""

DECISIONS = {"pool": "decisions"}
OK = {"method": "DecisionService/EvaluatePod", "code": "OK"}


def test_calls_past_the_queue_are_refused_and_all_are_counted(serve):
    service = serve("--decision-queue", str(QUEUE))
    before = service.rested()
    outcomes = Outcomes()
    with ExitStack() as opened:
        callers = [opened.enter_context(Caller(service.address)) for _ in range(CONNECTIONS)]
        scraper = opened.enter_context(Scraper(service))
        for _ in range(BURSTS):
            with service.suspended():
                calls = at_once(callers, EVALUATE, [QUESTION] * CALLS)
            for call in calls:
                outcomes.note(call)
            if any(scraper.depths) or outcomes.codes.keys() - {"OK", "RESOURCE_EXHAUSTED"}:
                break
    after = service.rested()
    grown = difference(before, after)

    assert outcomes.codes.keys() == {"OK", "RESOURCE_EXHAUSTED"}, outcomes.codes
    answered, refused = outcomes.codes["OK"], outcomes.codes["RESOURCE_EXHAUSTED"]
    assert not outcomes.unadvised
    assert after.codes("EvaluatePod") == {"OK": 1 + answered, "RESOURCE_EXHAUSTED": refused}
    assert grown("topospread_queue_rejections_total", **DECISIONS) == refused
    assert 0 < max(scraper.depths) <= QUEUE
    assert grown("topospread_queue_wait_seconds_count", **DECISIONS) == answered
    waited = grown("topospread_queue_wait_seconds_sum", **DECISIONS)
    assert 0 < waited <= grown("topospread_call_duration_seconds_sum", **OK)
