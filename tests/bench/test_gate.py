"""Speed as ratios within one run, with margins that a busy machine does not break.

`make bench-gate` runs them; `make bench` measures everything, and against the real targets.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from topospread.cli.bench.children import child
from topospread.cli.bench.cluster import Size
from topospread.cli.bench.cold import SELECTORS, first_uses
from topospread.cli.bench.decide import measure
from topospread.cli.bench.plan import Plan
from topospread.cli.bench.scale import cost, make_index

if TYPE_CHECKING:
    from topospread.cli.bench.figures import Figures

pytestmark = pytest.mark.bench

ROUNDS = 15
"""Short and many: what else the machine does changes within seconds, and the medians count."""

USUAL = Size()
TENTH = Size(pods=USUAL.pods // 10)
TRIPLE = Size(nodes=USUAL.nodes * 3)


@pytest.fixture(scope="module")
def decided() -> Figures:
    asked = frozenset({"echo", "evaluate", "evaluate_memo", "unconstrained"})
    return measure(Plan(USUAL, seconds=0.25, rounds=ROUNDS, only=asked))


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
        children = {size: opened.enter_context(child(make_index, size)) for size in spent}
        for _ in range(ROUNDS):
            for size, each in children.items():
                spent[size].append(each.run(cost, 0.15))
        first = children[USUAL].run(first_uses, 0)
    usual = statistics.median(spent[USUAL])
    assert usual <= 1.2 * statistics.median(spent[TENTH]), spent
    assert statistics.median(spent[TRIPLE]) <= 3.5 * usual, spent
    assert len(first) == SELECTORS
    assert statistics.median(first) * 1e3 <= 40 * usual, (first, spent)
