"""What tracing costs: the same decisions with none, 1 % and all of them recorded and exported."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from topospread.cli.bench import questions
from topospread.cli.bench.collector import collector, tracing
from topospread.cli.bench.figures import Figures
from topospread.cli.bench.load import ask, numbered
from topospread.cli.bench.processes import server
from topospread.cli.bench.stores import filled_store

if TYPE_CHECKING:
    from topospread.cli.bench.plan import Plan

RATIOS: Final = {"_none": 0.0, "_1": 0.01, "_all": 1.0}
CONCURRENCY: Final = 10
PATH: Final = f"{questions.SERVICE}EvaluatePod"


def measure(plan: Plan) -> Figures:
    """Rate and CPU of EvaluatePod by the share of calls that is traced, and what the rate loses."""
    figures = Figures()
    with ExitStack() as opened:
        plan.say("tracing: making the cluster")
        store = opened.enter_context(filled_store(plan.size))
        sink = opened.enter_context(collector())
        servers = {
            mark: opened.enter_context(server(store, environ=tracing(sink, ratio)))
            for mark, ratio in RATIOS.items()
        }
        messages = numbered(questions.evaluates(questions.incoming()))
        for each in servers.values():
            ask(each.address, PATH, messages, CONCURRENCY, plan.seconds / 4)
        for number in range(plan.rounds):
            plan.say(f"tracing: round {number + 1} of {plan.rounds}")
            rates = {}
            for mark, each in servers.items():
                spent = each.cpu()
                done = ask(each.address, PATH, messages, CONCURRENCY, plan.seconds)
                figures.add(f"traced_rps{mark}", done.rate)
                figures.add(f"traced_cpu_us{mark}", (each.cpu() - spent) / done.calls * 1e6)
                rates[mark] = done.rate
            for mark in ("_1", "_all"):
                figures.add(f"tracing_loss{mark}", 1 - rates[mark] / rates["_none"])
    return figures
