"""Many changes: arrays grow, groups are not read for long, names come and go without end."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.index.changes import GROUPS, ZONE, group
from tests.index.comparing import assert_counts, read
from tests.index.counting import Cluster
from topospread.cache import Budget
from topospread.index.builder import FEW_GROUPS, FEW_LABEL_SETS, Builder
from topospread.index.changes import IndexChange, NodeChange, PodChange, PodRow, WorkloadChange
from topospread.index.groups import MAX_PENDING, Group
from topospread.index.nodes import MAX_COLUMNS, NodeTable
from topospread.index.snapshot import NamespaceWorkloads
from topospread.kube.objects import Node, Workload
from topospread.spread.topology import Eligibility, GroupKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.kube.demands import Requests


APP = (("app", "a"),)
OF_APP = group(labels={"app": "a"})


def starts(
    name: str,
    node: str,
    labels: tuple[tuple[str, str], ...] = APP,
    requests: Requests | None = None,
) -> PodChange:
    return PodChange("default", name, PodRow(labels, node, True, requests))


def joins(name: str, zone: str = "z") -> NodeChange:
    return NodeChange(name, Node(name, {ZONE: zone}))


def pods_on_nodes(builder: Builder) -> list[int]:
    """Pods of the app on each node, by name."""
    snapshot = builder.snapshot
    return snapshot.node_counts(OF_APP)[snapshot.nodes.order].tolist()


def many_changes(dice: random.Random, count: int) -> Iterator[IndexChange]:
    """Changes over hundreds of nodes, pods and label sets; a quarter of them take something away.

    Hypothesis draws only the dice's seed: so many draws of its own would be slow.
    """
    for _ in range(count):
        name = f"n{dice.randrange(700)}"
        match dice.randrange(8):
            case 0:
                yield NodeChange(name, None)
            case 1 | 2:
                yield joins(name, f"z{dice.randrange(40)}")
            case 3:
                yield PodChange("default", f"p{dice.randrange(900)}", None)
            case _:
                labels = (("app", dice.choice("ab")), ("hash", str(dice.randrange(200))))
                requests = dice.choice((None, (), (("cpu", dice.randrange(500)),)))
                yield starts(f"p{dice.randrange(900)}", name, labels, requests)


# No shrinking: a smaller seed is no simpler cluster.
@settings(max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(), st.sampled_from((1, 7, 500)), st.booleans())
def test_thousands_of_changes(seed: int, batch: int, reading: bool) -> None:
    dice = random.Random(seed)
    builder, cluster = Builder(), Cluster()
    builder.ensure_counted(GROUPS[:6])
    changes = list(many_changes(dice, 3000))
    cluster.change(changes)
    for first in range(0, len(changes), batch):
        builder.fold(changes[first : first + batch])
        if reading and dice.randrange(50) == 0:
            read(builder.snapshot)
    rebuilt = Builder()
    rebuilt.fold(cluster.changes())
    for snapshot in (builder.snapshot, rebuilt.ensure_counted(GROUPS[:6])):
        assert_counts(snapshot, cluster)
    assert builder.snapshot.nodes.id == rebuilt.snapshot.nodes.id


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, MAX_PENDING])
def test_changes_on_more_nodes_than_a_version_carries_before_anybody_reads(extra: int) -> None:
    """Counts were lost when a version with more differences than it may carry was never read."""
    count = MAX_PENDING + extra
    builder = Builder()
    builder.fold([joins(f"n{number}") for number in range(count)])
    builder.fold([starts(f"old-{number}", f"n{number}") for number in range(count)])
    builder.ensure_counted([OF_APP])
    for number in range(count):
        builder.fold([starts(f"new-{number}", f"n{number}")])
    for number in range(count - 1):
        builder.fold([starts(f"newest-{number}", f"n{number}")])
    assert sorted(pods_on_nodes(builder)) == [2, *[3] * (count - 1)]
    assert builder.snapshot.domain_counts(OF_APP, Eligibility(), ZONE).sum() == 3 * count - 1


@pytest.mark.parametrize("reading", [False, True])
def test_usage_of_more_nodes_than_a_version_carries(reading: bool) -> None:
    """What the first of two thousand pods took was forgotten, as soon as others came."""
    builder = Builder()
    for number in range(2 * MAX_PENDING):
        change = starts(f"p{number}", f"n{number % 7}", requests=(("cpu", 100),))
        builder.fold([joins(f"n{number % 7}"), change])
        if reading:
            builder.snapshot.usage.taken("cpu", builder.snapshot.nodes.capacity)
    snapshot = builder.snapshot
    assert snapshot.usage.taken("cpu", snapshot.nodes.capacity).sum() == 2 * MAX_PENDING * 100
    assert snapshot.usage.taken("pods", snapshot.nodes.capacity).sum() == 2 * MAX_PENDING


def test_more_groups_at_once_than_are_kept() -> None:
    """A caller that asked for so many was sent round and round."""
    groups = [group(labels={"app": str(number)}) for number in range(40)]
    builder = Builder(max_groups=16)
    builder.fold([joins("n"), *[starts(f"p{n}", "n", (("app", str(n)),)) for n in range(40)]])
    snapshot = builder.ensure_counted(groups)
    assert snapshot.missing(groups) == []
    assert [int(snapshot.node_counts(g).sum()) for g in groups] == [1] * 40
    assert len(builder.ensure_counted([OF_APP]).groups) <= 16


def test_the_groups_asked_for_lately_stay() -> None:
    groups = [group(labels={"app": str(number)}) for number in range(12)]
    builder = Builder(max_groups=10)
    builder.ensure_counted(groups[:10])
    builder.fold([])
    for used in groups[:5]:
        builder.snapshot.groups[used].use.last_used = builder.snapshot.sequence
    snapshot = builder.ensure_counted(groups[10:])
    assert snapshot.missing([*groups[:5], *groups[10:]]) == []
    assert len(snapshot.groups) <= 10


def test_groups_are_bounded_in_bytes_too() -> None:
    """Those that one request named stayed: 60 KB each where it spread over 5,000 hostnames."""
    most = 1 << 20
    builder = Builder(budget=Budget(most))
    builder.fold([joins(f"n{number}", f"z{number}") for number in range(1000)])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(600):
            asked = group(labels={"app": str(number)})
            snapshot = builder.ensure_counted([asked])
            assert snapshot.domain_counts(asked, Eligibility(), ZONE).sum() == 0
            del snapshot
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1.5 * most


def test_large_groups_have_a_quarter_of_the_bytes() -> None:
    budget = Budget(1 << 20)
    builder = Builder(budget=budget)
    small = [group(labels={"app": str(number)}) for number in range(10)]
    builder.ensure_counted(small)
    most = budget.most
    selector = small[0].selector
    large = [GroupKey(f"{number}" + "x" * (most // 10), selector) for number in range(10)]
    for each in large:
        builder.ensure_counted([each])
    builder.drop_idle(0)
    assert builder.snapshot.missing(small) == []
    assert builder.snapshot.missing(large[-1:]) == []
    assert len(builder.snapshot.missing(large)) >= 7
    assert budget.evicted >= 7


def test_only_groups_that_hold_more_than_before_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sizes of all were added up after every 64 new ones."""
    builder, measured = Builder(), []
    builder.fold([joins("n")])
    groups = [group(labels={"app": str(number)}) for number in range(600)]

    def size(of: Group) -> int:
        measured.append(of.key)
        return 1000

    monkeypatch.setattr(Group, "size", property(size))
    for asked in groups[:500]:
        builder.ensure_counted([asked])
    assert len(measured) == 499
    for asked in groups[500:]:
        builder.ensure_counted([asked])
        builder.fold([starts("p", "n", (("app", "0"),))])
    assert len(measured) == 599
    assert builder.snapshot.domain_counts(groups[0], Eligibility(), ZONE).sum() == 1
    builder.ensure_counted([])
    assert measured[599:] == [groups[599], groups[0]]


