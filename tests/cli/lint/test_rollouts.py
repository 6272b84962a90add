"""`topospread lint` on rollouts: of a manifest alone, and with the nodes and pods of a cluster."""

from __future__ import annotations

import json

import pytest

from tests.allocatable import ROOMY

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
OWN = {"matchLabels": {"app": "gate"}}
ONE_BY_ONE = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
ROLLOUTS = {"RolloutSkew", "RolloutDeadlock", "TooFewDomains"}


def workload(kind="Deployment", replicas=3, spec=None, *, strategy=ONE_BY_ONE, **pod):
    """Three replicas; of a Deployment, one more may come and none may lack."""
    container = {"name": "c", "image": "x", **pod.pop("container", {})}
    template = {"metadata": {"labels": {"app": "gate"}}, "spec": {"containers": [container], **pod}}
    given = {"selector": OWN, "template": template, **(spec or {})}
    if kind != "DaemonSet":
        given["replicas"] = replicas
    if kind == "Deployment":
        given["strategy"] = strategy
    group = {"Rollout": "argoproj.io/v1alpha1", "CloneSet": "apps.kruise.io/v1alpha1"}
    metadata = {"name": "gate", "namespace": "q"}
    version = group.get(kind, "apps/v1")
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": given}


def apart(key=HOST, **term):
    required = [{"labelSelector": OWN, "topologyKey": key, **term}]
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"affinity": {"podAntiAffinity": anti}}


def ports(**port):
    return {"container": {"ports": [{"containerPort": 443, "hostPort": 443, **port}]}}


def spread(key=ZONE, when="DoNotSchedule", selector=OWN, **more):
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, **more}
    return {"topologySpreadConstraints": [{**constraint, "labelSelector": selector}]}


