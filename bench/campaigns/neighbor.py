"""How long a caller with little waits beside one with much, compared to when it is alone."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from bench.campaigns.campaign import (
    Outcome,
    campaign,
    nodes_option,
    pods_option,
    run,
    server_flag_option,
)
from bench.campaigns.heavy import EVALUATE, QUESTION, HeavyCaller
from bench.campaigns.measured import Measured, load
from bench.http2 import Http2Connection
from tests.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

AIM: Final = 20.0
"""How many times its p99 alone a light caller's p99 beside a heavy one may be."""


def _ask(address: str, calls: int, rate: float) -> tuple[list[float], int]:
    """Make so many calls at this rate; returns the seconds of each and how many failed."""
    took = []
    with Http2Connection(address, EVALUATE) as connection:
        begun = time.monotonic()
        for number in range(calls):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            sent = time.perf_counter()
            connection.call((QUESTION,))
            while not connection.receive():
                pass
            took.append(time.perf_counter() - sent)
        return took, connection.failed


def _quantiles(took: Sequence[float], failed: int) -> dict[str, float]:
    ordered = sorted(took)
    shares = {"p50": 0.5, "p99": 0.99}
    found = {name: ordered[int(len(ordered) * share)] for name, share in shares.items()}
    return {**found, "asked": len(took), "failed": failed}


@campaign(
    "neighbor",
    nodes_option,
    pods_option,
    click.option("--calls", type=click.IntRange(1), default=200, help="Of the light caller."),
    click.option("--rate", type=float, default=10.0, help="Calls a second of the light caller."),
    click.option("--under-way", type=click.IntRange(8), default=1000, help="Of the heavy caller."),
    server_flag_option,
)
def command(
    nodes: int,
    pods: int,
    calls: int,
    rate: float,
    under_way: int,
    server_flags: tuple[str, ...],
) -> Outcome:
    """Compare a light caller's EvaluatePod alone and beside a caller with 1,000 calls under way.

    Calls take turns by caller (docs/security.md), so its p99 may be at most 20 times as long, and
    none may fail.
    """
    quiet = ("--log-level", "warning")
    with ServerProcess("--store", "memory:", *quiet, *server_flags) as server:
        measured = Measured(server.process.pid, server.address)
        load(measured, nodes, pods)
        _ask(server.address, calls, rate=1e9)
        alone = _quantiles(*_ask(server.address, calls, rate))
        with HeavyCaller(server.address, under_way) as heavy:
            heavy.await_ended(under_way)
            answered = heavy.answered
            began = time.monotonic()
            beside = _quantiles(*_ask(server.address, calls, rate))
            heavy_rate = (heavy.answered - answered) / (time.monotonic() - began)
    ratios = {name: beside[name] / alone[name] for name in ("p50", "p99")}
    broken = []
    if ratios["p99"] > AIM:
        broken.append(f"its p99 beside the heavy caller is {ratios['p99']:.1f} times as long")
    if beside["failed"]:
        broken.append(f"{beside['failed']} of its calls failed")
    figures = {
        "alone": alone,
        "beside": beside,
        "heavy_answers_per_second": heavy_rate,
        "ratios": ratios,
    }
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
