"""Inter-pod affinity: two lists that meet cost as much as both together, never as one times other.

Both are doubled: what is kept at most doubles, and so do the lines of Python that run.
"""

from __future__ import annotations

import tracemalloc
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.counting import lines
from topospread.index.builder import Builder
from topospread.index.changes import (
    NodeChange,
    ObjectChange,
    PodChange,
    PodRow,
    ReservationChange,
    ReservationRow,
)
from topospread.index.objects import NAMESPACE
from topospread.kube.demands import Demand, Holds
from topospread.kube.namespaces import NamespaceSet
from topospread.kube.objects import HOSTNAME_LABEL, Node
from topospread.kube.pod_affinity import AffinityTerm
from topospread.kube.selectors import IN, NOT_IN, Requirement, Selector
from topospread.kube.volumes import Namespace
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.spread.topology import GroupKey

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "kubernetes.io/metadata.name"
SIZES = (250, 500, 1000)
MARGIN = 1.3
"""Tables grow by steps."""


class Cost(NamedTuple):
    """What a piece of work costs: bytes at its peak and left behind, and lines of Python."""

    peak: int
    kept: int
    steps: int


FEW: Final = Cost(20_000, 20_000, 200)
"""What everything costs."""


def cost(made: Callable[[], Builder], work: Callable[[Builder], object]) -> Cost:
    """What work costs a builder: bytes of one, and lines of another that is like it."""
    builder = made()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work(builder)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    other = made()
    return Cost(peak - before, after - before, lines(lambda: work(other)))


def assert_linear(costs: list[Cost]) -> None:
    """Twice of both lists cost at most twice."""
    for less, more in pairwise(costs):
        for one, twice, few in zip(less, more, FEW, strict=True):
            assert twice <= 2 * MARGIN * one + few, costs


def names(what: str, count: int) -> tuple[str, ...]:
    return tuple(sorted(f"{what}-{number}" for number in range(count)))


def named(what: str, count: int) -> NamespaceSet:
    return NamespaceSet(frozenset(names(what, count)))


def one_of(values: int) -> Selector:
    return Selector((Requirement("app", IN, names("app", values)),))


def pod(namespace: str, name: str, app: str) -> PodChange:
    return PodChange(namespace, name, PodRow((("app", app),), "n", True))


def builder(namespaces: int, apps: int) -> Builder:
    """Pods of so many namespaces and apps, each of one of them."""
    made = Builder()
    made.fold([NodeChange("n", Node("n", {HOSTNAME_LABEL: "n"}))])
    made.fold(
        PodChange(
            f"team-{i % namespaces}", f"p{i}", PodRow((("app", f"app-{i % apps}"),), "n", True)
        )
        for i in range(max(namespaces, apps))
    )
    return made


@pytest.mark.parametrize("there", [1, 1000])
def test_a_group_of_many_namespaces_and_values(there: int) -> None:
    def counted(of: Builder, size: int) -> None:
        group = GroupKey("", one_of(size), named("team", size), terminating=True)
        assert group in of.ensure_counted([group]).groups

    made = [cost(lambda: builder(there, there), partial(counted, size=size)) for size in SIZES]
    assert_linear(made)
    assert max(each.kept for each in made) < 1 << 20


def test_a_group_that_goes() -> None:
    def dropped(of: Builder) -> None:
        assert not of.drop_idle(of.snapshot.sequence + 1).groups

    def counted(size: int) -> Builder:
        made = builder(10, 10)
        group = GroupKey("", one_of(size), named("team", size), terminating=True)
        made.ensure_counted([group])
        return made

    assert_linear([cost(partial(counted, size), dropped) for size in SIZES])


@pytest.mark.parametrize("held", [False, True])
def test_a_term_of_many_namespaces_and_values(held: bool) -> None:
    """Of a pod that runs, and of a place that is held."""

    def comes(of: Builder, size: int) -> None:
        term = AffinityTerm(one_of(size), names("team", size), HOSTNAME_LABEL)
        holds = Holds(terms=(term,))
        if held:
            row = ReservationRow("uid", (), "n", requests=(), holds=holds)
            of.fold([ReservationChange("default", "p", row)])
        else:
            of.fold([PodChange("default", "p", PodRow((), "n", True, (), holds=holds))])
        about = of.snapshot.holdings.terms_about
        assert [found for found, _ in about("team-7", {"app": "app-7"})] == [term]
        assert not list(about("team-7", {"app": "web"}))
        assert not list(about("default", {"app": "app-7"}))

    made = [cost(Builder, partial(comes, size=size)) for size in SIZES]
    assert_linear(made)
    assert max(each.kept for each in made) < 1 << 20


def test_terms_that_select_many_namespaces_by_their_labels() -> None:
    """Each selects others; a namespace takes a bit of a term."""

    def there(size: int) -> Builder:
        made = Builder()
        made.fold(
            ObjectChange(NAMESPACE, "", name, Namespace(name, ((NAME, name),)))
            for name in names("team", 20 * size)
        )
        made.fold(pod(name, "p", "web") for name in names("team", 20 * size))
        return made

    def asked(of: Builder, size: int) -> None:
        terms = tuple(
            AffinityTerm(one_of(1), (), HOSTNAME_LABEL, others_than(f"team-{number}"))
            for number in range(size)
        )
        for demand in (Demand(anti_affinity=terms), Demand(affinity=terms)):
            groups = counted_groups(demand, of.snapshot.objects)
            assert not of.ensure_counted(groups).missing(groups)

    assert_linear([cost(partial(there, size), partial(asked, size=size)) for size in (25, 50, 100)])


def others_than(name: str) -> Selector:
    return Selector((Requirement(NAME, NOT_IN, (name,)),))
