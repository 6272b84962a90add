"""Judging node classes agrees with judging nodes, on clusters too big for the model."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topospread.index.builder import Builder
from topospread.index.changes import NodeChange, PodChange, PodRow
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HOSTNAME_LABEL,
    SCHEDULE_ANYWAY,
    ZONE_LABEL,
    LabelSelector,
    Node,
    NodeRequirements,
    Pod,
    SpreadConstraint,
    Taint,
    Toleration,
)
from topospread.spread.classes import ClassJudgement, cells_of, judge
from topospread.spread.constraints import PodConstraints, pod_constraints
from topospread.spread.filtering import filter_nodes, pre_filter
from topospread.spread.per_node import MAX_CELLS, scores_of_each, verdicts_of_each
from topospread.spread.plans import MAX_CLASSES, plan
from topospread.spread.scoring import score
from topospread.spread.settings import Rules
from topospread.spread.verdicts import FITS, VERDICTS

if TYPE_CHECKING:
    from topospread.index.snapshot import Snapshot

WEB, DB = LabelSelector((("app", "web"),)), LabelSelector((("app", "db"),))
ALL = 10_000


@dataclass(frozen=True)
class Shape:
    """How a random cluster looks.

    Attributes:
        hostnames: whether each node has its own, some share one, or some have none.
    """

    seed: int
    nodes: int
    pods: int
    zones: int
    hostnames: str


shapes = st.builds(
    Shape,
    st.integers(0, 2**32),
    st.sampled_from((120, 40, 7, 1, 0)),
    st.sampled_from((400, 60, 0)),
    st.sampled_from((3, 5, 30, 1)),
    st.sampled_from(("own", "own", "own", "shared", "lacking")),
)


def built(shape: Shape) -> Builder:
    """A cluster; its dice are drawn by one seed, as so many draws would be slow."""
    dice = random.Random(shape.seed)
    builder = Builder()
    names = [f"n{number}" for number in range(shape.nodes)]
    builder.fold(NodeChange(name, random_node(dice, shape, name)) for name in names)
    builder.fold(
        PodChange("default", f"p{number}", PodRow(labels, dice.choice(names), True))
        for number in range(shape.pods if names else 0)
        for labels in [(("app", dice.choice(["web", "web", "db"])),)]
    )
    return builder


def random_node(dice: random.Random, shape: Shape, name: str) -> Node:
    labels = {}
    if dice.randrange(12):
        labels[ZONE_LABEL] = f"z{dice.randrange(shape.zones)}"
    if shape.hostnames == "own" or dice.randrange(6):
        shared = shape.hostnames == "shared" and not dice.randrange(3)
        labels[HOSTNAME_LABEL] = "shared" if shared else name
    if dice.randrange(3):
        labels["disk"] = dice.choice(["ssd", "hdd"])
    tainted = not dice.randrange(4)
    return Node(name, labels, (Taint("ded", "x", "NoSchedule"),) if tainted else ())


constraints = st.builds(
    SpreadConstraint,
    st.sampled_from((1, 1, 2, 3, 9)),
    st.sampled_from((ZONE_LABEL, ZONE_LABEL, HOSTNAME_LABEL, HOSTNAME_LABEL, "disk", "none")),
    st.sampled_from((DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)),
    st.sampled_from((WEB, WEB, WEB, WEB, DB, None, LabelSelector())),
    st.sampled_from((None, None, None, 4, 500)),
    st.sampled_from((None, "Ignore")),
    st.sampled_from((None, "Honor")),
)
pods = st.builds(
    lambda own, ssd, tolerant, app: Pod(
        "incoming",
        labels={"app": app},
        requirements=NodeRequirements((("disk", "ssd"),) if ssd else ()),
        tolerations=(Toleration("ded", "Exists"),) if tolerant else (),
        constraints=tuple(own),
    ),
    st.lists(constraints, min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("web", "web", "db")),
)


def counted(builder: Builder, pod: Pod) -> tuple[PodConstraints, Snapshot]:
    made = pod_constraints(pod, Rules(), None)
    both = (*made.hard.constraints, *made.soft.constraints)
    groups = [c.group for c in both if not c.counts_nothing]
    if builder.snapshot.missing(groups):
        builder.ensure_counted(groups)
    return made, builder.snapshot


def by_class(made: PodConstraints, snapshot: Snapshot, top_k: int = ALL) -> ClassJudgement | None:
    planned = plan(made, snapshot)
    return None if planned is None else judge(planned, snapshot, top_k, lambda: 0.0)


def by_node(
    made: PodConstraints, snapshot: Snapshot
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Nodes by verdict, and (slot, raw, normalized) of all that fit, best first."""
    states = pre_filter(made.hard.constraints, snapshot)
    verdicts = filter_nodes(states, snapshot)[snapshot.nodes.order]
    fits = snapshot.nodes.order[verdicts == FITS]
    matching = np.zeros(fits.size, dtype=np.int64)
    for state in states:
        matching += state.counts[snapshot.domains(state.constraint.topology_key).ids[fits]]
    raw = normalized = np.zeros(fits.size, dtype=np.int64)
    if made.soft.constraints and fits.size:
        scores = score(
            made.soft.constraints, snapshot, fits, require_all_keys=made.require_all_keys
        )
        raw, normalized = scores.raw, scores.normalized
    order = np.lexsort((np.arange(fits.size), matching, -normalized))
    ranked = [(int(fits[i]), int(raw[i]), int(normalized[i])) for i in order]
    return np.bincount(verdicts, minlength=len(VERDICTS)).tolist(), ranked


