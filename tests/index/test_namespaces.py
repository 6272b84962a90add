"""Namespaces by their labels: what selectors match, compared with a look at each namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from topospread.index.namespaces import MOST_GONE
from topospread.index.objects import NAMESPACE, NO_OBJECTS
from topospread.kube.namespaces import ALL_NAMESPACES, NamespaceSet
from topospread.kube.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    IN,
    NOT_IN,
    NOTHING,
    Requirement,
    Selector,
)
from topospread.kube.volumes import Namespace

if TYPE_CHECKING:
    from topospread.index.objects import Objects

NAMES = tuple("abcdef")
keys, values = st.sampled_from(("team", "tier")), st.sampled_from(("", "x", "y", "z"))
requirements = st.one_of(
    st.builds(Requirement, keys, st.sampled_from((IN, NOT_IN)), st.tuples(values, values)),
    st.builds(Requirement, keys, st.sampled_from((EXISTS, DOES_NOT_EXIST))),
)
selectors = st.one_of(
    st.just(NOTHING), st.builds(Selector, st.lists(requirements, max_size=3).map(tuple))
)
labels = st.dictionaries(keys, values).map(lambda found: tuple(sorted(found.items())))
changes = st.dictionaries(st.sampled_from(NAMES), st.none() | labels, max_size=4)


def changed(objects: Objects, given: dict[str, tuple[tuple[str, str], ...] | None]) -> Objects:
    return objects.changed(
        {
            (NAMESPACE, "", name): None if found is None else Namespace(name, found)
            for name, found in given.items()
        }
    )


@given(st.lists(changes, max_size=5), st.lists(selectors, min_size=1, max_size=4))
def test_selectors_match_what_they_match_one_by_one(
    history: list[dict[str, tuple[tuple[str, str], ...] | None]], asked: list[Selector]
) -> None:
    objects, there = NO_OBJECTS, dict[str, tuple[tuple[str, str], ...]]()
    for batch in history:
        objects = changed(objects, batch)
        there |= {name: found for name, found in batch.items() if found is not None}
        there = {name: found for name, found in there.items() if batch.get(name, ()) is not None}
        for selector in asked:
            found = objects.namespaces_matching(selector)
            expected = {name for name, has in there.items() if selector.matches(dict(has))}
            assert {name for name in NAMES if name in found} == expected
            assert set(found.among(NAMES)) == expected
            assert bool(found) == bool(expected)


@given(st.lists(st.tuples(selectors, st.sets(st.sampled_from(NAMES))), min_size=2, max_size=2))
def test_two_sets_have_in_common_what_both_have(asked: list[tuple[Selector, set[str]]]) -> None:
    there = {name: (("team", "xyz"[i % 3]),) for i, name in enumerate(NAMES[:4])}
    objects = changed(NO_OBJECTS, dict(there))
    one, other = (objects.namespaces_matching(of).with_names(names) for of, names in asked)
    both = one & other
    expected = {name for name in NAMES if name in one and name in other}
    assert {name for name in NAMES if name in both} == expected
    assert set(both.among(NAMES)) == expected
    assert bool(both) == bool(expected)
    assert both == other & one
    assert hash(both) == hash(other & one)
    assert one & ALL_NAMESPACES == ALL_NAMESPACES & one == one


def test_selected_namespaces_are_equal_while_other_namespaces_come_and_go() -> None:
    """Else pods would be counted again for each namespace that somebody makes."""
    team = Selector((Requirement("team", IN, ("x",)),))
    objects = changed(NO_OBJECTS, {"a": (("team", "x"),), "b": (("team", "y"),)})
    found = objects.namespaces_matching(team)
    for name in "cde":
        objects = changed(changed(objects, {name: ()}), {"b": None})
        assert objects.namespaces_matching(team) == found
    assert changed(objects, {"f": (("team", "x"),)}).namespaces_matching(team) != found


def test_names_that_are_gone_for_long_take_no_memory() -> None:
    everywhere = Selector((Requirement("app", NOT_IN, ("x",)),))
    objects = changed(NO_OBJECTS, {"a": ()})
    for number in range(MOST_GONE + 100):
        objects = changed(objects, {f"run-{number}": (), f"run-{number - 1}": None})
    assert objects.namespaces_matching(everywhere).selected.bit_length() < 200
    assert "a" in objects.namespaces_matching(everywhere)
    assert "run-7" not in objects.namespaces_matching(everywhere)


def test_named_namespaces_need_not_be_there() -> None:
    assert "gone" in NamespaceSet(frozenset({"gone"}))
    assert not NamespaceSet() & ALL_NAMESPACES
    assert NamespaceSet(frozenset({"gone"})).names == frozenset({"gone"})
    assert ALL_NAMESPACES.names is None
