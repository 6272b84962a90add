"""Claims that are still to be made with their pods: gaps, whoever is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: a, labels: {kubernetes.io/hostname: a, zone: za}}
status: {allocatable: {cpu: "8", pods: "110"}, nodeInfo: {kubeletVersion: v1.37.2}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {kubernetes.io/hostname: b, zone: zb}}
status: {allocatable: {cpu: "8", pods: "110"}, nodeInfo: {kubeletVersion: v1.37.2}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: s}
provisioner: x.example.com
volumeBindingMode: WaitForFirstConsumer
---
"""
BOUND = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {claim}
  namespace: d
  ownerReferences: [{{apiVersion: v1, kind: Pod, name: p-1, uid: u-p-1, controller: true}}]
spec: {{volumeName: v, accessModes: [ReadWriteOnce], storageClassName: s}}
status: {{phase: Bound}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: v}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: s
  csi: {{driver: x, volumeHandle: h}}
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [
    {{key: zone, operator: In, values: [za]}}]}}]}}}}
status: {{phase: Bound}}
---
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: d
  uid: u-{name}
  labels: {{app: g}}
  ownerReferences: [{{apiVersion: apps/v1, kind: {owner}, name: p, uid: u9, controller: true}}]
spec:
  nodeName: {node}
  topologySpreadConstraints: [{{maxSkew: 1, topologyKey: kubernetes.io/hostname,
    whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: g}}}}}}]
  containers: [{{name: c, image: x}}]
  {more}
status: {{phase: {phase}, {status}}}
---
"""
EPHEMERAL = """volumes: [{name: data, ephemeral: {volumeClaimTemplate: {spec:
    {accessModes: [ReadWriteOnce], storageClassName: s,
     resources: {requests: {storage: 1Gi}}}}}}]"""
GENERATED = "resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]"
MADE = "resourceClaimStatuses: [{name: gpu, resourceClaimName: made}]"
DEVICES = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: made, namespace: d,
  ownerReferences: [{apiVersion: v1, kind: Pod, name: p-1, uid: u-p-1, controller: true}]}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
status: {allocation: {devices: {results: [{request: r, driver: x, pool: a, device: d0}]},
  nodeSelector: {nodeSelectorTerms: [
    {matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}
---
"""


def pod(
    name: str, more: str = "", node: str = "", status: str = "", owner: str = "ReplicaSet"
) -> str:
    phase = "Running" if node else "Pending"
    return POD.format(
        name=name, more=more, node=node or '""', status=status, phase=phase, owner=owner
    )


TWO = pod("p-1", EPHEMERAL, "a") + pod("p-2", EPHEMERAL, "a") + BOUND.format(claim="p-1-data")
DEVICE = pod("p-1", GENERATED, "a", MADE) + DEVICES
VOLUMES = ["volumes (claims that are made with the pod)"]
RESOURCES = ["resource claims (claims that are made with the pod)"]

ANEW = {
    "a drained pod's volume": (
        pod("p-1", EPHEMERAL, "a") + BOUND.format(claim="p-1-data"),
        ["simulate", "--drain", "a", "--reschedule"],
        ("placedPodCount", 1, VOLUMES),
    ),
    "a drained pod's devices": (
        DEVICE,
        ["simulate", "--drain", "a", "--reschedule"],
        ("placedPodCount", 1, RESOURCES),
    ),
    "a moved pod's volume": (
        pod("p-1", EPHEMERAL, "a") + BOUND.format(claim="p-1-data"),
        ["simulate", "d/p-1", "--delete-pod", "d/p-1", "--drain", "a"],
        ("placedPodCount", 1, VOLUMES),
    ),
    "a replacement's volume": (TWO, ["plan-rebalance"], ("evictionCount", 1, VOLUMES)),
    "a replacement's devices": (
        DEVICE + pod("p-2", GENERATED, "a"),
        ["plan-rebalance"],
        ("evictionCount", 1, RESOURCES),
    ),
    "another pod like one that runs": (
        pod("p-1", EPHEMERAL, "a") + BOUND.format(claim="p-1-data"),
        ["explain", "d/p-1"],
        ("fittingNodeCount", 1, VOLUMES),
    ),
    "devices of another pod like one that runs": (
        DEVICE,
        ["explain", "d/p-1"],
        ("fittingNodeCount", 1, RESOURCES),
    ),
}


def members(answer: Any, name: str) -> Iterator[Any]:
    """All members of a name in a document."""
    if isinstance(answer, list):
        for each in answer:
            yield from members(each, name)
    elif isinstance(answer, dict):
        for key, value in answer.items():
            if key == name:
                yield value
            yield from members(value, name)


@pytest.fixture
def asked(bare, tmp_path):
    """Asks about a state and manifests: a member of the answer, and the gaps about claims."""

    def ask(state, words, member, manifest=""):
        (tmp_path / "state.yaml").write_text(NODES + state)
        (tmp_path / "pod.yaml").write_text(manifest)
        given = ["-f", tmp_path / "pod.yaml"] if manifest else []
        found = bare(*words, *given, "--from", tmp_path / "state.yaml", "-o", "json")
        answer = json.loads(found.out)
        named = {gap for gaps in members(answer, "notModelled") for gap in gaps}
        claims = sorted(gap for gap in named if "made with" in gap or "placed before" in gap)
        return next(members(answer, member), None), claims

    return ask


@pytest.mark.parametrize("case", ANEW.values(), ids=ANEW)
def test_the_claims_of_a_pod_do_not_decide_about_its_successor(asked, case):
    state, words, (member, number, gaps) = case
    assert asked(state, words, member) == (number, gaps)