def test_groups_that_were_not_asked_for_lately_go_and_come_back_right() -> None:
    builder, cluster = Builder(), Cluster()
    changes = list(many_changes(random.Random(5), 300))
    builder.ensure_counted(GROUPS[:6])
    builder.fold(changes[:100])
    since = builder.snapshot.sequence
    for used in GROUPS[:2]:
        builder.snapshot.groups[used].use.last_used = since
    assert set(builder.drop_idle(since).groups) == set(GROUPS[:2])
    builder.fold(changes[100:])
    cluster.change(changes)
    assert_counts(builder.snapshot, cluster)
    assert_counts(builder.ensure_counted(GROUPS[:6]), cluster)


def test_dropping_idle_groups_separates_uses_before_and_after() -> None:
    builder = Builder()
    builder.ensure_counted([OF_APP])
    at = builder.snapshot.sequence
    assert builder.drop_idle(at).groups, "it was asked for at this very snapshot"
    assert not builder.drop_idle(at + 1).groups, "and not since"


def test_slots_label_sets_and_rows_of_what_is_gone_are_used_again() -> None:
    builder = Builder()
    builder.ensure_counted([OF_APP])
    for number in range(2000):
        name, labels = f"n{number}", (("app", "a"), ("hash", str(number)))
        builder.fold([starts(f"p{number}", name, labels), joins(name, name)])
        builder.fold([NodeChange(name, None), PodChange("default", f"p{number}", None)])
    assert builder.snapshot.pods == 0
    assert builder.snapshot.nodes.capacity <= 64
    assert len(builder.snapshot.domains(ZONE).values) <= 300
    assert len(builder._labels) <= 2
    assert builder._labels.live == builder.snapshot.label_sets == 0
    assert len(builder._pods._requests) <= 2
    assert len(builder._slots._free) == builder._slots.capacity


