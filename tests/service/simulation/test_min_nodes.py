"""The fewest nodes, compared with trying out all there are."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.simulation.calls import node_group, scenario_of, to_place
from tests.service.simulation.drawing import Drawn, nodes, scenes
from tests.service.world import World, constraint, incoming, node, world
from topospread.service.simulation.fewest_nodes import EFFORT, minimum_nodes, mixtures, with_nodes

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from topospread.service.simulation.scenario import Scenario
    from topospread_proto.v1.scenario_pb2 import NodeGroup


@st.composite
def groups(draw: DrawFn) -> list[NodeGroup]:
    """One or two node groups of up to three nodes."""
    return [
        node_group(draw(nodes(f"g{number}")), draw(st.integers(1, 3)))
        for number in range(draw(st.integers(1, 2)))
    ]


def all_fit(scenario: Scenario, counts: tuple[int, ...]) -> bool:
    return not with_nodes(scenario, counts).pending


@settings(max_examples=40)
@given(scenes(), groups())
def test_fewer_nodes_do_not_fit_all_pods(scene: Drawn, may_join: list[NodeGroup]):
    with world() as made:
        made.apply(*scene.cluster)
        asked = [to_place(*each) for each in scene.asked]
        scenario = scenario_of(made, pods=asked, add_node_groups=may_join, find_fewest_nodes=True)
        if scenario is None:
            return  # a template that no pod could go to
        found = minimum_nodes(scenario)

        every = product(*(range(group.node_count + 1) for group in may_join))
        enough = [sum(counts) for counts in every if all_fit(scenario, counts)]
        assert found.proved
        assert found.all_fit == bool(enough)
        if enough:
            assert sum(found.counts) == min(enough)
            assert all_fit(scenario, found.counts)

        hasty = minimum_nodes(scenario, effort=0)
        assert hasty.all_fit <= bool(enough)
        if hasty.all_fit:
            assert all_fit(scenario, hasty.counts)
            assert sum(hasty.counts) >= min(enough)


def test_mixtures_are_all_there_are_and_begin_with_the_first_groups():
    assert list(mixtures(2, (2, 1, 3))) == [
        *((2, 0, 0), (1, 1, 0), (1, 0, 1)),
        *((0, 1, 1), (0, 0, 2)),
    ]
    assert list(mixtures(4, (1, 2))) == []


def test_search_without_time_reports_an_unproved_result(empty_world: World):
    empty_world.apply(node("n1", "a"))
    scenario = scenario_of(
        empty_world,
        pods=incoming(constraint("kubernetes.io/hostname", minDomains=40)),
        replicas=80,
        add_node_groups=[node_group(node("t", "a"))],
        find_fewest_nodes=True,
    )
    assert scenario is not None
    proved = minimum_nodes(scenario)
    assert (proved.counts, proved.all_fit, proved.proved) == ((39,), True, True)
    hasty = minimum_nodes(scenario, effort=EFFORT // 20)
    assert (hasty.all_fit, hasty.proved) == (True, False)
    assert hasty.counts >= proved.counts
    assert hasty.simulations < proved.simulations


def test_the_search_ends_where_no_node_has_the_resource(empty_world: World):
    empty_world.apply(node("n1", "a") | {"status": {"allocatable": {"cpu": "1", "pods": "1"}}})
    gpu = {"resources": {"requests": {"example.com/gpu": "1"}}, "name": "c"}
    scenario = scenario_of(
        empty_world,
        pods=incoming(containers=[gpu]),
        add_node_groups=[node_group(node("t", "a") | {"status": {"allocatable": {"cpu": "1"}}}, 5)],
        find_fewest_nodes=True,
    )
    assert scenario is not None
    found = minimum_nodes(scenario)
    assert (found.all_fit, found.proved, found.simulations) == (False, True, 0)
    offers = (("example.com/gpu", 2), ("pods", 2))
    (group,) = scenario.question.groups
    group = replace(group, template=replace(group.template, allocatable=offers))
    scenario.question = replace(scenario.question, groups=[group])
    assert minimum_nodes(scenario).counts == (1,)
