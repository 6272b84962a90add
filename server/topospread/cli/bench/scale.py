"""EvaluatePod in process as clusters grow: its CPU must not grow with the pods."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from topospread.cli.bench import questions
from topospread.cli.bench.children import child
from topospread.cli.bench.cluster import Size, objects
from topospread.cli.bench.figures import Figures
from topospread.cli.bench.indexes import Index

if TYPE_CHECKING:
    from topospread.cli.bench.plan import Plan

PODS = (0.1, 1, 10)
NODES = (0.2, 1, 3, 10)
"""Times the plan's size."""


def measure(plan: Plan) -> Figures:
    """Microseconds of CPU of one EvaluatePod, by pods and by nodes, and the ratios to the usual."""
    figures = Figures()
    usual = plan.size
    by_pods = {replace(usual, pods=int(usual.pods * times)): f"{times:g}" for times in PODS}
    by_nodes = {replace(usual, nodes=int(usual.nodes * times)): f"{times:g}" for times in NODES}
    with ExitStack() as opened:
        children = {}
        for size in dict.fromkeys((*by_pods, *by_nodes)):
            plan.say(f"scale: making {size.nodes} nodes and {size.pods} pods")
            children[size] = opened.enter_context(child(make_index, size))
            children[size].run(cost, 0.1)
        for number in range(plan.rounds):
            plan.say(f"scale: round {number + 1} of {plan.rounds}")
            spent = {size: each.run(cost, plan.seconds / 2) for size, each in children.items()}
            for size in by_pods:
                figures.add(f"evaluate_us_{size.pods}_pods", spent[size])
            for size in by_nodes:
                figures.add(f"evaluate_us_{size.nodes}_nodes", spent[size])
            for size, times in by_pods.items():
                if size != usual:
                    figures.add(f"pods_x{times}_ratio", spent[size] / spent[usual])
            for size, times in by_nodes.items():
                if size != usual:
                    figures.add(f"nodes_x{times}_ratio", spent[size] / spent[usual])
    return figures


def make_index(size: Size) -> Index:
    """In a child: the index of a cluster."""
    return Index(objects(size))


def cost(index: Index, seconds: float) -> float:
    """In a child: microseconds of CPU of one EvaluatePod."""
    return index.cost(questions.evaluates(questions.incoming()), seconds)
