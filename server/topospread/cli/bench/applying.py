"""How many changes a second a replica takes in when its log is far ahead of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.cli.bench import questions
from topospread.cli.bench.children import child
from topospread.cli.bench.cluster import APPS
from topospread.cli.bench.scale import make_index
from topospread.cli.bench.writes import entries
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

if TYPE_CHECKING:
    from topospread.cli.bench.cluster import Size
    from topospread.cli.bench.figures import Figures
    from topospread.cli.bench.indexes import Index
    from topospread.cli.bench.plan import Plan

SELECTORS: Final = 1000
CHANGES: Final = 20_000
TOGETHER: Final = 10
_LOOK: Final = 0.002


def measure_applying(plan: Plan, figures: Figures) -> None:
    """Changes a second with few and with many selectors kept.

    Many selectors are those of as many apps, where a pod counts for one of them, and, marked
    `overlapping`, of twenty apps, where a pod counts for fifty.
    """
    many = replace(plan.size, apps=SELECTORS)
    subjects = {
        "_20_selectors": (plan.size, questions.one_of_each(APPS)),
        "_1000_selectors": (many, questions.one_of_each(SELECTORS)),
        "_1000_overlapping": (
            plan.size,
            [questions.never_seen(number % APPS, number) for number in range(SELECTORS)],
        ),
    }
    with ExitStack() as opened:
        children = {}
        for mark, (size, pods) in subjects.items():
            plan.say(f"changes: making a cluster with{mark.replace('_', ' ')}")
            children[mark] = opened.enter_context(child(make_index, size))
            children[mark].run(keep, [pod.SerializeToString() for pod in pods])
        for number in range(plan.rounds):
            plan.say(f"changes: applying, round {number + 1} of {plan.rounds}")
            for mark, each in children.items():
                seconds, spent = each.run(apply, subjects[mark][0], CHANGES)
                figures.add(f"applied_per_s{mark}", CHANGES / seconds)
                figures.add(f"applied_cpu_us{mark}", spent / CHANGES * 1e6)


def keep(index: Index, pods: list[bytes]) -> None:
    """In a child: ask about pods, so that their selectors are kept."""
    asked: list[k8s.Pod] = [k8s.Pod.FromString(pod) for pod in pods]
    for each in questions.evaluates(asked):
        index.evaluate(each.numbered(0))


def apply(index: Index, size: Size, count: int) -> tuple[float, float]:
    """In a child: seconds, and seconds of CPU, until so many changes are taken in."""
    batches = entries(size, count, TOGETHER)
    begun, spent = time.monotonic(), time.process_time()
    last = index.source.release(batches)
    while index.replica.loaded().revision.number < last.number:
        time.sleep(_LOOK)
    return index.replica.loaded().published_at - begun, time.process_time() - spent
