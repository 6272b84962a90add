"""Whoever says where a pod fits asks the same filters, and names what none of them looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.service.placement.placer import Placer, bound, named, untraced
from tests.service.simulation.calls import simulation
from tests.service.world import HOSTNAME, ZONE, World, node, running, world
from topospread.service.decisions.request import PodRef
from topospread.service.explaining.explain import explain
from topospread.service.fit.question import Fit
from topospread.service.placement.place import Preference, place
from topospread.spread.settings import ConfiguredRules, Profile
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

PREEMPTION = "preemption: 1 pod of lower priority stands on nodes that are open to it"
DRIVERS = "volume drivers' own checks"
WEB = {"matchLabels": {"app": "web"}}
PORT = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}


def keeps(app: str, key: str = HOSTNAME) -> Json:
    """Affinity of a pod that wants no pods of an app in its domain."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def volume(claim: str) -> Json:
    return {"name": claim, "persistentVolumeClaim": {"claimName": claim}}


def claim(name: str, to: str, mode: str = "ReadWriteOnce") -> list[Json]:
    """A claim that is bound to a volume of a zone."""
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [to]}]}]
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": f"pv-{name}", "accessModes": [mode], "storageClassName": "s"},
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": [mode],
                "storageClassName": "s",
                "csi": {"driver": "d", "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            "status": {"phase": "Bound"},
        },
    ]


