"""Groups are judged together as if each were tried by itself, with one node of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.objects import object_of
from tests.expander.requests import HOST, node, pod
from tests.service.world import ZONE, world
from topospread.codec.pods import node_from_proto
from topospread.index.overlay import Overlay, apply_overlay
from topospread.service.decisions.cycle import Cycle
from topospread.service.decisions.pods import needed_groups
from topospread.service.decisions.request import NodeSelection
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.service.placement.place import choose
from topospread.service.simulation.openable_domains import constraints_of, openable_domains
from topospread.service.simulation.run import PodBatch
from topospread.spread.verdicts import Code
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from topospread.kube.objects import Node
    from topospread.replica.view import View

Json = dict[str, Any]

RACK = "rack"
TAINT = [{"key": "gpu", "effect": "NoSchedule"}]
ZONES = st.sampled_from("abcde")


@st.composite
def nodes(draw: st.DrawFn, prefix: str, size: int) -> list[Json]:
    """Nodes of some zones, with racks, or tainted or too small."""
    found = []
    for number in range(draw(st.integers(1, size))):
        labels = {"zone": draw(ZONES)}
        if rack := draw(st.sampled_from(["r1", "r2", ""])):
            labels[RACK] = rack
        made = node(f"{prefix}{number}", draw(st.sampled_from(["4", "4", "4", "100m"])), **labels)
        made["spec"] = {"taints": TAINT if draw(st.integers(0, 4)) == 0 else []}
        found.append(made)
    return found


@st.composite
def incoming(draw: st.DrawFn, app: str) -> Json:
    """A pod that waits, with up to two constraints."""
    made = pod(f"{app}-waits", key=ZONE, app=app)
    (constraint,) = made["spec"]["topologySpreadConstraints"]
    keys = draw(st.sampled_from([[ZONE], [ZONE, RACK], [RACK], [ZONE, HOST]]))
    more: Json = draw(st.sampled_from([{}, {"minDomains": 3}, {"nodeTaintsPolicy": "Honor"}]))
    made["spec"]["topologySpreadConstraints"] = [
        {**constraint, "topologyKey": key, **more} for key in keys
    ]
    return made


@given(nodes("n", 4), nodes("g", 5), incoming("w0"), incoming("w1"), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_groups_are_judged_as_if_each_were_tried(there, groups, first, second, data) -> None:
    names = st.sampled_from([each["metadata"]["name"] for each in there])
    running = [
        pod(f"p{number}", data.draw(names), app=data.draw(st.sampled_from(["w0", "w1"])))
        for number in range(data.draw(st.integers(0, 6)))
    ]
    others = [node_from_proto(object_of(each).node) for each in groups]
    with world() as made:
        made.apply(*there, *running)
        engine, asked = made.engine, made.ask()
        replica, view = engine.replicas.resolve(asked.cluster, asked.consistency, asked.deadline)
        batches = []
        for each in (first, second):
            read = engine.with_requests(asked, pod_from_manifest(each).SerializeToString())
            rules = engine.rules_of(read.pod, asked, view.snapshot.version)
            batches.append(PodBatch(read.pod.shape, rules, read.demand, (read.pod.name,)))
        judged = [one for batch in batches for one in batch.judged]
        view = engine.with_groups_counted(judged, replica, view)
        constraints = constraints_of(batches, view.snapshot)
        found = openable_domains(view, constraints, [], others, lambda: None)
        for constraint, batch in constraints.items():
            if found[constraint].per_node:
                continue
            values = {
                each.labels[constraint.topology_key]
                for each in others
                if constraint.topology_key in each.labels and refused_for_now(view, each, batch)
                if counts(view, each, constraint)
            }
            assert found[constraint].values == values


def counts(view: View, joined: Node, constraint: Any) -> bool:
    """Whether a constraint counts what is on a node."""
    state, _ = apply_overlay(view.snapshot, Overlay(joined=[joined]), ())
    return bool(state.nodes.mask(constraint.eligibility)[state.slot(joined.name)])


def refused_for_now(view: View, joined: Node, batch: PodBatch) -> bool:
    """What a scheduler would say of pods and the node alone."""
    groups = needed_groups(batch.judged, view.snapshot)
    state, _ = apply_overlay(view.snapshot, Overlay(joined=[joined]), groups)
    effective = batch.shape.effective_constraints(batch.rules, state)
    if any(c.topology_key not in joined.labels for c in effective.constraints.hard.constraints):
        return False
    alone = replace(view, snapshot=state)
    cycle = Cycle("", batch.shape.pod, batch.rules, effective, alone, demand=batch.demand)
    suits = suited(cycle.asked, Fit.ALL)
    chosen = choose(cycle, suits, choice=NodeSelection(names=(joined.name,)))
    return not isinstance(chosen, str) and chosen.status.code is Code.UNSCHEDULABLE
