"""What is remembered of volumes and namespaces is what a look at all of them would find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.counting import lines
from topospread.cache import BUDGETS
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange, ObjectChange
from topospread.index.objects import NO_OBJECTS
from topospread.kube.objects import Node, NodeExpression, NodeRequirements, NodeTerm
from topospread.kube.selectors import selector_from_pairs
from topospread.kube.volumes import (
    AVAILABLE,
    ClaimRef,
    ClaimSpec,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeTraits,
)
from topospread.service.fit.static_volumes import unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.index.snapshot import Snapshot

ZONES = "ab"
Change = NodeChange | ObjectChange


def node(name: str, zone: str | None) -> NodeChange:
    return NodeChange(name, None if zone is None else Node(name, {"zone": zone}))


def volume(name: str, zone: str | None, size: int = 1) -> ObjectChange:
    """Of the class local; gone without a zone."""
    near = NodeTerm((NodeExpression("zone", "In", (zone or "",)),))
    traits = VolumeTraits(AVAILABLE, "local", size, affinity=NodeRequirements(terms=(near,)))
    made = None if zone is None else PersistentVolume(name, traits)
    return ObjectChange(PersistentVolume.__name__, "", name, made)


def claim(size: int) -> PersistentVolumeClaim:
    spec = ClaimSpec(storage_class="local", request=size)
    return PersistentVolumeClaim(ClaimRef("default/c"), spec)


def without(snapshot: Snapshot, sizes: Iterable[int]) -> list[list[str]]:
    """By claim, the nodes that have no volume for it."""
    claims = [claim(size) for size in sizes]
    found = unmatched(snapshot, claims, snapshot.alive)
    nodes = snapshot.nodes.node_list()
    return [[str(nodes[slot]) for slot in each.nonzero()[0].tolist()] for each in found]


zones = st.sampled_from([*ZONES, None])
changes = st.one_of(
    st.builds(node, st.sampled_from(["n1", "n2", "n3"]), zones),
    st.builds(volume, st.sampled_from(["v1", "v2", "v3"]), zones, st.integers(1, 3)),
)


@given(st.lists(st.lists(changes, max_size=3), max_size=6))
def test_volumes_are_found_as_by_one_who_remembers_nothing(history: list[list[Change]]) -> None:
    kept, all_of_it = Builder(), list[Change]()
    for batch in history:
        kept.fold(batch)
        all_of_it += batch
        fresh = Builder()
        fresh.fold(all_of_it)
        for sizes in ((1,), (2,), (1, 2), (1,)):
            known = [sorted(each) for each in without(kept.snapshot, sizes)]
            assert known == [sorted(each) for each in without(fresh.snapshot, sizes)]


def test_like_claims_look_at_no_volume_again() -> None:
    builder = Builder()
    builder.fold([node(f"n{i}", f"z{i}") for i in range(100)])
    builder.fold([volume(f"v{i}", f"z{i}") for i in range(1000)])
    first = lines(lambda: without(builder.snapshot, (1,)))
    again = lines(lambda: without(builder.snapshot, (1,)))
    assert again < 500 < 10 * 500 < first


def test_two_claims_take_two_volumes_whatever_is_still_remembered() -> None:
    builder = Builder()
    builder.fold([node("n1", "a"), volume("v1", "a", 2)])
    remembered = builder.snapshot.objects.matching

    def forget_what_is_older() -> None:
        remembered.put(object(), None, BUDGETS["volumes"].most // 2 - (64 << 10))

    without(builder.snapshot, (1,))
    forget_what_is_older()
    without(builder.snapshot, (1,))
    forget_what_is_older()
    without(builder.snapshot, (2,))
    assert [len(each) for each in without(builder.snapshot, (1, 2))] == [0, 1]


def test_namespaces_are_selected_once_however_many_selectors_there_are() -> None:
    rows = {(Namespace.__name__, "", name): Namespace(name, (("team", name),)) for name in "ab"}
    objects = NO_OBJECTS.changed(rows)
    for number in range(1000):
        objects.namespaces_matching(selector_from_pairs([("other", str(number))]))
    mine = selector_from_pairs([("team", "a")])
    found = objects.namespaces_matching(mine)
    assert [name for name in "abc" if name in found] == ["a"]
    assert objects.changed({}).namespaces_matching(mine) is found
    gone = objects.changed({(Namespace.__name__, "", "a"): None})
    assert not gone.namespaces_matching(mine)