TEMPLATED = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: d}
spec:
  replicas: 2
  ordinals: {start: FIRST}
  template:
    metadata: {labels: {app: web}}
    spec: {nodeSelector: {zone: zb}, containers: [{name: c}]}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: s}}]
"""
DEPLOYMENT = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: w, namespace: d}}
spec:
  replicas: 2
  template:
    metadata: {{labels: {{app: w}}}}
    spec:
      containers: [{{name: c}}]
      {EPHEMERAL}
"""
OWN = "volumes: [{name: data, persistentVolumeClaim: {claimName: data-p-1}}]"

OF_WORKLOADS = {
    "a template's claims": (
        "",
        ["explain"],
        TEMPLATED.replace("FIRST", "0"),
        ("fittingNodeCount", 1, VOLUMES),
    ),
    "a template's claims, placed": (
        "",
        ["simulate"],
        TEMPLATED.replace("FIRST", "0"),
        ("placedPodCount", 2, VOLUMES),
    ),
    "a claim that is there decides about its pod": (
        BOUND.format(claim="data-web-1"),
        ["simulate"],
        TEMPLATED.replace("FIRST", "0"),
        ("placedPodCount", 1, VOLUMES),
    ),
    "and about it alone, where numbers begin higher": (
        BOUND.format(claim="data-web-1"),
        ["simulate"],
        TEMPLATED.replace("FIRST", "2"),
        ("placedPodCount", 2, VOLUMES),
    ),
    "not about one of no name": (
        BOUND.format(claim="data-web-0"),
        ["explain"],
        TEMPLATED.replace("FIRST", "0"),
        ("fittingNodeCount", 1, VOLUMES),
    ),
    "pods that are refused alike are asked one by one": (
        BOUND.format(claim="data-web-0"),
        ["simulate"],
        TEMPLATED.replace("FIRST", "0"),
        ("placedPodCount", 1, VOLUMES),
    ),
    "the next replica's": (
        pod("p-1", OWN, "a", owner="StatefulSet") + BOUND.format(claim="data-p-1"),
        ["explain", "statefulset/d/p"],
        "",
        ("fittingNodeCount", 1, VOLUMES),
    ),
    "ephemeral ones of pods without a name": (
        "",
        ["simulate"],
        DEPLOYMENT,
        ("placedPodCount", 2, VOLUMES),
    ),
    "ephemeral ones of copies of a pod": (
        "",
        ["simulate", "--replicas", "1"],
        pod("p-1", EPHEMERAL),
        ("placedPodCount", 1, VOLUMES),
    ),
}


@pytest.mark.parametrize("case", OF_WORKLOADS.values(), ids=OF_WORKLOADS)
def test_claims_that_a_workload_makes_with_its_pods_are_named(asked, case):
    state, words, manifest, (member, number, gaps) = case
    assert asked(state, words, member, manifest) == (number, gaps)


@pytest.mark.parametrize(
    ("more", "made"),
    [(EPHEMERAL, BOUND.format(claim="p-1-data")), (GENERATED, DEVICES)],
    ids=["ephemeral", "generated"],
)
def test_pending_pods_with_claims_of_their_own_are_explained_one_by_one(asked, more, made):
    pods = pod("p-1", more, status=MADE) + pod("p-2", more)
    groups, _ = asked(pods + made, ["explain", "--pending"], "items")
    found = [(each["pod"]["name"], each["podCount"], each["fits"]) for each in groups]
    assert sorted(found) == [("p-1", 1, True), ("p-2", 1, False)]


CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, namespace: d}}
spec: {{accessModes: [ReadWriteOnce], storageClassName: s,
  resources: {{requests: {{storage: 1Gi}}}}}}
---
"""
FREE = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: free}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: s,
  local: {path: /}}
status: {phase: Available}
---
"""
FREE_DEVICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME, namespace: d}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
---
"""
GPU = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "x"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s1}
spec: {driver: x, nodeName: a, pool: {name: a, generation: 1, resourceSliceCount: 1},
  devices: [{name: d0}]}
---
"""
TAKEN = ["volumes and devices that pods placed before take"]
TWO_CLAIMS = CLAIM.format(name="c-1") + CLAIM.format(name="c-2")


def mounting(name: str, claim: str) -> str:
    return pod(name, f"volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]")


def using(name: str, claim: str) -> str:
    return pod(name, f"resourceClaims: [{{name: gpu, resourceClaimName: {claim}}}]")


@pytest.mark.parametrize(
    ("state", "pods", "gaps"),
    [
        (TWO_CLAIMS + FREE, mounting("p-1", "c-1") + mounting("p-2", "c-2"), TAKEN),
        (TWO_CLAIMS, mounting("p-1", "c-1") + mounting("p-2", "c-2"), []),
        (TWO_CLAIMS, mounting("p-1", "c-1") + mounting("p-2", "c-1"), TAKEN),
        (TWO_CLAIMS + FREE, mounting("p-1", "c-1"), []),
        (
            GPU + FREE_DEVICE.replace("NAME", "g-1") + FREE_DEVICE.replace("NAME", "g-2"),
            using("p-1", "g-1") + using("p-2", "g-2"),
            TAKEN,
        ),
        (GPU + FREE_DEVICE.replace("NAME", "g-1"), using("p-1", "g-1"), []),
    ],
    ids=["volumes", "volumes to make", "a shared claim", "one pod", "devices", "one pod's devices"],
)
def test_volumes_and_devices_that_pods_placed_before_take_are_named(asked, state, pods, gaps):
    _, named = asked(state, ["simulate"], "placedPodCount", pods)
    assert named == gaps
