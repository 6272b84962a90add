"""More calls than there is room for, and thousands that end early: all counted, nothing left."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import click

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.heavy import EVALUATE, QUESTION
from tests.overload.callers import Caller, Outcomes, Scraper, Service, at_once, difference, serving
from tests.servers import Peer, evaluate_request, served, threads_end, two_zones
from tests.waiting import PATIENCE, until
from topospread.checkpoints import will_take_long
from topospread.service.decisions.evaluate import evaluate

if TYPE_CHECKING:
    from topospread.app.server import Server

CONNECTIONS: Final = 8
BURSTS: Final = 5
"""Until a scraper has seen calls in the queue, which most often happens with the first."""

ROUND: Final = 300
"""Calls of each kind that are under way at once."""

_DECISIONS: Final = {"pool": "decisions"}
_OK: Final = {"method": "DecisionService/EvaluatePod", "code": "OK"}


def flooded(service: Service, calls: int, queue: int) -> Outcome:
    """Make more calls at once than the queue has room for; what callers and metrics say of them."""
    before = service.rested()
    outcomes = Outcomes()
    with ExitStack() as opened:
        callers = [opened.enter_context(Caller(service.address)) for _ in range(CONNECTIONS)]
        scraper = opened.enter_context(Scraper(service))
        for _ in range(BURSTS):
            with service.suspended():
                futures = at_once(callers, EVALUATE, [QUESTION] * calls)
            for future in futures:
                outcomes.note(future)
            if any(scraper.depths) or outcomes.codes.keys() - {"OK", "RESOURCE_EXHAUSTED"}:
                break
    after = service.rested()
    grown = difference(before, after)
    was = before.codes("EvaluatePod")
    counted = {code: many - was.get(code, 0.0) for code, many in after.codes("EvaluatePod").items()}
    answered, refused = outcomes.codes["OK"], outcomes.codes["RESOURCE_EXHAUSTED"]
    waited = grown("topospread_queue_wait_seconds_sum", **_DECISIONS)
    expected = {
        "calls ended OK or RESOURCE_EXHAUSTED, some of each": outcomes.codes.keys()
        == {"OK", "RESOURCE_EXHAUSTED"},
        "every refusal says when to try again": not outcomes.unadvised,
        "the server counts each call by its code": counted == dict(outcomes.codes),
        "each refusal is counted": refused
        == grown("topospread_queue_rejections_total", **_DECISIONS),
        "the queue has waiting calls, and no more than it may": 0 < max(scraper.depths) <= queue,
        "each answered call's wait is counted": answered
        == grown("topospread_queue_wait_seconds_count", **_DECISIONS),
        "waits are part of what calls took": 0
        < waited
        <= grown("topospread_call_duration_seconds_sum", **_OK),
    }
    figures = {
        "calls": dict(outcomes.codes),
        "counted": counted,
        "longest queue": max(scraper.depths),
    }
    return Outcome(figures, [f"not so: {what}" for what, held in expected.items() if not held])


def preempted(*arguments: Any) -> Any:
    """Evaluate in the slow lane alone: each decision begins twice."""
    will_take_long()
    return evaluate(*arguments)


def end_early(server: Server, peer: Peer, times: int) -> Counter[str]:
    """So many each of calls that are answered, late and cancelled; how they ended.

    Raises:
        AssertionError: something of them stays with the server.
    """
    calls: list[Any] = []
    for number in range(times):
        calls.append(peer.engine.EvaluatePod.future(evaluate_request(), timeout=PATIENCE))
        late = peer.engine.EvaluatePod.future(evaluate_request(), timeout=0.001)
        gone = peer.engine.EvaluatePod.future(evaluate_request(), timeout=PATIENCE)
        gone.cancel()
        calls += [late, gone]
        if number % 50 == 0:
            peer.evaluate()
    codes: Counter[str] = Counter()
    for call in calls:
        if not call.cancelled():
            call.exception(PATIENCE)
        codes[call.code().name] += 1
    until(lambda: not any(left_by(server).values()), f"nothing is left of {dict(codes)}")
    return codes


def left_by(server: Server) -> dict[str, int]:
    """What a server still holds of calls."""
    known = server.grpc.pipeline.parts
    pools = server.pools.by_name().values()
    return {
        "calls": sum(pool.depth + pool.busy + pool.blocked for pool in pools),
        "bytes": known.guard.total,
        "reading": len(known.sweeper.reading),
        "pending": len(known.sweeper.pending),
    }


def ended_early(calls: int) -> Outcome:
    """So many calls that are preempted, late or cancelled, on a server in this process."""
    codes: Counter[str] = Counter()
    try:
        with (
            patch("topospread.api.decision.evaluate", preempted),
            threads_end(),
            served() as server,
            Peer(server.address) as peer,
        ):
            peer.apply(*two_zones())
            while codes.total() < calls:
                codes += end_early(server, peer, ROUND)
            left = left_by(server)
    except AssertionError as error:
        return Outcome({"calls": dict(codes)}, [f"calls that end early leave something: {error}"])
    return Outcome({"calls": dict(codes), "left": left})


@campaign(
    "overload",
    click.option("--calls", type=click.IntRange(1), default=4800, show_default=True),
    click.option("--queue", type=click.IntRange(1), default=64, show_default=True),
    click.option("--early", type=click.IntRange(1), default=10_000, show_default=True),
)
def command(calls: int, queue: int, early: int) -> Outcome:
    """Send more calls at once than the queue takes, and thousands that end early.

    Each of the first ends OK or RESOURCE_EXHAUSTED and is counted; the others, which are preempted,
    late or cancelled, leave no call, byte or thread behind.
    """
    note("overload: at once")
    with serving("--decision-queue", str(queue), "--log-level", "error") as service:
        flood = flooded(service, calls, queue)
    note("overload: ended early")
    left = ended_early(early)
    figures = {"at once": flood.figures, "ended early": left.figures}
    return Outcome(figures, [*flood.broken, *left.broken])


if __name__ == "__main__":
    sys.exit(run(command))
