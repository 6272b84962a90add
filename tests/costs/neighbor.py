"""How long a caller with little waits beside one with much, compared to when it is alone.

    python -m tests.costs.neighbor [--nodes 5000] [--pods 50000] [--streams]
        [--server-flag=--transport=grpcio-threads] [--check] [-o json]

Prints the quantiles of the light caller's EvaluatePods and how many times as long they took.
`--check` ends with 1 where the aim for the p99 is not met.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from bench.http2 import Http2Connection
from tests.costs.measured import Measured, load
from tests.overload.callers import EVALUATE, QUESTION
from tests.overload.heavy import HeavyCaller
from tests.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """All figures: seconds, and ratios of them."""
    quiet = ("--log-level", "warning")
    with ServerProcess("--store", "memory:", *quiet, *asked.server_flag) as server:
        measured = Measured(server.process.pid, server.address)
        load(measured, asked.nodes, asked.pods)
        _ask(server.address, asked.calls, rate=1e9)
        alone = _quantiles(*_ask(server.address, asked.calls, asked.rate))
        with HeavyCaller(server.address, asked.under_way, streams=asked.streams) as heavy:
            heavy.await_ended(asked.under_way)
            answered = heavy.answered
            began = time.monotonic()
            beside = _quantiles(*_ask(server.address, asked.calls, asked.rate))
            heavy_rate = (heavy.answered - answered) / (time.monotonic() - began)
    ratios = {name: beside[name] / alone[name] for name in ("p50", "p99")}
    return {
        **{name: getattr(asked, name) for name in ("nodes", "pods", "under_way", "streams")},
        "server_flags": asked.server_flag,
        "alone": alone,
        "beside": beside,
        "heavy_answers_per_second": heavy_rate,
        "ratios": ratios,
        "missed": ["p99"] * bool(ratios["p99"] > AIM or beside["failed"]),
    }


def _text(figures: Mapping[str, Any]) -> Iterator[str]:
    questions = "questions on streams" if figures["streams"] else "calls"
    yield (
        f"a heavy caller's {figures['under_way']} {questions} under way at {figures['nodes']} nodes"
        f" and {figures['pods']} pods: {figures['heavy_answers_per_second']:.0f} answers a second"
    )
    for when in ("alone", "beside"):
        took = figures[when]
        yield (
            f"the light caller's EvaluatePod {when}: p50 {took['p50'] * 1e3:.2f} ms, p99"
            f" {took['p99'] * 1e3:.2f} ms ({took['asked']} asked, {took['failed']} failed)"
        )
    ratios = figures["ratios"]
    yield f"p50 x {ratios['p50']:.1f}, p99 x {ratios['p99']:.1f} (aim: {AIM:g})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do it and print the figures; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs.neighbor")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--calls", type=int, default=200, help="of the light caller, each time")
    parser.add_argument("--rate", type=float, default=10.0, help="calls a second of the light one")
    parser.add_argument("--under-way", type=int, default=1000, help="questions of the heavy one")
    parser.add_argument("--streams", action="store_true", help="the heavy one asks on streams")
    parser.add_argument("--server-flag", action="append", default=[], help="of topospread serve")
    parser.add_argument("--check", action="store_true", help="end with 1 where the aim is missed")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    asked = parser.parse_args(arguments)
    figures = measure(asked)
    if asked.output == "json":
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _text(figures))
    return 1 if asked.check and figures["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
