"""EvaluateStream by either client: EvaluatePod's answers and errors, beyond one server's life."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import grpc
import pytest

from tests.client.manifests import TWO_ZONES, incoming, spread
from tests.client.streaming import answers, answers_then, fails, streaming
from tests.redis_server import free_port
from tests.servers import pod, served, threads_end, two_zones
from tests.waiting import PATIENCE, until
from topospread_client import (
    AsyncClient,
    Client,
    Closed,
    Connection,
    Consistency,
    ConstraintValidation,
    DeadlineExceeded,
    EvaluatePodResponse,
    InvalidRequest,
    LimitExceeded,
    ManifestError,
    NotFound,
    NotSupported,
    ServerFault,
    Settings,
    TopospreadClientError,
    Unavailable,
    pod_from_manifest,
)
from topospread_client._stream_session import MAX_BROKEN_STREAMS, StreamSession
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.decision_service_pb2 import StreamEvaluatePodsResponse

CODE = grpc.StatusCode
SOFT = spread("kubernetes.io/hostname", "ScheduleAnyway")
PARENT = f"00-{'1' * 32}-{'2' * 16}-01"
NEWER: Any = 99  # a code that this client does not have
GONE = fails(CODE.UNAVAILABLE, "going away")


def named(name: str) -> Pod:
    made = Pod()
    made.metadata.name = name
    return made


@pytest.fixture
def streams():
    with streaming() as streams:
        yield streams


@pytest.fixture
def fresh(client):
    """The two zones, and the demand to see all of them."""
    return Consistency(at_least_as_fresh=client.apply_objects(TWO_ZONES).revision)


Asked = tuple[tuple[Any, ...], dict[str, Any]]
QUESTIONS: dict[str, Asked] = {
    "hard": ((incoming(),), {}),
    "hard and soft": ((incoming(spread(maxSkew=2), SOFT),), {"top_k": 2}),
    "bytes": ((Pod().SerializeToString(),), {}),
    "chosen nodes": ((incoming(SOFT),), {"candidates": ["b1", "a1"]}),
    "what-ifs": ((incoming(),), {"remove_pods": [(TWO_ZONES[3], "a1")]}),
    "settings": (
        (incoming(),),
        {"settings": Settings(feature_gates={"NodeInclusionPolicyInPodTopologySpread": False})},
    ),
}
REFUSED: dict[str, Asked] = {
    "unknown cluster": ((incoming(),), {"cluster": "missing"}),
    "unknown pod": (("default/missing",), {}),
    "bytes that are no pod": ((b"\xff",), {}),
    "too many constraints": ((incoming(*[SOFT] * 65),), {}),
    "too many nodes": ((incoming(),), {"top_k": 1001}),
    "a pod that no API server takes": (
        (incoming(spread(maxSkew=0)),),
        {"validation": ConstraintValidation.STRICT},
    ),
    "unknown settings": ((incoming(),), {"settings": Settings(profile="missing")}),
    "a manifest that is no pod": (({"kind": "Node"},), {}),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_evaluate(client, fresh, question):
    args, options = QUESTIONS[question]
    expected = client.evaluate_pod(*args, consistency=fresh, **options)
    with client.stream_evaluate_pods() as stream:
        for _ in range(3):
            found = stream.evaluate_pod(*args, consistency=fresh, **options)
            assert found == replace(expected, traceparent=found.traceparent)


@pytest.mark.parametrize("question", REFUSED)
def test_errors_are_those_of_evaluate_and_the_stream_goes_on(client, fresh, question):
    args, options = REFUSED[question]
    with pytest.raises(TopospreadClientError) as expected:
        client.evaluate_pod(*args, **options)
    with client.stream_evaluate_pods() as stream:
        for _ in range(2):
            with pytest.raises(type(expected.value)) as found:
                stream.evaluate_pod(*args, **options)
            assert str(found.value) == str(expected.value)
            violations = getattr(expected.value, "violations", None)
            assert getattr(found.value, "violations", None) == violations
            assert stream.evaluate_pod(incoming(), consistency=fresh).best == "b1"


def test_many_evaluations_have_their_outcomes_in_order(client, fresh):
    pods = [incoming(), b"\xff", incoming(*[SOFT] * 65), {"kind": "Node"}, incoming(SOFT)] * 5
    with client.stream_evaluate_pods(window=3) as stream:
        outcomes = list(stream.evaluate_pods(pods, consistency=fresh, top_k=1))
    kinds = [
        EvaluatePodResponse,
        InvalidRequest,
        InvalidRequest,
        ManifestError,
        EvaluatePodResponse,
    ] * 5
    assert [type(outcome) for outcome in outcomes] == kinds
    assert [o.feasible_node_count for o in outcomes if isinstance(o, EvaluatePodResponse)] == [
        1,
        3,
    ] * 5


def test_window_limits_the_evaluations_under_way(connect, streams):
    streams.script = [answers]
    taken = count()
    pods = (named(f"p{next(taken)}") for _ in range(20))
    with connect(streams.address).stream_evaluate_pods(window=4) as stream:
        outcomes = stream.evaluate_pods(pods)
        assert [next(outcomes).revision for _ in range(3)] == ["p0", "p1", "p2"]
        assert next(taken) == 6, "the third answer is given when the sixth question is asked"
        outcomes.close()


def test_iteration_that_is_left_early_delays_no_other(connect, streams):
    streams.script = [answers]
    with connect(streams.address).stream_evaluate_pods(window=4) as stream:
        outcomes = stream.evaluate_pods([named(f"p{number}") for number in range(9)])
        assert next(outcomes).revision == "p0"
        assert stream.evaluate_pod(named("between")).revision == "between"
        assert next(outcomes).revision == "p1"
        outcomes.close()
        assert stream.evaluate_pod(named("after")).revision == "after"
    assert streams.asked[-1] == ["after"]


@pytest.mark.parametrize("code", [CODE.UNAVAILABLE, CODE.CANCELLED])
def test_pending_evaluations_are_retried_when_the_server_goes_away(connect, streams, code):
    streams.script = [answers_then(2, fails(code)), answers]
    with connect(streams.address).stream_evaluate_pods(window=3) as stream:
        outcomes = list(stream.evaluate_pods([named(f"p{number}") for number in range(6)]))
    assert [outcome.revision for outcome in outcomes] == [f"p{number}" for number in range(6)]
    first, second = streams.asked
    assert first[:3] == ["p0", "p1", "p2"]
    assert second == ["p2", "p3", "p4", "p5"]


def test_evaluation_whose_streams_break_without_a_status_is_retried_a_few_times(connect, streams):
    """Going away is no such end, however often."""
    streams.script = [
        answers_then(1, GONE),
        *[answers_then(0, fails(CODE.INTERNAL, "broke"))] * (MAX_BROKEN_STREAMS + 1),
        answers,
    ]
    with connect(streams.address).stream_evaluate_pods() as stream:
        assert stream.evaluate_pod(named("first")).revision == "first"
        with pytest.raises(ServerFault, match="broke"):
            stream.evaluate_pod(named("unlucky"))
        assert stream.evaluate_pod(named("last")).revision == "last"
    broken = [["unlucky"]] * (MAX_BROKEN_STREAMS + 1)
    assert streams.asked == [["first", "unlucky"], *broken, ["last"]]


def large(size: int) -> Pod:
    made = pod_from_manifest(incoming())
    made.metadata.annotations["large"] = "x" * size
    return made


@pytest.mark.parametrize("limit", ["max_decision_bytes", "max_request_bytes"])
def test_requests_that_are_too_large_fail_and_no_others(connect, limit):
    """Also where gRPC itself ends the stream, and with it the questions behind."""
    with served(**{limit: "4KiB"}) as server:
        client = connect(server.address)
        client.apply_objects(two_zones())
        client.get_node_table(consistency=Consistency(fully_consistent=True))
        pods = [incoming(), large(9000), incoming(), large(5000), large(1000)] * 4
        with client.stream_evaluate_pods() as stream:
            outcomes = list(stream.evaluate_pods(pods))
        kinds = [EvaluatePodResponse, LimitExceeded, EvaluatePodResponse]
        assert [type(each) for each in outcomes] == [*kinds, LimitExceeded, EvaluatePodResponse] * 4


def test_response_that_is_too_large_fails_all_evaluations(connect, streams):
    text = "CLIENT: Received message larger than max (9 vs. 5000)"
    streams.script = [answers_then(1, fails(CODE.RESOURCE_EXHAUSTED, text)), answers]
    with connect(streams.address).stream_evaluate_pods(window=2) as stream:
        first, second = stream.evaluate_pods([named("p0"), named("p1")])
        assert first.revision == "p0"
        assert type(second) is LimitExceeded
        assert stream.evaluate_pod(named("next")).revision == "next"
    assert streams.asked == [["p0", "p1"], ["next"]]


def test_evaluations_are_not_retried_without_retries(connect, streams):
    streams.script = [answers_then(1, GONE), answers]
    with connect(Connection(streams.address, retries=False)).stream_evaluate_pods() as stream:
        stream.evaluate_pod(named("first"))
        with pytest.raises(Unavailable):
            stream.evaluate_pod(named("unlucky"))
    assert streams.asked == [["first", "unlucky"]]


def said(code):
    """An end with a status and what a server says beside it."""

    def end(context):
        context.set_trailing_metadata((("traceparent", PARENT),))
        context.abort(code, "no more")

    return end


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (CODE.RESOURCE_EXHAUSTED, LimitExceeded),
        (CODE.UNIMPLEMENTED, NotSupported),
        (CODE.INTERNAL, ServerFault),
    ],
)
def test_stream_that_ends_with_an_error_fails_its_evaluations_and_can_be_used_on(
    connect, streams, code, error
):
    streams.script = [answers_then(1, said(code)), answers]
    with connect(streams.address).stream_evaluate_pods(window=2) as stream:
        first, second = stream.evaluate_pods([named("p0"), named("p1")])
        assert first.revision == "p0"
        assert type(second) is error
        assert str(second) == "no more"
        assert second.traceparent == PARENT
        assert stream.evaluate_pod(named("next")).revision == "next"
    assert streams.asked == [["p0", "p1"], ["next"]]


def test_unexpected_end_or_response_is_a_server_fault(connect, streams):
    def wrong(questions, context):
        yield StreamEvaluatePodsResponse(id=next(questions).id + 7)

    streams.script = [answers_then(0, lambda context: None), wrong, answers]
    with connect(streams.address).stream_evaluate_pods() as stream:
        with pytest.raises(ServerFault, match="without an answer"):
            stream.evaluate_pod(named("p"))
        with pytest.raises(ServerFault, match="was not asked"):
            stream.evaluate_pod(named("p"))
        assert stream.evaluate_pod(named("p")).revision == "p"


def test_evaluation_that_takes_too_long_ends_alone(connect, streams):
    never = threading.Event()
    streams.script = [answers_then(1, lambda context: never.wait(PATIENCE)), answers]
    with connect(streams.address).stream_evaluate_pods(window=3) as stream:
        assert stream.evaluate_pod(named("first"), timeout=PATIENCE).revision == "first"
        with pytest.raises(DeadlineExceeded, match=r"within 0\.05 s"):
            stream.evaluate_pod(named("slow"), timeout=0.05)
        assert stream.evaluate_pod(named("next"), timeout=PATIENCE).revision == "next"
    never.set()
    # It may not have come as far as the server.
    assert streams.asked in ([["first", "slow"], ["next"]], [["first"], ["next"]])


def test_evaluations_behind_one_that_takes_too_long_are_sent_again(connect, streams):
    never = threading.Event()
    streams.script = [answers_then(1, lambda context: never.wait(PATIENCE)), answers]
    with connect(streams.address).stream_evaluate_pods(window=3) as stream:
        pods = [named(f"p{number}") for number in range(4)]
        first, slow, *others = stream.evaluate_pods(pods, timeout=3)
    never.set()
    assert first.revision == "p0"
    assert isinstance(slow, DeadlineExceeded)
    assert [other.revision for other in others] == ["p2", "p3"]


def test_unreadable_response_fails_its_evaluation_alone(connect, streams):
    def newer(questions, context):
        response = pb.EvaluatePodResponse()
        response.pre_filter_verdict.code = NEWER
        yield StreamEvaluatePodsResponse(id=next(questions).id, evaluate=response)
        yield from answers(questions, context)

    streams.script = [newer]
    with connect(streams.address).stream_evaluate_pods() as stream:
        with pytest.raises(ServerFault, match="99"):
            stream.evaluate_pod(named("first"), timeout=PATIENCE)
        assert stream.evaluate_pod(named("second"), timeout=PATIENCE).revision == "second"
    assert len(streams.asked) == 1


def test_reader_that_never_ran_does_not_block_another(streams, monkeypatch):
    """As when Ctrl-C comes before its thread runs."""
    streams.script = [answers]

    def interrupted(thread):
        raise KeyboardInterrupt

    with Client(streams.address) as client, client.stream_evaluate_pods() as stream:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                stream.evaluate_pod(named("p"))
        assert stream.evaluate_pod(named("p"), timeout=PATIENCE).revision == "p"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reader_that_fails_ends_its_stream(connect, streams, monkeypatch):
    def broken(*args):
        raise RuntimeError("can't start new thread")

    streams.script = [answers]
    monkeypatch.setattr(StreamSession, "on_response", broken)
    with connect(streams.address).stream_evaluate_pods() as stream:
        for _ in range(2):
            with pytest.raises(Closed, match="can't start new thread"):
                stream.evaluate_pod(named("p"), timeout=PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "reader":
            # What it raises is expected here, and would fail the test after this one.
            thread.join(PATIENCE)


def test_closed_stream_refuses_evaluations(connect, streams):
    streams.script = [answers]
    with connect(streams.address).stream_evaluate_pods() as stream:
        stream.evaluate_pod(named("p"))
        stream.close()
        with pytest.raises(Closed, match="open another one"):
            stream.evaluate_pod(named("p"))


def test_window_of_zero_is_refused(connect, streams):
    with pytest.raises(InvalidRequest, match="at least one"):
        connect(streams.address).stream_evaluate_pods(window=0)


def test_the_stream_has_the_trace_context_that_it_is_given(connect, streams):
    streams.script = [answers]
    client = connect(streams.address)
    with client.stream_evaluate_pods(traceparent=PARENT) as stream:
        assert stream.evaluate_pod(named("p")).trace_id == "1" * 32
    with client.stream_evaluate_pods() as stream:
        assert stream.evaluate_pod(named("p")).traceparent is None
    first, second = streams.metadata
    assert first["traceparent"] == PARENT
    assert "traceparent" not in second


def test_each_evaluation_has_a_trace_of_its_own(client, fresh):
    own = [f"00-{digit * 32}-{'2' * 16}-01" for digit in "345"]
    with client.stream_evaluate_pods(traceparent=PARENT) as stream:
        under = [
            stream.evaluate_pod(incoming(), consistency=fresh, traceparent=each) for each in own
        ]
        assert [each.trace_id for each in under] == ["3" * 32, "4" * 32, "5" * 32]
        assert stream.evaluate_pod(incoming()).trace_id == "1" * 32
        with pytest.raises(NotFound) as failed:
            stream.evaluate_pod(incoming(), cluster="missing", traceparent=own[0])
        assert (failed.value.traceparent or "").startswith(f"00-{'3' * 32}-")
    with client.stream_evaluate_pods() as stream:
        found = list(stream.evaluate_pods([incoming()] * 4))
    assert len({each.trace_id for each in found if isinstance(each, EvaluatePodResponse)}) == 4


def test_threads_may_share_a_stream(streams):
    streams.script = [answers]
    found: list[list[str]] = []
    with Client(streams.address) as client, client.stream_evaluate_pods() as stream:

        def ask(own: int) -> None:
            names = [f"p{own}-{number}" for number in range(50)]
            found.append([stream.evaluate_pod(named(name)).revision for name in names])

        threads = [threading.Thread(target=partial(ask, own)) for own in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    expected = [[f"p{own}-{number}" for number in range(50)] for own in range(4)]
    assert sorted(found) == expected


def test_tasks_may_share_a_stream_and_be_cancelled(streams):
    held = threading.Event()

    def answers_later(questions, context):
        for question in questions:
            if question.evaluate.pod.object.metadata.name == "held":
                held.wait(PATIENCE)
            yield from answers(iter([question]), context)

    streams.script = [answers_later]

    async def ask() -> list[str]:
        async with AsyncClient(streams.address) as client, client.stream_evaluate_pods() as stream:

            async def one(name: str) -> str:
                return (await stream.evaluate_pod(named(name), timeout=PATIENCE)).revision

            await one("first")
            waiting = asyncio.create_task(one("held"))
            others = [asyncio.create_task(one(f"p{number}")) for number in range(9)]
            await asyncio.to_thread(
                until, lambda: len(streams.asked[0]) == 2, "the second question is there"
            )
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return await asyncio.gather(*others)

    assert asyncio.run(ask()) == [f"p{number}" for number in range(9)]
    held.set()


@pytest.mark.parametrize("refusals", [1, 3])
def test_evaluations_move_from_a_stopping_server_to_another(connect, streams, refusals):
    """Asked again at once, the server that stops is met again."""
    streams.script = [answers_then(1, GONE), *[answers_then(0, GONE)] * refusals, answers]
    with connect(streams.address).stream_evaluate_pods() as stream:
        stream.evaluate_pod(named("first"))
        assert stream.evaluate_pod(named("second"), timeout=PATIENCE).revision == "second"


# Python drops, with a warning, an interrupt that comes while it runs a finalizer.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_leaves_a_stream_usable(streams):
    """Wherever Ctrl-C comes: the next question is answered, and the stream can be closed."""
    streams.script = [answers]
    with Client(streams.address) as client, client.stream_evaluate_pods() as stream:
        interrupted = 0
        for number in range(40):
            timer = threading.Timer(0.002 * (number % 10), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                # Not for ever: the interrupt may have been dropped.
                for _ in stream.evaluate_pods(named(f"p{each}") for each in range(5000)):
                    pass
                timer.join()
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
        assert interrupted > 20
        assert stream.evaluate_pod(named("last"), timeout=PATIENCE).revision == "last"


def test_a_stream_outlives_its_server(connect, tmp_path):
    """Two servers take turns to stop; callers notice nothing."""
    store = f"sqlite:///{tmp_path}/state.db"
    listen = f"127.0.0.1:{free_port()}"
    with served(store=store, listen=listen) as first, served(store=store) as second:
        client = connect(Connection(f"ipv4:{first.address},{second.address}", insecure=True))
        client.apply_objects(two_zones())
        client.get_node_table(consistency=Consistency(fully_consistent=True))
        with client.stream_evaluate_pods(window=8) as stream:
            outcomes = stream.evaluate_pods([incoming()] * 300)
            found = [next(outcomes) for _ in range(100)]
            first.stop()
            found += [next(outcomes) for _ in range(100)]
            with served(store=store, listen=listen):
                second.stop()
                found += outcomes
                assert stream.evaluate_pod(incoming()).best == "b1"
    assert [outcome.best for outcome in found] == ["b1"] * 300


def test_no_thread_is_left_behind():
    with threads_end(), served() as server, Client(server.address) as client:
        client.apply_objects([*two_zones(), pod("web-9", "a1")])
        for _ in range(3):
            with client.stream_evaluate_pods() as stream:
                assert stream.evaluate_pod(incoming()).node_count == 3


def test_stream_that_is_dropped_ends(streams):
    streams.script = [answers]
    with Client(streams.address) as client:
        stream = client.stream_evaluate_pods()
        stream.evaluate_pod(named("p"))
        (reader,) = [each for each in threading.enumerate() if each.name == "reader"]
        del stream
        gc.collect()
        reader.join(PATIENCE)
        assert not reader.is_alive()


def test_unknown_cluster_is_not_found_by_any_evaluation(client):
    with client.stream_evaluate_pods() as stream:
        found = list(stream.evaluate_pods([incoming()] * 3))
    assert [type(each) for each in found] == [NotFound] * 3
