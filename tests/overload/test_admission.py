"""More calls than there is room for: each is answered or refused by the server, and counted."""

from __future__ import annotations

from contextlib import ExitStack

import grpc
from google.rpc import code_pb2

from bench.campaigns.heavy import EVALUATE, QUESTION
from tests.overload.callers import Caller, Outcomes, Scraper, at_once, difference, has_retry_info
from tests.servers import evaluate_request
from topospread_proto.v1 import decision_service_pb2 as engine_pb

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
    # On its own threads grpcio lets a call whose message is late give way with a code alone.
    late = refused if before.total("topospread_transport_info", used="grpcio-threads") else 1
    assert outcomes.unadvised < late
    assert after.codes("EvaluatePod") == {"OK": 1 + answered, "RESOURCE_EXHAUSTED": refused}
    assert grown("topospread_queue_rejections_total", **DECISIONS) == refused
    assert 0 < max(scraper.depths) <= QUEUE
    assert grown("topospread_queue_wait_seconds_count", **DECISIONS) == answered
    waited = grown("topospread_queue_wait_seconds_sum", **DECISIONS)
    assert 0 < waited <= grown("topospread_call_duration_seconds_sum", **OK)


def test_questions_of_streams_are_answered_or_refused_one_by_one(serve):
    service = serve("--decision-queue", "2")
    messages = [
        engine_pb.StreamEvaluatePodsRequest(id=number, evaluate=evaluate_request())
        for number in range(CALLS // CONNECTIONS)
    ]
    questions = [message.SerializeToString() for message in messages]
    refusals = 0
    with ExitStack() as opened:
        callers = [opened.enter_context(Caller(service.address)) for _ in range(CONNECTIONS)]
        with service.suspended():
            streams = [caller.converse(questions) for caller in callers]
        for stream in streams:
            answers = [engine_pb.StreamEvaluatePodsResponse.FromString(each) for each in stream]
            assert sorted(answer.id for answer in answers) == list(range(len(questions)))
            refused = [each.error for each in answers if each.WhichOneof("answer") == "error"]
            assert {status.code for status in refused} <= {code_pb2.RESOURCE_EXHAUSTED}
            assert all(map(has_retry_info, refused))
            refusals += len(refused)
            assert stream.code() is grpc.StatusCode.OK
    seen = service.rested()
    assert seen.total("topospread_queue_rejections_total", **DECISIONS) == refusals
    # A stream of grpcio's own threads has a thread, whose requests wait for it alone.
    assert bool(refusals) == bool(seen.total("topospread_transport_info", used="grpcio"))
