"""What is kept for callers holds no more than its bounds say, whatever callers send."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from bench.campaigns import crowd
from bench.campaigns.campaign import MIB
from bench.campaigns.grown import pod
from bench.campaigns.measured import HOSTNAME, ZONE
from tests.costs.deep import deep_size
from tests.servers import Peer, http_get, served, two_zones
from tests.waiting import PATIENCE
from topospread.cache import BUDGETS, Budget, Cache
from topospread.codec.demands import DemandReader
from topospread.codec.frames import framed
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange
from topospread.index.groups import GroupUsage, ResultMemo
from topospread.index.objects import NAMESPACE, NO_OBJECTS
from topospread.kube.affinity import CompiledRequirements, compile_requirements
from topospread.kube.objects import Node, NodeExpression, NodeRequirements, NodeTerm
from topospread.kube.selectors import Requirement, Selector
from topospread.kube.volumes import Namespace
from topospread.replica.view import View
from topospread.service.decisions import pods
from topospread.service.decisions.cycle import Cycle, CycleCache
from topospread.service.decisions.pods import PodShape, PodShapes, plan_of
from topospread.service.decisions.request import ProfileRegistry, SettingsOverride
from topospread.spread.settings import NEWEST
from topospread.spread.topology import Eligibility, GroupKey, Traits
from topospread.store.model import Revision
from topospread_proto.v1 import common_pb2, decision_service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.index.snapshot import Snapshot
    from topospread.service.decisions.pods import EffectiveConstraints
    from topospread.spread.constraints import Constraint

NODES = 1000
RULES = ProfileRegistry().rules_for(SettingsOverride(), "", NEWEST)
MARGIN = 1.25
"""Sizes are told from counts and lengths."""


def cluster(size: int = NODES) -> Builder:
    """Nodes of three zones."""
    builder = Builder()
    made = [
        Node(f"node-{i}", {HOSTNAME: f"node-{i}", ZONE: f"zone-{i % 3}", "pool": f"pool-{i % 5}"})
        for i in range(size)
    ]
    builder.fold([NodeChange(each.name, each) for each in made])
    return builder


def _affinity(made: Any) -> Any:
    affinity = made.spec.affinity.node_affinity
    return affinity.required_during_scheduling_ignored_during_execution.node_selector_terms


def _plain(number: int, hard: str = ZONE, soft: str = HOSTNAME) -> Any:
    """One of many workloads: two constraints, three conditions on nodes."""
    made = pod()
    del made.spec.topology_spread_constraints[:]
    for key, action in ((hard, "DoNotSchedule"), (soft, "ScheduleAnyway")):
        constraint = made.spec.topology_spread_constraints.add()
        constraint.max_skew, constraint.topology_key = 1, key
        constraint.when_unsatisfiable = action
        constraint.label_selector.match_labels["app"] = f"app-{number}"
    made.metadata.labels["app"] = f"app-{number}"
    expressions = _affinity(made).add().match_expressions
    for key, value in (("pool", f"pool-{number % 5}"), (ZONE, "zone-1"), ("app", str(number % 20))):
        expression = expressions.add()
        expression.key, expression.operator = key, "NotIn"
        expression.values.append(value)
    return made


def _two(number: int) -> Any:
    return crowd._wide(number, 2)


def _own_classes(number: int) -> Any:
    made = _plain(number, hard=HOSTNAME, soft=ZONE)
    _affinity(made)[0].match_expressions[0].values[0] = str(number)
    return made


def _conditions(number: int, count: int = 600) -> Any:
    made = pod()
    for each in range(count):
        expression = _affinity(made).add().match_expressions.add()
        expression.key, expression.operator = f"{number}-{each}", "Exists"
    return made


def _few_conditions(number: int) -> Any:
    return _conditions(number, 200)


def _empty_terms(number: int) -> Any:
    made = pod()
    made.metadata.labels["number"] = str(number)
    for _ in range(2000):
        _affinity(made).add()
    return made


def _values(number: int) -> Any:
    made = pod()
    expression = _affinity(made).add().match_expressions.add()
    expression.key, expression.operator = "pool", "NotIn"
    expression.values.extend(f"{number}-{each}" for each in range(2000))
    return made


def _tolerations(number: int) -> Any:
    made = pod()
    for each in range(2000):
        made.spec.tolerations.add().key = f"{number}-{each}"
    return made


def _labels(number: int) -> Any:
    made = pod()
    for each in range(2000):
        made.metadata.labels[f"{number}-{each}"] = ""
    return made


WORST = (
    _plain,
    _two,
    _own_classes,
    crowd._wide,
    crowd._terms,
    _conditions,
    _few_conditions,
    _empty_terms,
    _values,
    _tolerations,
    _labels,
)


def shape(make: Callable[[int], Any], number: int, kept: PodShapes) -> PodShape:
    """As the engine has it of an encoded pod."""
    read = framed(make(number).SerializeToString())
    known = kept.get(read.key)
    if known is None:
        known = PodShape(read.parse(5000), read.size)
        kept.put(read.key, known)
    return known


@pytest.mark.parametrize("make", WORST)
def test_shapes_and_what_follows_from_nodes(make: Callable[[int], Any]) -> None:
    most_shapes = BUDGETS["shapes"].most
    kept, builder = PodShapes(), cluster()
    table = builder.snapshot.nodes
    _ = table.domains(ZONE), table.domains(HOSTNAME), table.sorted_names
    before = deep_size([table], [RULES])
    # Until some had to go, or so many were made that they would be past what is allowed.
    number = size = 0
    while size < 1.6 * most_shapes:
        made = shape(make, number, kept)
        plan = plan_of(made.effective_constraints(RULES, builder.snapshot), builder.snapshot)
        if plan is not None:
            _ = plan.cells.of_nodes, plan.cells.every
        number += 1
        size += made.size
    assert deep_size([kept], [RULES, builder.snapshot.workloads]) < MARGIN * most_shapes
    most = sum(BUDGETS[name].most for name in ("masks", "memberships", "partitions", "plans"))
    assert deep_size([table], [RULES]) - before < MARGIN * most


def test_a_thousand_workloads_fit() -> None:
    kept, builder, made = PodShapes(), cluster(), {}
    for number in range(1000):
        made[number] = shape(_plain, number, kept)
        plan_of(made[number].effective_constraints(RULES, builder.snapshot), builder.snapshot)
    plans = [made[number].effective_constraints(RULES, builder.snapshot) for number in made]
    for number, each in made.items():
        assert shape(_plain, number, kept) is each
        assert each.effective_constraints(RULES, builder.snapshot) is plans[number]
    table = builder.snapshot.nodes
    assert len(table.plans) == len(plans)
    assert all(c.eligibility in table._masks for each in plans for c in _hard(each))


def _hard(judged: EffectiveConstraints) -> tuple[Constraint, ...]:
    return judged.constraints.hard.constraints


def test_plan_that_is_not_made_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = cluster(10)
    kept = PodShapes()
    judged = [
        shape(_plain, i, kept).effective_constraints(RULES, builder.snapshot) for i in range(2000)
    ]

    def given_up(*_: Any) -> None:
        raise TimeoutError

    _ = plan_of(judged[0], builder.snapshot)
    with monkeypatch.context() as patched:
        patched.setattr(pods, "plan", given_up)
        for each in judged[1:]:
            with pytest.raises(TimeoutError):
                plan_of(each, builder.snapshot)
    _ = plan_of(judged[1], builder.snapshot)
    assert judged[0] in builder.snapshot.nodes.plans


def _selecting(key: str, value: str, terms: int = 0) -> CompiledRequirements:
    """Of a node selector, and so many conditions that all nodes meet."""
    more = [NodeTerm((NodeExpression(f"{value}-{i}", "DoesNotExist", ()),)) for i in range(terms)]
    return compile_requirements(NodeRequirements(((key, value),), tuple(more) if terms else None))


def test_masks_of_one_large_affinity_go_together() -> None:
    """Constraints of a pod that differ in taints have a mask each, and one affinity."""
    table = cluster(100).snapshot.nodes
    before = deep_size([table], [])
    for number in range(60):
        requirements = _selecting("pool", f"pool-{number}", 3000)
        table.mask(Eligibility((HOSTNAME,), requirements))
        table.mask(Eligibility((HOSTNAME,), requirements, ()))
        del requirements
    assert deep_size([table], []) - before < MARGIN * BUDGETS["masks"].most


@pytest.mark.parametrize(("nodes", "selectors"), [(5000, 60), (50_000, 12)])
def test_partitions_of_many_node_selectors_stay(nodes: int, selectors: int) -> None:
    """Workloads of which each has its own, judged by turns at the size of a large cluster."""
    table = cluster(nodes).snapshot.nodes
    every = [
        Traits((), (HOSTNAME,), (Eligibility((HOSTNAME,), _selecting("pool", f"pool-{number}")),))
        for number in range(selectors)
    ]
    made = [table.partition(traits) for traits in every]
    assert all(table.partition(traits) is each for traits, each in zip(every, made, strict=True))


def test_a_result_that_is_worked_out_again_is_counted_once() -> None:
    memo = ResultMemo(GroupUsage(0, GroupKey("default", Selector(())), deque()))
    memo.put(("key", 1), "first", 1000)
    for _ in range(5000):
        memo.put(("key", 2), "again", 1000)
    assert memo.get(("key", 1)) == "first"


def test_older_nodes_keep_nothing_that_was_worked_out() -> None:
    builder = cluster()
    before = builder.snapshot.nodes
    for number in range(100):
        made = shape(_plain, number, PodShapes())
        plan_of(made.effective_constraints(RULES, builder.snapshot), builder.snapshot)
    assert len(before.plans)
    builder.fold([NodeChange("node-0", None)])
    assert not len(before.plans)
    assert not len(before._masks)


def test_demands() -> None:
    def many(number: int, amounts: int) -> bytes:
        made = crowd._resources(number)
        for each in range(amounts):
            requests = made.spec.containers.add().resources.requests
            requests[f"only-{number}.io/r-{each % 90}"].string = "1"
        return bytes(made.SerializeToString())

    for amounts in (0, 900):
        known = DemandReader()
        for number in range(400 if not amounts else 40):
            known.of(many(number, amounts))
        assert deep_size([known]) < MARGIN * BUDGETS["demands"].most


@pytest.mark.parametrize(("terms", "names", "values"), [(1, 300, 300), (100, 1, 1), (20, 0, 60)])
def test_demands_with_terms(terms: int, names: int, values: int) -> None:
    def keeping_apart(number: int) -> bytes:
        made = pod()
        anti = made.spec.affinity.pod_anti_affinity
        for each in range(terms):
            term = anti.required_during_scheduling_ignored_during_execution.add()
            term.topology_key = HOSTNAME
            term.namespaces.extend(f"team-{number}-{each}-{name}" for name in range(names))
            condition = term.label_selector.match_expressions.add()
            condition.key, condition.operator = "app", "In"
            condition.values.extend(f"app-{number}-{each}-{value}" for value in range(values))
        return bytes(made.SerializeToString())

    known = DemandReader()
    for number in range(150):
        known.of(keeping_apart(number))
    held = deep_size([known])
    assert held < MARGIN * BUDGETS["demands"].most
    assert known._known.size / 2 < held < MARGIN * known._known.size


def test_namespaces_that_terms_select() -> None:
    """Each selector matches all of them; none is a set of names."""
    rows = {(NAMESPACE, "", f"team-{i}"): Namespace(f"team-{i}", ()) for i in range(5000)}
    objects = NO_OBJECTS.changed(rows)
    objects.namespaces_matching(Selector())
    before = deep_size([objects])
    for number in range(4000):
        wanted = Requirement(f"label-{number}", "DoesNotExist")
        assert "team-0" in objects.namespaces_matching(Selector((wanted,)))
    assert deep_size([objects]) - before < MARGIN * BUDGETS["namespaces"].most


@pytest.mark.parametrize(
    ("make", "most"), [(_plain, 800), (crowd._wide, 250), (_conditions, 100), (_two, 500)]
)
def test_cycles(make: Callable[[int], Any], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when Filter and Score were asked of each, and the counts go elsewhere."""
    monkeypatch.setattr(BUDGETS["cycles"], "most", 16 * MIB)
    builder, number = cluster(4 * NODES), 0
    kept = CycleCache()
    # Until the first one has to go: it is full then.
    while len(kept._kept) == number < most:
        made = shape(make, number, PodShapes())
        judged = made.effective_constraints(RULES, builder.snapshot)
        snapshot = builder.ensure_counted(judged.groups)
        cycle = Cycle("c", made.pod, RULES, judged, _view(snapshot))
        _ = cycle.states
        found = kept.get(kept.put(cycle.alone()))
        assert found is not None
        assert found.verdicts_in_order.tolist() == cycle.verdicts_in_order.tolist()
        positions, _ = found.feasible_and_scores()
        assert positions.tolist() == cycle.feasible_and_scores()[0].tolist()
        number += 1
    builder.snapshot.nodes.forget()
    held = deep_size([kept], [RULES, builder.snapshot.nodes])
    assert held < MARGIN * BUDGETS["cycles"].most
    assert len(kept._kept) < number