def test_dropped_groups_leave_nothing_behind() -> None:
    builder = Builder(max_groups=10)
    builder.fold([joins("n"), starts("p", "n")])
    for number in range(500):
        builder.ensure_counted([group("default", None, ("app", "In", ("a", str(number))))])
    watched = {key for keys in builder._labels._watching.values() for key in keys}
    assert watched == set(builder.snapshot.groups)
    (labels,) = builder._labels._by_content.values()
    assert set(labels.groups) == watched


def test_tables_of_nodes_that_changed_are_let_go_of() -> None:
    """Groups that were not asked for again kept the table of their last use with its caches."""
    builder = Builder()
    groups = [group(labels={"app": str(number)}) for number in range(30)]
    before = node_tables()
    for number, asked in enumerate(groups):
        builder.fold([joins("n", f"z{number}"), starts("p", "n", (("app", str(number)),))])
        read(builder.ensure_counted([asked]), [asked])
    assert builder.snapshot.missing(groups) == []
    assert node_tables() - before <= 2


def node_tables() -> int:
    """Node tables that are still referred to."""
    gc.collect()
    return sum(isinstance(kept, NodeTable) for kept in gc.get_objects())


def test_keys_that_somebody_made_up_are_not_kept_for_ever() -> None:
    builder, cluster = Builder(), Cluster()
    changes = [joins(f"n{number}", f"z{number % 3}") for number in range(9)]
    builder.fold(changes)
    builder.ensure_counted([OF_APP])
    cluster.change(changes)
    for number in range(3 * MAX_COLUMNS):
        assert not (builder.snapshot.domains(f"made-up-{number}").ids >= 0).any()
    for change in (joins("n1", "z9"), joins("n2", "z8"), starts("p", "n1")):
        assert len(builder.snapshot.nodes._columns) <= MAX_COLUMNS
        assert_counts(builder.snapshot, cluster)
        read(builder.snapshot)
        builder.fold([change])
        cluster.change([change])
        assert_counts(builder.snapshot, cluster)


def test_breathing_now_and_then_in_a_long_batch() -> None:
    breaths: list[int] = []
    builder = Builder(yield_control=lambda: breaths.append(1))
    builder.fold([starts(f"p{number}", "n") for number in range(1000)])
    assert len(breaths) == 1000 // 50


