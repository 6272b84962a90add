"""What decisions lose while changes come in.

The same writes go to a cluster that the server follows, and for comparison to one that it does not:
writer and store cost the machine as much then, and the difference is the server's own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.cli.bench import questions
from topospread.cli.bench.applying import SELECTORS
from topospread.cli.bench.children import Child, child
from topospread.cli.bench.load import ask, numbered
from topospread.cli.bench.processes import server
from topospread.cli.bench.stores import filled, redis_store, sqlite_store
from topospread.cli.bench.writes import Author, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.cli.bench.figures import Figures
    from topospread.cli.bench.plan import Plan

RATE: Final = 1000.0
TOGETHER: Final = 10
CONCURRENCY: Final = 10
UNFOLLOWED: Final = "unfollowed"
MANY: Final = "many"
PATH: Final = f"{questions.SERVICE}EvaluatePod"


def measure_busy(plan: Plan, figures: Figures) -> None:
    """The share of the rate that is lost to 1,000 changes/s, with 20 and with 1,000 selectors."""
    with ExitStack() as opened:
        address = opened.enter_context(_store(plan))
        plan.say("changes: making clusters to write to")
        filled(address, plan.size)
        filled(address, replace(plan.size, apps=SELECTORS), MANY)
        author = opened.enter_context(child(Author, address, plan.size))
        running = opened.enter_context(server(address, preload=f"default,{MANY}"))
        selectors = questions.evaluates(questions.one_of_each(SELECTORS), MANY)
        ask(running.address, PATH, numbered(selectors), CONCURRENCY, plan.seconds)
        writing = opened.enter_context(ThreadPoolExecutor(1))
        clusters = {"": questions.CLUSTER, "_1000_selectors": MANY}
        for number in range(plan.rounds):
            plan.say(f"changes: deciding meanwhile, round {number + 1} of {plan.rounds}")
            for mark, cluster in clusters.items():
                rates = {}
                for target in (UNFOLLOWED, cluster):
                    running_writes = writing.submit(_write, author, target, plan.seconds)
                    messages = numbered(questions.evaluates(questions.incoming(), cluster))
                    spent = running.cpu()
                    done = ask(running.address, PATH, messages, CONCURRENCY, plan.seconds)
                    spent = running.cpu() - spent
                    running_writes.result()
                    rates[target] = done.rate
                    state = "idle" if target == UNFOLLOWED else "busy"
                    figures.add(f"{state}_rps{mark}", done.rate)
                    figures.add(f"{state}_cpu_us{mark}", spent / done.calls * 1e6)
                figures.add(f"busy_loss{mark}", 1 - rates[cluster] / rates[UNFOLLOWED])


def _write(author: Child, cluster: str, seconds: float) -> None:
    author.run(write, cluster, RATE, TOGETHER, seconds)


@contextmanager
def _store(plan: Plan) -> Iterator[str]:
    """Redis where there is one, else SQLite."""
    with redis_store(plan.redis_server) if plan.redis_server else sqlite_store() as address:
        yield address