def test_a_cycle_whose_nodes_are_judged_one_by_one_keeps_verdicts_instead_of_counts() -> None:
    builder = cluster()
    made = shape(crowd._wide, 1, PodShapes())
    judged = made.effective_constraints(RULES, builder.snapshot)
    cycle = Cycle("c", made.pod, RULES, judged, _view(builder.ensure_counted(judged.groups)))
    alone = cycle.alone()
    assert not alone.groups
    shared = builder.snapshot
    others = [RULES, made, shared.nodes, shared.objects, shared.holdings, shared.attached]
    assert deep_size([alone], others) < 10 * NODES


def _view(snapshot: Snapshot) -> View:
    return View(snapshot, "store", Revision(1, "a"), "token", 0.0)


def test_cache_keeps_what_is_used() -> None:
    budget = Budget(16_000)
    kept: Cache[int, str] = Cache(budget)
    for number in range(1000):
        kept.put(number, "small", 100)
        assert kept.get(0) == "small"
        assert kept.size == 100 * len(kept) <= budget.most
    assert 80 <= len(kept) == 1000 - budget.evicted
    assert all(kept.get(number) for number in range(920, 1000))
    kept.put(-1, "huge", 8001)
    assert -1 not in kept
    del kept
    assert budget.size == 0


def test_cache_counts_what_entries_share_once() -> None:
    budget = Budget(2000)
    kept: Cache[int, str] = Cache(budget)
    for number in range(5):
        kept.put(number, "sharing", 20, (("part", 800),))
    assert kept.size == 900
    kept.put(5, "other", 20, (("another part", 800),))
    assert kept.size == 900 + 820
    assert kept.get(0) == "sharing"  # with the part, which the younger ones do not have
    assert len(kept) == 2


