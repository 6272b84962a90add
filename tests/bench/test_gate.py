"""Speed as ratios within one run, with margins that a busy machine does not break.

`make bench-gate` runs them; `make bench` measures everything, and against the real targets.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from bench.cluster import Size
from bench.decide import measure_decide
from bench.in_process import NEW_SELECTORS, decisions_in_process, evaluate_cost, first_use_costs
from bench.options import BenchOptions
from bench.processes import worker_process

if TYPE_CHECKING:
    from bench.figures import Figures

pytestmark = pytest.mark.bench

ROUNDS = 15
"""Short and many: what else the machine does changes within seconds, and the medians count."""

USUAL = Size()
TENTH = Size(pods=USUAL.pods // 10)
TRIPLE = Size(nodes=USUAL.nodes * 3)


@pytest.fixture(scope="module")
def decided() -> Figures:
    asked = frozenset({"echo", "evaluate", "evaluate_memo", "unconstrained"})
    return measure_decide(BenchOptions(USUAL, seconds=0.25, rounds=ROUNDS, only=asked))


@pytest.mark.parametrize(
    ("figure", "least"),
    [("evaluate_ratio", 0.30), ("evaluate_memo_ratio", 0.45), ("unconstrained_ratio", 0.45)],
)
def test_a_decision_costs_little_more_than_an_empty_call(
    decided: Figures, figure: str, least: float
) -> None:
    ratio = decided.median(figure)
    assert ratio is not None
    assert ratio >= least, decided.samples


def test_the_cost_of_a_decision_depends_on_nodes_and_pods_as_promised() -> None:
    spent: dict[Size, list[float]] = {size: [] for size in (USUAL, TENTH, TRIPLE)}
    with ExitStack() as opened:
        children = {
            size: opened.enter_context(worker_process(decisions_in_process, size)) for size in spent
        }
        for _ in range(ROUNDS):
            for size, each in children.items():
                spent[size].append(each.run(evaluate_cost, 0.15))
        first = children[USUAL].run(first_use_costs, 0)
    # What else the machine does adds to a cost, and takes nothing away.
    usual = min(spent[USUAL])
    assert usual <= 1.2 * min(spent[TENTH]), spent
    assert min(spent[TRIPLE]) <= 3.5 * usual, spent
    assert len(first) == NEW_SELECTORS
    assert statistics.median(first) * 1e3 <= 40 * usual, (first, spent)