def node(name, *, labels=None, allocatable=ROOMY, **spec):
    own = {HOST: name, ZONE: name[0]} if labels is None else labels
    metadata = {"name": name, "labels": own}
    status = {"allocatable": allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def nodes(*names):
    return [node(name) for name in names]


def pod(name, where, *, namespace="q", labels=None, container=None):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {"app": "gate"}}
    spec = {"nodeName": where, "containers": [{"name": "c", "image": "x", **(container or {})}]}
    status = {"phase": "Running"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


THREE, FOUR = nodes("a1", "b1", "c1"), nodes("a1", "b1", "c1", "a2")
CORDONED = [*THREE, node("a2", unschedulable=True)]
TAINTED = [*THREE, node("a2", taints=[{"key": "gpu", "effect": "NoSchedule"}])]
KEYLESS = [*nodes("a1", "b1"), node("x", labels={})]
OTHER_HOLDS_PORT = pod("ingress", "a2", namespace="other", labels={"app": "in"}, **ports())
SMALL = {"cpu": "4", "memory": "8Gi", "pods": "20"}
ASKS = {"container": {"resources": {"requests": {"cpu": "3"}}}}
SMALL_NODES = [node(name, allocatable=SMALL) for name in ("a1", "b1", "c1")]
OLD = [pod(f"old-{name}", name, **ASKS) for name in ("a1", "b1", "c1")]

STUCK = {"RolloutDeadlock": "Error"}
MAY_WAIT = {"RolloutDeadlock": "Warning"}
TOO_FEW = {"TooFewDomains": "Error"}
SKEW = {"RolloutSkew": "Warning"}
SKEW_INFO = {"RolloutSkew": "Info"}
QUARTER = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
ONE_MAY_LACK = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
HASH = {"matchLabelKeys": ["pod-template-hash"]}
WIDER = {"matchLabels": {"team": "a"}}


def two_labels(**given):
    made = workload(**given)
    made["spec"]["template"]["metadata"]["labels"]["team"] = "a"
    made["spec"]["selector"] = {"matchLabels": {"app": "gate", "team": "a"}}
    return made


ALONE = {
    "anti-affinity": (workload(**apart()), MAY_WAIT),
    "anti-affinity, 25 % of 3": (workload(strategy=QUARTER, **apart()), MAY_WAIT),
    "anti-affinity, 25 % of 4": (workload(replicas=4, strategy=QUARTER, **apart()), {}),
    "anti-affinity, one may lack": (workload(strategy=ONE_MAY_LACK, **apart()), {}),
    "anti-affinity, one replica": (workload(replicas=1, **apart()), {"RolloutDeadlock": "Info"}),
    "anti-affinity by node, two": (workload(replicas=2, **apart()), {"RolloutDeadlock": "Info"}),
    "anti-affinity by zone, two": (workload(replicas=2, **apart(ZONE)), MAY_WAIT),
    "host port, two": (workload(replicas=2, **ports()), {"RolloutDeadlock": "Info"}),
    "anti-affinity of a revision": (workload(**apart(**HASH)), {}),
    "anti-affinity, Recreate": (workload(strategy={"type": "Recreate"}, **apart()), {}),
    "anti-affinity of a StatefulSet": (workload("StatefulSet", **apart()), {}),
    "host port": (workload(**ports()), MAY_WAIT),
    "host port, UDP": (workload(**ports(protocol="UDP")), MAY_WAIT),
    "host port, one may lack": (workload(strategy=ONE_MAY_LACK, **ports()), {}),
    "host network": (
        workload(hostNetwork=True, container={"ports": [{"containerPort": 80}]}),
        MAY_WAIT,
    ),
    "host network without ports": (workload(hostNetwork=True), {}),
    "a container's port": (workload(container={"ports": [{"containerPort": 80}]}), {}),
    "host port of a sidecar": (
        workload(
            initContainers=[
                {
                    "name": "s",
                    "image": "x",
                    "restartPolicy": "Always",
                    "ports": [{"containerPort": 9, "hostPort": 9}],
                }
            ]
        ),
        MAY_WAIT,
    ),
    "host port of a StatefulSet": (workload("StatefulSet", **ports()), {}),
    "host port of a Rollout": (
        workload("Rollout", spec={"strategy": {"canary": {"maxUnavailable": 0}}}, **ports()),
        MAY_WAIT,
    ),
    "host port of a DaemonSet that surges": (
        workload(
            "DaemonSet",
            spec={"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
            **ports(),
        ),
        STUCK,
    ),
    "host port of a DaemonSet": (workload("DaemonSet", **ports()), {}),
    "host port of a DaemonSet on delete": (
        workload(
            "DaemonSet",
            spec={"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"maxSurge": 1}}},
            **ports(),
        ),
        {},
    ),
    "hard": (workload(strategy=ONE_MAY_LACK, **spread()), SKEW),
    "hard, an unknown number": (
        workload(replicas=None, strategy=ONE_MAY_LACK, **spread()),
        SKEW,
    ),
    "hard by node, two replicas": (
        workload(replicas=2, strategy=QUARTER, **spread(HOST)),
        {"RolloutSkew": "Info", "RolloutDeadlock": "Info"},
    ),
    "hard by node, an unknown number": (
        workload(replicas=None, strategy=ONE_MAY_LACK, **spread(HOST)),
        SKEW_INFO,
    ),
    "hard by node, three replicas": (workload(**spread(HOST)), SKEW | MAY_WAIT),
    "soft": (workload(**spread(when="ScheduleAnyway")), SKEW_INFO),
    "soft, two of 25 %": (
        workload(replicas=2, strategy=QUARTER, **spread(when="ScheduleAnyway")),
        SKEW_INFO,
    ),
    "one replica": (workload(replicas=1, **spread()), {}),
    "no replica": (workload(replicas=0, **spread()), {}),
    "as many replicas as maxSkew": (
        workload(replicas=2, strategy=ONE_MAY_LACK, **spread(maxSkew=2)),
        {},
    ),
    "Recreate": (workload(strategy={"type": "Recreate"}, **spread()), {}),
    "no surge": (
        workload(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, **spread()),
        {},
    ),
    "one replica of several workloads": (
        two_labels(replicas=1, **spread(selector=WIDER)),
        SKEW_INFO,
    ),
    "of each revision": (workload(**spread(**HASH)), {}),
    "CloneSet in place": (
        workload("CloneSet", spec={"updateStrategy": {"type": "InPlaceIfPossible", "maxSurge": 1}}),
        {},
    ),
    "CloneSet that surges": (
        workload("CloneSet", spec={"updateStrategy": {"maxSurge": 1}}, **spread()),
        SKEW | MAY_WAIT,
    ),
    "DaemonSet that surges": (
        workload(
            "DaemonSet", spec={"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, **spread()
        ),
        {},
    ),
}


def found(command, tmp_path, manifest, state=None):
    (tmp_path / "given.json").write_text(json.dumps(manifest))
    arguments = ["lint", "-f", tmp_path / "given.json", "-o", "json"]
    if state is not None:
        listed = {"apiVersion": "v1", "kind": "List", "items": state}
        (tmp_path / "state.json").write_text(json.dumps(listed))
        arguments += ["--from", tmp_path / "state.json"]
    said = command(*arguments)
    items = [each for each in json.loads(said.out)["items"] if each["code"] in ROLLOUTS]
    assert said.code in (0, 1)
    if any(each["severity"] != "Info" for each in items):
        assert said.code == 1
    return items


def severities(items):
    return {each["code"]: each["severity"] for each in items}


@pytest.mark.parametrize(("manifest", "expected"), ALONE.values(), ids=ALONE)
def test_a_manifest_alone_gets_findings_on_its_rollout(bare, tmp_path, manifest, expected):
    assert severities(found(bare, tmp_path, manifest)) == expected


IN_CLUSTERS = {
    "as many nodes as replicas": (workload(**apart()), THREE, STUCK),
    "a node more": (workload(**apart()), FOUR, {}),
    "fewer nodes": (workload(**apart()), nodes("a1", "b1"), TOO_FEW),
    "one node, one replica": (workload(replicas=1, **apart()), nodes("a1"), STUCK),
    "one may lack": (workload(strategy=ONE_MAY_LACK, **apart()), THREE, {}),
    "fewer nodes, one may lack": (
        workload(strategy=ONE_MAY_LACK, **apart()),
        nodes("a1", "b1"),
        TOO_FEW,
    ),
    "fewer nodes, Recreate": (
        workload(strategy={"type": "Recreate"}, **apart()),
        nodes("a1", "b1"),
        TOO_FEW,
    ),
    "zones": (workload(**apart(ZONE)), FOUR, STUCK),
    "a zone more": (workload(**apart(ZONE)), nodes("a1", "b1", "c1", "d1"), {}),
    "the fourth node is cordoned": (workload(**apart()), CORDONED, STUCK),
    "the fourth node is tainted": (workload(**apart()), TAINTED, STUCK),
    "the taint is tolerated": (
        workload(**apart(), tolerations=[{"operator": "Exists"}]),
        TAINTED,
        {},
    ),
    "only some nodes are selected": (workload(**apart(), nodeSelector={ZONE: "a"}), FOUR, TOO_FEW),
    "a node without the key takes any": (workload(**apart()), KEYLESS, {}),
    "another workload's pod is kept away": (
        two_labels(**apart()),
        [*FOUR, pod("other", "a2")],
        STUCK,
    ),
    "its own pods run": (workload(**apart()), [*FOUR, *OLD], {}),
    "of another namespace": (workload(**apart()), [*FOUR, pod("other", "a2", namespace="x")], {}),
    "of each revision": (workload(**apart(**HASH)), THREE, {}),
    "of each revision, fewer nodes": (workload(**apart(**HASH)), nodes("a1", "b1"), TOO_FEW),
    "a StatefulSet": (workload("StatefulSet", **apart()), THREE, {}),
    "a StatefulSet, fewer nodes": (workload("StatefulSet", **apart()), nodes("a1"), TOO_FEW),
    "blue and green": (
        workload("Rollout", spec={"strategy": {"blueGreen": {}}}, **apart()),
        FOUR,
        STUCK,
    ),
    "an unknown number, as many as nodes run": (
        workload(replicas=None, **apart()),
        [*THREE, *OLD],
        STUCK,
    ),
    "an unknown number, none runs": (workload(replicas=None, **apart()), THREE, {}),
    "a canary": (
        workload("Rollout", spec={"strategy": {"canary": {"maxUnavailable": 0}}}, **apart()),
        FOUR,
        {},
    ),
    "a canary that gets traffic": (
        workload(
            "Rollout",
            spec={"strategy": {"canary": {"trafficRouting": {"istio": {}}}}},
            **apart(),
        ),
        FOUR,
        STUCK,
    ),
    "a canary whose stable pods go with its traffic": (
        workload(
            "Rollout",
            spec={
                "strategy": {
                    "canary": {"trafficRouting": {"istio": {}}, "dynamicStableScale": True}
                }
            },
            **apart(),
        ),
        FOUR,
        {},
    ),
    "a constraint of the key, too": (workload(**apart(), **spread(HOST, **HASH)), THREE, STUCK),
    "a constraint of another key": (workload(**apart(), **spread(**HASH)), THREE, STUCK),
    # Where the first old pod that goes is that of the full zone, the next new one has no node.
    "a constraint of another key, a node more": (
        workload(**apart(), **spread(**HASH)),
        FOUR,
        MAY_WAIT,
    ),
    "host ports": (workload(**ports()), THREE, STUCK),
    "host ports, running": (
        workload(**ports()),
        [*THREE, *(pod(f"old-{n}", n, **ports()) for n in ("a1", "b1", "c1"))],
        STUCK,
    ),
    "host ports, a node more": (workload(**ports()), FOUR, {}),
    "host ports, another pod has one": (workload(**ports()), [*FOUR, OTHER_HOLDS_PORT], STUCK),
    "host ports, another protocol": (
        workload(**ports(protocol="UDP")),
        [*FOUR, OTHER_HOLDS_PORT],
        {},
    ),
    "host ports, fewer nodes": (workload(replicas=4, **ports()), THREE, TOO_FEW),
    "host ports of a StatefulSet": (workload("StatefulSet", **ports()), THREE, {}),
    "host ports of a StatefulSet, fewer nodes": (
        workload("StatefulSet", 4, **ports()),
        THREE,
        TOO_FEW,
    ),
    "host ports of a ReplicaSet, fewer nodes": (
        workload("ReplicaSet", 4, **ports()),
        THREE,
        TOO_FEW,
    ),
    "host ports of a DaemonSet": (workload("DaemonSet", **ports()), THREE, {}),
    "full nodes": (
        workload(**spread(HOST, **HASH), **ASKS),
        [*SMALL_NODES, *OLD],
        MAY_WAIT,
    ),
    "full nodes, one may lack": (
        workload(**spread(HOST), strategy=ONE_MAY_LACK, **ASKS),
        [*SMALL_NODES, *OLD],
        SKEW,
    ),
    "by node, a node for each pod": (workload(**spread(HOST)), FOUR, {}),
    "by node, fewer nodes": (workload(**spread(HOST)), THREE, SKEW),
    "by node, fewer nodes and replicas": (workload(replicas=2, **spread(HOST)), THREE, {}),
    "by node, soft": (
        workload(**spread(HOST, "ScheduleAnyway")),
        FOUR,
        SKEW_INFO,
    ),
    "by node, one tainted": (
        workload(strategy=ONE_MAY_LACK, replicas=2, **spread(HOST)),
        [*nodes("a1", "b1"), node("c1", taints=[{"key": "gpu", "effect": "NoSchedule"}])],
        {},
    ),
    "roomy nodes": (workload(**spread(HOST, **HASH)), [*THREE, *OLD], {}),
}


@pytest.mark.parametrize(("manifest", "state", "expected"), IN_CLUSTERS.values(), ids=IN_CLUSTERS)
def test_a_cluster_shows_whether_the_rollout_ends(bare, tmp_path, manifest, state, expected):
    assert severities(found(bare, tmp_path, manifest, state)) == expected


DOWNTIME = {
    "one replica of several workloads": two_labels(replicas=1, **spread(selector=WIDER)),
    "one replica, anti-affinity": workload(replicas=1, **apart()),
    "one replica, host port": workload(replicas=1, **ports()),
    "all may lack": two_labels(
        strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}},
        **spread(selector=WIDER),
    ),
}


@pytest.mark.parametrize("manifest", DOWNTIME.values(), ids=DOWNTIME)
def test_no_advice_leaves_a_workload_without_pods(bare, tmp_path, manifest):
    items = found(bare, tmp_path, manifest)
    assert items
    for each in items:
        assert "maxSurge to 0" not in each["text"] + each["mend"]
        assert "maxUnavailable to" not in each["mend"]