def test_server_keeps_within_its_limits_and_reports_its_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("shapes", "cycles", "plans"):
        monkeypatch.setattr(BUDGETS[name], "most", MIB // 4)
    flags = {"max_group_bytes": "1MiB", "http": "127.0.0.1:0"}
    with served(**flags) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        for number in range(300):
            request = decision_service_pb2.EvaluatePodRequest(
                pod=common_pb2.PodSource(object=_plain(number))
            )
            peer.engine.EvaluatePod(request, timeout=PATIENCE)
            peer.engine.PreFilter(
                decision_service_pb2.PreFilterRequest(
                    pod=common_pb2.PodSource(object=_plain(number))
                ),
                timeout=PATIENCE,
            )
        _, text = http_get(f"http://{server.http_address}/metrics")

    def of(name: str) -> dict[str, float]:
        found = re.findall(rf'^topospread_cache_{name}{{cache="(\w+)"}} (\S+)$', text, re.MULTILINE)
        return {cache: float(value) for cache, value in found}

    size, most, evicted = of("bytes"), of("limit_bytes"), of("evictions_total")
    assert size.keys() == most.keys() == evicted.keys() == {*BUDGETS, "groups"}
    assert most["groups"] == MIB
    assert all(size[name] <= most[name] for name in most), (size, most)
    assert all(evicted[name] for name in ("shapes", "cycles", "plans")), evicted
    assert all(size[name] for name in ("shapes", "cycles", "plans", "groups", "rows")), size
