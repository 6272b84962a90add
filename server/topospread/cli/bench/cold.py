"""The first use of a selector that nobody asked for before: its groups are counted then."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.cli.bench import questions
from topospread.cli.bench.children import child
from topospread.cli.bench.cluster import APPS
from topospread.cli.bench.figures import Figures
from topospread.cli.bench.scale import cost, make_index

if TYPE_CHECKING:
    from topospread.cli.bench.indexes import Index
    from topospread.cli.bench.plan import Plan

SELECTORS: Final = 40
"""New ones in each round."""


def measure(plan: Plan) -> Figures:
    """Milliseconds of an EvaluatePod with a new selector, at several sizes."""
    figures = Figures()
    usual = plan.size
    sizes = {
        "": usual,
        "_x10_pods": replace(usual, pods=usual.pods * 10),
        "_own_labels": replace(usual, own_labels=True),
        "_x3_own_labels": replace(usual, pods=usual.pods * 3, own_labels=True),
    }
    with ExitStack() as opened:
        children = {}
        for mark, size in sizes.items():
            own = ", each with its own labels" if size.own_labels else ""
            plan.say(f"cold: making {size.nodes} nodes and {size.pods} pods{own}")
            children[mark] = opened.enter_context(child(make_index, size))
            children[mark].run(cost, 0.1)
        for number in range(plan.rounds):
            plan.say(f"cold: round {number + 1} of {plan.rounds}")
            for mark, each in children.items():
                taken = each.run(first_uses, number * SELECTORS)
                figures.add(f"cold_p50_ms{mark}", statistics.median(taken))
                figures.add(f"cold_max_ms{mark}", max(taken))
    return figures


def first_uses(index: Index, first: int) -> list[float]:
    """In a child: milliseconds of CPU of each EvaluatePod with a new selector."""
    asked = [
        questions.evaluates([questions.never_seen(number % APPS, number)])[0].numbered(number)
        for number in range(first, first + SELECTORS)
    ]
    taken = []
    for request in asked:
        begun = time.thread_time()
        index.evaluate(request)
        taken.append((time.thread_time() - begun) * 1e3)
    return taken
