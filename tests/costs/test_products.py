"""What lists cost that meet: their sum, but for the products that have to be walked."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from bench.campaigns.grown import growths
from tests.conformance.objects import object_of
from tests.costs.label_products import OF_LABELS
from tests.costs.products import OF_NODES, Product, node
from tests.costs.scenario_products import IN_NONE, OF_SCENARIOS
from tests.costs.volume_products import OF_VOLUMES, SLICES_ON_NODES
from tests.counting import memory, steps
from topospread.api.local import LocalApi, local_api
from topospread.codec.stored import stored
from topospread.index import devices
from topospread.store.model import Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PRODUCTS = {**OF_NODES, **OF_VOLUMES, **OF_LABELS, **OF_SCENARIOS}

LINEAR = 2.4
"""Times that what a doubling adds may be what the one before added: 2, and a little more for
sorting; a product has 4."""

LINES, BYTES = 400, 24 << 10
"""That may come beside that: tables grow by leaps."""


class Costs(NamedTuple):
    """Of one size, in lines or bytes."""

    lines: int
    longest: int
    peak: int
    kept: int


def loaded(product: Product, size: int) -> LocalApi:
    nodes = [node(i) for i in range(product.nodes(size))]
    return local_api([stored(object_of(each)) for each in (*nodes, *product.there(size))])


def costs(product: Product, size: int, work: Callable[[LocalApi, int], Callable[[], Any]]) -> Costs:
    counted = steps(work(loaded(product, size), size))
    taken = memory(work(loaded(product, size), size))
    return Costs(counted.lines, counted.longest, taken.peak, taken.kept)


def grown(found: Sequence[Costs], name: str, slack: int) -> str:
    """How a cost grows faster than the lists with each doubling; empty where it does not.

    Where another way begins at some size, one doubling adds more, and not the others.
    """
    every = [getattr(each, name) for each in found]
    added = [more - before for before, more in pairwise(every)]
    if any(more <= LINEAR * max(0, before) + slack for before, more in pairwise(added)):
        return ""
    return f"{name}: {', '.join(map(str, every))}"


def judged(product: Product, work: Callable[[LocalApi, int], Callable[[], Any]]) -> list[str]:
    work(loaded(product, product.sizes[0]), product.sizes[0])()  # so that all is imported
    found = [costs(product, size, work) for size in product.sizes]
    of_time = "longest" if product.walked else "lines"
    return [
        fault
        for name, slack in ((of_time, LINES), ("peak", BYTES), ("kept", BYTES))
        if (fault := grown(found, name, slack))
    ]


def coming(product: Product) -> Callable[[LocalApi, int], Callable[[], Any]]:
    def work(api: LocalApi, size: int) -> Callable[[], Any]:
        changes = [Put(stored(object_of(each))) for each in product.come(size)]
        return lambda: api.apply(changes)

    return work


def asking(product: Product) -> Callable[[LocalApi, int], Callable[[], Any]]:
    def work(api: LocalApi, size: int) -> Callable[[], Any]:
        method, request = product.ask
        coming(product)(api, size)()
        asked = request(size)
        return lambda: api.call(method, asked)

    return work


@pytest.mark.parametrize("name", [*PRODUCTS])
def test_a_question_costs_the_sum_of_its_lists_and_those_of_the_state(name: str) -> None:
    product = PRODUCTS[name]
    assert judged(product, asking(product)) == []


@pytest.mark.parametrize("name", [name for name, each in PRODUCTS.items() if each.come(1)])
def test_objects_that_come_cost_the_sum_of_their_lists_and_those_of_the_state(name: str) -> None:
    product = PRODUCTS[name]
    assert judged(product, coming(product)) == []


def test_slices_on_nodes_are_gathered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_PLACES", 10)
    assert judged(SLICES_ON_NODES, asking(SLICES_ON_NODES)) == []


def test_each_repeated_field_is_in_a_product_or_has_a_reason() -> None:
    """Also one that is new: say what it meets, or why it meets nothing."""
    fields = {f"{each.path[-1].containing_type.name}.{each.path[-1].name}" for each in growths()}
    named = {name for product in PRODUCTS.values() for name in product.fields}
    assert named | IN_NONE.keys() == fields
    assert not named & IN_NONE.keys()
