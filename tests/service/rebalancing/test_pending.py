"""Pods without a node, which a plan counts and does not move."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from topospread.checkpoints import Computation, computing_for
from topospread.errors import DeadlineExceeded
from topospread.kube.selectors import EVERYTHING, selector_from_pairs
from topospread.service.rebalancing.inventory import LabelPairs, NamespaceInventory
from topospread.spread.topology import GroupKey

PENDING: Counter[LabelPairs] = Counter(
    {(("app", f"a-{n % 3}"), ("pod", f"p-{n}")): 1 for n in range(9)}
)


def group(**labels: str) -> GroupKey:
    return GroupKey("default", selector_from_pairs(labels.items()) if labels else EVERYTHING)


def test_pending_pods_of_several_groups_are_counted_once() -> None:
    inventory = NamespaceInventory(pending=PENDING)
    assert inventory.pending_in([group(app="a-0"), group(pod="p-0"), group(pod="p-1")]) == 4
    assert inventory.pending_in([group(app="other")]) == 0
    assert inventory.pending_in([group()]) == 9


def test_counting_pending_pods_ends_with_the_deadline() -> None:
    late = Computation(time.monotonic() - 1.0, lambda: True)
    with computing_for(late), pytest.raises(DeadlineExceeded):
        NamespaceInventory(pending=PENDING).pending_in([group(app="other")])