def test_an_empty_batch_changes_nothing_but_the_sequence() -> None:
    builder = Builder()
    before = builder.fold([joins("n"), starts("p", "n")])
    after = builder.fold([])
    assert after.sequence == before.sequence + 1
    assert after.nodes is before.nodes


def test_node_tables_are_shared_until_a_node_changes() -> None:
    """A heartbeat, which changes neither labels nor taints, must not cost the caches."""
    builder = Builder()
    nodes = builder.fold([joins("n"), joins("m")]).nodes
    assert builder.fold([joins("n"), starts("p", "n")]).nodes is nodes
    assert builder.fold([joins("n", "z2"), joins("n")]).nodes.id == nodes.id
    assert builder.fold([joins("n", "z2")]).nodes is not nodes


def test_reading_the_past_does_not_change_the_present() -> None:
    """An old snapshot works its views out anew; they are no base for those of another table."""
    builder = Builder()
    builder.ensure_counted([OF_APP])
    before = builder.fold([joins("n", "a"), joins("m", "b"), starts("p", "n")])
    builder.fold([joins("n", "b"), joins("o", "a")])
    assert before.domain_counts(OF_APP, Eligibility(), ZONE).tolist() == [1, 0]
    after = builder.fold([starts("q", "m")])
    values = after.domains(ZONE).values
    counts = after.domain_counts(OF_APP, Eligibility(), ZONE).tolist()
    assert dict(zip(values, counts, strict=True)) == {"a": 0, "b": 2}


@pytest.mark.parametrize("kind", ["Service", "ReplicaSet"])
def test_workloads_of_one_batch_make_their_namespace_anew_once(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each time it costs all that the namespace has: thousands of Services took seconds."""
    made: list[int] = []
    changed = NamespaceWorkloads.changed

    def counted(self: NamespaceWorkloads, rows: dict[tuple[str, str], Workload | None]) -> Any:
        made.append(len(rows))
        return changed(self, rows)

    monkeypatch.setattr(NamespaceWorkloads, "changed", counted)
    builder = Builder()
    names = [f"w-{n:03}" for n in range(200)]
    builder.fold(
        WorkloadChange(kind, namespace, name, Workload(kind, namespace, name))
        for name in reversed(names)
        for namespace in ("one", "two")
    )
    assert made == [200, 200]
    kept = builder.snapshot.namespace("one")
    assert {name for _, name in kept.objects} == set(names)
    assert [each.name for each in kept.services] == (names if kind == "Service" else [])


APPS = 2 * FEW_GROUPS
PODS = 8 * APPS
SLOTS = 64


@pytest.fixture
def builder() -> Builder:
    """Pods of many apps, each in a cell of its own; some do not count."""
    made = Builder()
    rows = [
        PodRow(
            (("app", f"a{number % APPS}"), ("cell", str(number))),
            f"n{number % 7}",
            counted=number % 5 > 0,
        )
        for number in range(PODS)
    ]
    made.fold([PodChange("default", f"p{number}", row) for number, row in enumerate(rows)])
    return made


def test_many_at_once_have_the_counts_of_one_at_a_time(builder: Builder) -> None:
    keys = [group(labels={"app": f"a{number}"}) for number in range(APPS)]
    # With more label sets than are gathered one by one, and with none.
    keys += [group("default", None, ("cell", "Exists", ())), group(labels={"app": "none"})]
    assert len({str(number) for number in range(PODS) if number % 5}) > FEW_LABEL_SETS
    together = builder.ensure_counted(keys)
    counts = {key: together.groups[key].counts(SLOTS) for key in keys}
    builder.drop_idle(together.sequence + 10)
    for key in keys:
        again = builder.ensure_counted([key])
        assert np.array_equal(again.groups[key].counts(SLOTS), counts[key])
    assert sum(int(each.sum()) for each in list(counts.values())[:APPS]) == PODS * 4 // 5