def unbound(name: str) -> list[Json]:
    """A claim whose volume a driver makes where the pod goes."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "later"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}},
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "later"},
            "provisioner": "d",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ]


def with_spec(pod: Json, **spec: Any) -> Json:
    return pod | {"spec": pod["spec"] | spec}


CASES: dict[str, tuple[list[Json], Json, list[str]]] = {
    # Beside two nodes: what is there, the pod's spec, the nodes that it fits.
    "nothing": ([], {}, ["n-a", "n-b"]),
    "a host port that is taken": (
        [with_spec(running("other", "n-a", "db"), containers=[PORT])],
        {"containers": [PORT]},
        ["n-b"],
    ),
    "pods that it keeps away": (
        [running("other", "n-a", "db")],
        {"affinity": keeps("db")},
        ["n-b"],
    ),
    "a pod that keeps it away": (
        [with_spec(running("other", "n-a", "db"), affinity=keeps("web", ZONE))],
        {},
        ["n-b"],
    ),
    "a volume of another zone": (claim("data", "b"), {"volumes": [volume("data")]}, ["n-b"]),
    "a claim that is missing": (claim("data", "b"), {"volumes": [volume("none")]}, []),
    "a claim that another pod has": (
        [
            *claim("data", "a", "ReadWriteOncePod"),
            with_spec(running("other", "n-a", "db"), volumes=[volume("data")]),
        ],
        {"volumes": [volume("data")]},
        [],
    ),
}


@pytest.fixture
def two_nodes() -> Iterator[World]:
    """n-a in zone a, n-b in zone b."""
    with world() as made:
        made.apply(node("n-a", "a"), node("n-b", "b"))
        yield made


def explained(here: World, pod: Json, fit: Fit = Fit.ALL) -> Any:
    encoded = pod_from_manifest(pod).SerializeToString()
    with_requests = here.engine.with_requests(here.ask(), encoded)
    return explain(here.engine, here.ask(), with_requests, fit=fit).response.explanation


@pytest.mark.parametrize("case", CASES)
def test_each_caller_has_the_nodes_that_all_filters_leave(two_nodes: World, case: str) -> None:
    there, spec, fitting = CASES[case]
    two_nodes.apply(*there)
    pod = named("p", **spec)

    answer = explained(two_nodes, pod)
    simulated = simulation(two_nodes, pods=[pod])
    held = Placer(two_nodes).place(pod)

    assert answer.fitting_node_count == len(fitting)
    assert [each.node for each in simulated.placements] in ([[name] for name in fitting] or [[]])
    assert held.node in (fitting or [""])
    if not fitting:
        (pending,) = simulated.pending_pods
        assert answer.message == pending.message == held.message != ""


def test_pods_of_a_what_if_hold_what_those_after_them_want(two_nodes: World) -> None:
    two_nodes.apply(*claim("data", "a", "ReadWriteOncePod"))
    for spec in (
        {"containers": [PORT]},
        {"affinity": keeps("web")},
        {"volumes": [volume("data")]},
    ):
        pods = [named(f"p{number}", **spec) for number in range(3)]
        found = simulation(two_nodes, pods=pods)
        most = 1 if "volumes" in spec else 2
        assert (found.placed_pod_count, found.pending_pod_count) == (most, 3 - most), spec


def test_places_hold_what_those_after_them_want(two_nodes: World) -> None:
    placer = Placer(two_nodes)
    pods = [named(f"p{number}", containers=[PORT]) for number in range(3)]
    assert sorted(placer.place(each).node for each in pods) == ["", "n-a", "n-b"]


def test_pods_that_are_added_removed_and_drained_count_with_what_they_hold(
    two_nodes: World,
) -> None:
    taken = with_spec(running("other", "n-a", "db"), containers=[PORT])
    asks, moved = named("p", containers=[PORT]), bound(named("q", containers=[PORT]), "n-b")
    two_nodes.apply(taken)
    full = simulation(two_nodes, pods=[asks], add_pods=[(moved, "n-b")])
    freed = simulation(
        two_nodes, pods=[asks], add_pods=[(moved, "n-b")], delete_pods=["default/other"]
    )
    drained = simulation(two_nodes, pods=[named("q", containers=[PORT])], taint_nodes=["n-a"])
    assert (full.placed_pod_count, freed.placements[0].node) == (0, "n-a")
    assert drained.placements[0].node == "n-b"


GAPS: dict[str, tuple[Json, list[str]]] = {
    "nothing": ({}, []),
    "another scheduler": (
        {"schedulerName": "volcano"},
        ["schedulerName volcano: not this scheduler's"],
    ),
    "scheduling gates": (
        {"schedulingGates": [{"name": "wait"}]},
        ["scheduling gates: not tried yet"],
    ),
    "a priority class": ({"priorityClassName": "gold"}, ["priority class gold"]),
    "a priority": ({"priorityClassName": "gold", "priority": 0}, []),
    "a priority class of every cluster": ({"priorityClassName": "system-node-critical"}, []),
    "a volume that is there": ({"volumes": [volume("data")]}, []),
    "a volume that is still to be made": ({"volumes": [volume("new")]}, [DRIVERS]),
    "resource claims": (
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        ["resource claims"],
    ),
}


@pytest.mark.parametrize("case", GAPS)
def test_each_caller_names_the_gaps(two_nodes: World, case: str) -> None:
    spec, expected = GAPS[case]
    two_nodes.apply(*claim("data", "b"), *unbound("new"))
    pod = named("p", **spec)
    placer = Placer(two_nodes)
    wanted = placer.wanted(pod)

    answers = [
        explained(two_nodes, pod).not_modelled,
        simulation(two_nodes, pods=[pod]).not_modelled,
        _placed(placer, wanted),
    ]

    for found in answers:
        said = [each for each in found if not each.startswith("volume limits (")]
        unread = [each for each in said if "in the state)" in each]
        assert [each.split(" (")[0] for each in said if each not in unread] == expected


def _placed(placer: Placer, wanted: Any) -> Any:
    place(placer.holding, wanted, Preference(), untraced)
    return wanted.not_modelled


def test_drained_pods_are_named_with_what_is_not_looked_at(two_nodes: World) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w"}
    pod = with_spec(running("db-0", "n-a", "db"), volumes=[volume("data")])
    pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    two_nodes.apply(*claim("data", "a"), pod)
    found = simulation(two_nodes, pods=[], drain_nodes=["n-a"], reschedule=True)
    assert (found.placed_pod_count, found.rescheduled_pod_count) == (0, 1)
    assert "volumes (no CSINode in the state)" in found.not_modelled


def test_plugins_and_extenders_of_others_are_named(two_nodes: World) -> None:
    profile = Profile(foreign=("plugin Licences", "extender http://x"))
    two_nodes.process.rules.replace(ConfiguredRules({profile.name: profile}))
    assert [*explained(two_nodes, named("p")).not_modelled] == [
        "plugin Licences",
        "extender http://x",
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, []),
        (
            {"priority": 9},
            ["preemption: 1 pod of lower priority stands on nodes that are open to it"],
        ),
        ({"priority": 9, "preemptionPolicy": "Never"}, []),
        ({"priority": 9, "nodeSelector": {"disk": "none"}}, []),
    ],
)
def test_preemption_is_named_where_it_could_help(
    two_nodes: World, spec: Json, said: list[str]
) -> None:
    status = {"status": {"allocatable": {"cpu": "1", "pods": "1"}}}
    two_nodes.apply(node("n-a", "a") | status, node("n-b", "b") | {"status": {}})
    two_nodes.apply(running("other", "n-a", "db"))
    pod = named("p", **spec)
    placer = Placer(two_nodes)
    wanted = placer.wanted(pod)
    assert [*explained(two_nodes, pod).not_modelled] == said
    assert [*simulation(two_nodes, pods=[pod]).not_modelled] == said
    assert [*_placed(placer, wanted)] == said


def test_resources_are_called_as_their_owners_like(two_nodes: World) -> None:
    status = {"status": {"allocatable": {"cpu": "1", "pods": "1"}}}
    two_nodes.apply(node("n-a", "a") | status, node("n-b", "b") | {"status": {}})
    limits = {"limits": {"\0priority high": "1", "5": "1", "": "1"}}
    other = running("other", "n-a", "db")
    two_nodes.apply(with_spec(other, containers=[{"name": "c", "resources": limits}]))
    answer = explained(two_nodes, named("p", priority=9))
    assert [each.partition(":")[0] for each in answer.not_modelled] == ["preemption"]


def test_a_pod_of_the_state_may_go_to_another_node(two_nodes: World) -> None:
    two_nodes.apply(running("web-0", "n-a"), node("n-a", "a") | {"spec": {"unschedulable": True}})
    found = simulation(two_nodes, pods=["default/web-0"], delete_pods=["default/web-0"])
    assert [each.node for each in found.placements] == ["n-b"]
    held = explained_by_name(two_nodes, "web-0")
    assert (held.fitting_node_count, held.node_count) == (1, 2)


def explained_by_name(here: World, name: str) -> Any:
    pod = here.engine.with_requests(here.ask(), PodRef(name))
    return explain(here.engine, here.ask(), pod).response.explanation


def wants(**term: Any) -> Json:
    """Inter-pod affinity or anti-affinity of one term, about pods of the app db."""
    db = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [db | term if term else {}]}


TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
NOT_TEAM = {
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
}
OF_WEB = {"labelSelector": WEB}
LABELS = "inter-pod affinity by labels of namespaces (no Namespace in the state)"
STORED = "inter-pod affinity (stored by an older server)"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
TERMS: dict[str, tuple[Json, Json, Json, int, list[str]]] = {
    # What the running pod of n-a wants, what the pod wants, another object, nodes left, gaps.
    "a namespace that is known": ({}, {"podAffinity": wants(**TEAM)}, NAMESPACE, 0, []),
    "affinity": ({}, {"podAffinity": wants(**TEAM)}, {}, 2, [LABELS]),
    "anti-affinity": ({}, {"podAntiAffinity": wants(**NOT_TEAM)}, {}, 2, [LABELS]),
    "anti-affinity to a namespace, too": (
        {},
        {"podAntiAffinity": wants(**TEAM, namespaces=["default"])},
        {},
        1,
        [LABELS],
    ),
    "all namespaces": ({}, {"podAffinity": wants(namespaceSelector={})}, {}, 1, []),
    "another pod's": (
        {"podAntiAffinity": wants(**NOT_TEAM, **OF_WEB)},
        {},
        {},
        2,
        [LABELS],
    ),
    "another pod's, known": (
        {"podAntiAffinity": wants(**NOT_TEAM, **OF_WEB)},
        {},
        NAMESPACE,
        1,
        [],
    ),
    "affinity that was not kept": ({}, {"podAffinity": wants()}, {}, 2, [STORED]),
    "another pod's that was not kept": (
        {"podAntiAffinity": wants()},
        {},
        {},
        2,
        [STORED],
    ),
}


@pytest.mark.parametrize("case", TERMS)
def test_terms_that_are_not_known_refuse_nothing_and_are_named(two_nodes: World, case: str) -> None:
    theirs, own, other, fitting, gaps = TERMS[case]
    two_nodes.apply(with_spec(running("other", "n-a", "db"), affinity=theirs))
    if other:
        two_nodes.apply(other)
    answer = explained(two_nodes, named("p", affinity=own))
    assert answer.fitting_node_count == fitting
    assert list(answer.not_modelled) == gaps