@given(shapes, pods)
def test_both_ways_agree(shape: Shape, pod: Pod):
    made, snapshot = counted(built(shape), pod)
    judged = by_class(made, snapshot)
    if judged is not None:
        verdicts, ranked = by_node(made, snapshot)
        assert list(judged.verdicts) == verdicts
        assert list(judged.top) == ranked


@given(shapes, pods)
def test_judgement_per_node_agrees_with_classes(shape: Shape, pod: Pod):
    made, snapshot = counted(built(shape), pod)
    planned = plan(made, snapshot)
    if planned is None:
        return
    order = snapshot.nodes.order
    verdicts = filter_nodes(pre_filter(made.hard.constraints, snapshot), snapshot)[order]
    assert verdicts_of_each(planned, snapshot).tolist() == verdicts.tolist()
    scored = scores_of_each(planned, snapshot)
    cells = cells_of(planned, snapshot)
    if len(cells.held) * cells.width > MAX_CELLS:
        assert scored is None
        return
    assert scored is not None
    positions, scores = scored
    assert positions.tolist() == np.flatnonzero(verdicts == FITS).tolist()
    assert (scores is None) == (not made.soft.constraints or not positions.size)
    if scores is not None:
        expected = score(
            made.soft.constraints,
            snapshot,
            order[positions],
            require_all_keys=made.require_all_keys,
        )
        assert scores.raw.tolist() == expected.raw.tolist()
        assert scores.normalized.tolist() == expected.normalized.tolist()


def test_many_cells_are_left_to_the_algebra_per_node():
    made, snapshot = counted(
        built(replace(CLUSTER, nodes=3, pods=8 * MAX_CELLS)),
        Pod("incoming", labels={"app": "web"}, constraints=(hard(HOSTNAME_LABEL),)),
    )
    planned = plan(made, snapshot)
    assert planned is not None
    assert scores_of_each(planned, snapshot) is None


@given(shapes, pods, st.integers(1, 12))
def test_the_best_are_the_first_of_all(shape: Shape, pod: Pod, top_k: int):
    made, snapshot = counted(built(shape), pod)
    judged = by_class(made, snapshot, top_k)
    if judged is not None:
        assert list(judged.top) == by_node(made, snapshot)[1][:top_k]


@given(shapes, pods, st.lists(st.integers(0, 119), max_size=30))
def test_both_ways_agree_while_pods_come_and_go(shape: Shape, pod: Pod, moves: list[int]):
    builder = built(shape)
    counted(builder, pod)
    for turn, at in enumerate(moves):
        row = PodRow((("app", "web"),), f"n{at % max(1, shape.nodes)}", True)
        builder.fold([PodChange("default", f"p{turn % 7}", row if turn % 3 else None)])
        made, snapshot = counted(builder, pod)
        judged = by_class(made, snapshot)
        if judged is not None:
            verdicts, ranked = by_node(made, snapshot)
            assert list(judged.verdicts) == verdicts
            assert list(judged.top) == ranked


def hard(key: str = ZONE_LABEL, **others: Any) -> SpreadConstraint:
    return replace(SpreadConstraint(1, key, DO_NOT_SCHEDULE, WEB), **others)


def soft(key: str = ZONE_LABEL, **others: Any) -> SpreadConstraint:
    return replace(SpreadConstraint(1, key, SCHEDULE_ANYWAY, WEB), **others)


CLUSTER = Shape(seed=7, nodes=120, pods=300, zones=3, hostnames="own")


@pytest.mark.parametrize(
    "own",
    [
        (hard(),),
        (soft(),),
        (hard(HOSTNAME_LABEL),),
        (soft(HOSTNAME_LABEL),),
        (hard(), soft(HOSTNAME_LABEL)),
        (hard(), hard(HOSTNAME_LABEL, max_skew=3), soft(), soft(HOSTNAME_LABEL)),
        (hard(label_selector=DB), soft(HOSTNAME_LABEL)),
        (hard(HOSTNAME_LABEL, label_selector=None), soft(HOSTNAME_LABEL)),
    ],
)
def test_constraints_that_are_judged_by_class(own: tuple[SpreadConstraint, ...]):
    pod = Pod("incoming", labels={"app": "web"}, constraints=own)
    made, snapshot = counted(built(CLUSTER), pod)
    judged = by_class(made, snapshot)
    assert judged is not None
    assert (list(judged.verdicts), list(judged.top)) == by_node(made, snapshot)


@pytest.mark.parametrize(
    ("own", "shape"),
    [
        # Two groups are counted per node.
        ((hard(HOSTNAME_LABEL), soft(HOSTNAME_LABEL, label_selector=DB)), CLUSTER),
        # Hostnames that nodes share are domains like others, and there are many.
        ((hard(HOSTNAME_LABEL),), replace(CLUSTER, hostnames="shared")),
        ((hard(),), replace(CLUSTER, zones=2 * MAX_CLASSES, nodes=400)),
        ((soft(max_skew=0),), CLUSTER),
    ],
    ids=["two groups", "shared hostnames", "many zones", "scores below 0"],
)
def test_constraints_that_are_judged_per_node(own: tuple[SpreadConstraint, ...], shape: Shape):
    pod = Pod("incoming", labels={"app": "web"}, constraints=own)
    made, snapshot = counted(built(shape), pod)
    assert by_class(made, snapshot) is None
