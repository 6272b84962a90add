"""Lists of a large cluster cost what they hold: counted in steps of SQLite's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.store.backends import CLUSTER, SqliteBackend, node, pod, put, scanned
from topospread.store import values
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.store.api import Store

PODS = 100_000
NAMESPACES = 10_000

FILL = """
WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < ?)
INSERT INTO object SELECT 1, ?, printf('ns-%05d', n % ?), printf('p-%06d', n), ?, 0 FROM number
"""


@pytest.fixture(scope="module")
def large() -> Iterator[Store]:
    """Ten nodes, and ten pods in each of very many namespaces."""
    store = SqliteBackend("memory:").open()
    store.apply(CLUSTER, [put(node(f"node-{number}")) for number in range(10)])
    value = values.pack(put(pod(), payload=bytes(300)).object)
    writer = store._connections._writer  # type: ignore[attr-defined] # SQLite's
    writer.execute(FILL, (PODS, Kind.POD.value, NAMESPACES, value))
    yield store
    store.close()


def steps(store: Store, ask: Callable[[], object]) -> int:
    """Steps of SQLite's machine that something takes; each row that is looked at is some."""
    count = 0

    def one() -> int:
        nonlocal count
        count += 1
        return 0

    writer = store._connections._writer  # type: ignore[attr-defined] # SQLite's
    writer.set_progress_handler(one, 1)
    ask()
    writer.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize(("kind", "namespace"), [(Kind.POD, "ns-00042"), (Kind.NODE, "")])
def test_a_list_of_ten_costs_no_more_than_five_times_ten_single_reads(large, kind, namespace):
    found = scanned(large, kind, namespace)
    assert len(found) == 10

    single = steps(large, lambda: [large.get(CLUSTER, [each.key]) for each in found])
    assert steps(large, lambda: scanned(large, kind, namespace)) <= 5 * single
    assert steps(large, lambda: large.get(CLUSTER, [each.key for each in found])) <= single


def test_an_empty_list_costs_next_to_nothing(large):
    one = steps(large, lambda: large.get(CLUSTER, [node("node-1")]))
    assert steps(large, lambda: scanned(large, Kind.POD, "nobodys")) <= 5 * one
    assert steps(large, lambda: scanned(large, Kind.SERVICE)) <= 5 * one


def test_a_long_list_costs_the_same_for_each_page(large):
    place: tuple[str, str] | None = ("", "")
    costs: list[int] = []
    found: list[Key] = []

    def read() -> None:
        nonlocal place
        assert place is not None
        page = large.scan(CLUSTER, Kind.POD, after=place)
        found.extend(each.key for each in page.objects)
        place = page.last

    while len(found) < 30_000:
        costs.append(steps(large, read))
    assert len(found) == 30_000
    assert max(costs) <= 1.1 * min(costs)
