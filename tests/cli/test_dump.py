"""`topospread dump`: the state as a List that everything reads, with other names if asked."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.cli.manifests import CLUSTER, NOWHERE, POD
from tests.conformance.__main__ import command as conformance
from tests.conformance.recordings import settings_of
from tests.redis_server import ROOT
from tests.servers import served
from topospread.app.stores import open_store
from topospread.cli import manifest_files
from topospread.cli.anonymization import DROPPED, KEPT, Anonymizer
from topospread.cli.main import run
from topospread.store.api import scan_all
from topospread.store.model import Kind
from topospread_client import (
    Client,
    args_from_manifest,
    manifest_from_object,
    object_from_manifest,
    pod_from_manifest,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

RECORDED = ROOT / "tests" / "conformance" / "decisions.jsonl.gz"
LISTS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "replicationControllers": ("v1", "ReplicationController"),
    "replicaSets": ("apps/v1", "ReplicaSet"),
    "statefulSets": ("apps/v1", "StatefulSet"),
}
WORKLOADS = {"Service", "ReplicationController", "ReplicaSet", "StatefulSet"}
NAMES = ["node/a1", "node/a2", "node/b1", "service/shop/web"]
PODS = ["pod/shop/web-0", "pod/shop/web-1", "pod/shop/web-3"]


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin="---\n".join([CLUSTER, NOWHERE])).code == 0
    return topospread


def named(command, path):
    kinds = ("nodes", "services", "pods")
    return [line for kind in kinds for line in command("get", kind, "-o", "name", *path).lines]


@pytest.mark.parametrize("name", ["dump.json", "dump.yaml"])
def test_a_dump_is_the_state_wherever_it_is_read(loaded, bare, cluster, tmp_path, name):
    path = tmp_path / name
    said = loaded("dump", path)
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("7 objects at revision ")
    assert named(bare, ("--from", path)) == [*NAMES, *PODS]
    again = ("--cluster", f"{cluster}-b")
    assert loaded("apply", "-f", path, *again).code == 0
    assert named(loaded, again) == [*NAMES, *PODS]
    read = loaded("get", "pods", "-o", "json")
    assert (
        json.loads(bare("get", "pods", "-o", "json", "--from", path).out)["items"]
        == (json.loads(read.out)["items"])
    )


OTHERS = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: nightly
  namespace: shop
  ownerReferences:
    - {apiVersion: batch/v1, kind: CronJob, name: backup, uid: u-backup, controller: true}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old, namespace: shop, uid: u-old}
spec: {selector: {app: old}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: shop, uid: u-web, resourceVersion: "7"}
spec: {selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec: {selector: {matchExpressions: [{key: app, operator: In, values: [db]}]}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1, labels: {topology.kubernetes.io/zone: a}}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  claimRef: {namespace: shop, name: data-db-0, uid: u-1}
  csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]
status: {phase: Bound}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data-db-0
  namespace: shop
  uid: u-1
  annotations: {pv.kubernetes.io/bind-completed: "yes", other: gone}
spec: {storageClassName: fast, volumeName: pv-1, resources: {requests: {storage: 5Gi}}}
status: {phase: Bound}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: ebs.csi.aws.com
volumeBindingMode: WaitForFirstConsumer
allowedTopologies:
- matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [a, b]}]
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata:
  name: a1
  annotations: {storage.alpha.kubernetes.io/migrated-plugins: kubernetes.io/aws-ebs}
spec: {drivers: [{name: ebs.csi.aws.com, nodeID: i-1, allocatable: {count: 25}}]}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: ebs.csi.aws.com}
spec: {storageCapacity: true}
---
apiVersion: storage.k8s.io/v1
kind: CSIStorageCapacity
metadata: {name: c-1, namespace: kube-system}
storageClassName: fast
capacity: 100Gi
nodeTopology: {matchLabels: {topology.kubernetes.io/zone: a}}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: va-1}
spec: {attacher: ebs.csi.aws.com, nodeName: a1, source: {persistentVolumeName: pv-1}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: shop}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: shop}
spec:
  devices:
    requests:
    - {name: r, exactly: {deviceClassName: gpu.example.com, allocationMode: ExactCount, count: 1}}
    - {name: s, firstAvailable: [{name: a, deviceClassName: gpu.example.com}]}
    constraints: [{matchAttribute: gpu.example.com/family}]
status:
  allocation:
    devices: {results: [{request: r, driver: gpu.example.com, pool: a1, device: gpu-0}]}
    nodeSelector:
      nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a1]}]}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: slice-a1}
spec:
  driver: gpu.example.com
  nodeName: a1
  pool: {name: a1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1, taints: [{key: broken, effect: NoSchedule}]}]
"""
DETAILED = ROOT / "examples" / "cluster"


def stored(address, cluster):
    """What a store holds of a cluster, by key."""
    with closing(open_store(address, {})) as store:
        pages = (page for kind in Kind for page in scan_all(store, cluster, kind))
        return {each.key: each for page in pages for each in page}


def test_a_dump_moves_a_cluster_from_sqlite_to_redis(bare, tmp_path, redis_url):
    """Each object is stored as before; what is held for pods is not in a dump."""
    sqlite, path = f"sqlite://{tmp_path}/state.db", tmp_path / "state.json"
    with served(store=sqlite) as source, served(store=redis_url) as target:
        old, new = (("--cluster", "shop", "--address", each.address) for each in (source, target))
        for given in (("-f", DETAILED), ("-f", "-")):
            stdin = "---\n".join([CLUSTER, OTHERS])
            assert bare("apply", *given, *old, stdin=stdin).code == 0
        assert bare("reserve", "b1", "-f", "-", *old, stdin=POD).code == 0
        assert bare("dump", path, *old).code == 0
        # Replaced are the objects of the other store, too.
        assert bare("apply", "-f", "-", *new, stdin=NOWHERE).code == 0
        assert bare("apply", "--replace", "-f", path, *new).code == 0
        assert bare("get", "reservations", *new).lines[1:] == []
        assert len(bare("get", "reservations", *old).lines) == 2
    before, after = stored(sqlite, "shop"), stored(redis_url, "shop")
    held = {key for key in before if key.kind is Kind.RESERVATION}
    assert len(held) == 1
    # That all of a kind were written is new.
    after = {key: each for key, each in after.items() if key.kind is not Kind.PROGRESS}
    assert after == {key: each for key, each in before.items() if key not in held}
    assert {key.kind for key in after} == set(Kind) - {Kind.RESERVATION, Kind.PROGRESS}


def test_a_dump_sets_newer_objects_back_by_force(bare, tmp_path):
    sqlite, path = f"sqlite://{tmp_path}/state.db", tmp_path / "state.json"
    node = "apiVersion: v1\nkind: Node\nmetadata: {{name: a1, resourceVersion: '{}'}}\n"
    with served(store=sqlite) as server:
        to = ("--address", server.address)
        assert bare("apply", "-f", "-", *to, stdin=node.format(7)).code == 0
        before = stored(sqlite, "default")
        assert bare("dump", path, *to).code == 0
        assert bare("apply", "-f", "-", *to, stdin=node.format(8)).code == 0
        assert bare("apply", "--replace", "-f", path, *to).code == 0
        assert stored(sqlite, "default") != before
        assert bare("apply", "--replace", "--force", "-f", path, *to).code == 0
        assert stored(sqlite, "default") == before


def test_a_dump_says_of_what_cluster_and_revision_it_is(loaded, cluster):
    dumped = json.loads(loaded("dump", "-o", "json").out)
    revision = json.loads(loaded("get", "nodes", "-o", "json").out)["revision"]
    assert (dumped["cluster"], dumped["revision"]) == (cluster, revision)
    assert yaml.safe_load(loaded("dump", "-o", "yaml").out)["revision"] == revision


def test_a_dump_in_json_is_read_item_by_item(loaded, tmp_path, monkeypatch):
    assert loaded("dump", tmp_path / "dump.json").code == 0
    monkeypatch.setattr(manifest_files, "parts_of", None)
    found = list(manifest_files.stream([str(tmp_path / "dump.json")], lambda *_: None))
    assert len(found) == 7


OWN_LISTS = """
apiVersion: v1
kind: PersistentVolumeList
metadata: {resourceVersion: "7"}
items: []
---
apiVersion: storage.k8s.io/v1
kind: CSINodeList
metadata: {continue: more}
items: []
"""


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_list_of_its_own_says_that_a_kind_is_known(bare, tmp_path, form):
    """A List of kubectl says nothing of kinds that it has no object of, nor does a page."""
    paths = [tmp_path / name for name in (f"a.{form}", f"b.{form}", f"c.{form}")]
    for path, given in zip(paths, (CLUSTER, f"{CLUSTER}\n---{OWN_LISTS}", CLUSTER), strict=True):
        documents = list(yaml.safe_load_all(given))
        as_json = "\n".join(map(json.dumps, documents))
        path.write_text(as_json if form == "json" else yaml.safe_dump_all(documents))
    for path, expected in zip(paths, ([], ["PersistentVolumeList"], []), strict=True):
        dumped = bare("dump", "-o", "json", "--from", path)
        kinds = [each["kind"] for each in json.loads(dumped.out)["items"]]
        assert [kind for kind in kinds if kind.endswith("List")] == expected
        again = tmp_path / "again.json"
        again.write_text(dumped.out)
        assert (
            json.loads(bare("dump", "--from", again).out)["items"]
            == (json.loads(dumped.out)["items"])
        )


def test_a_namespace_has_the_nodes_with_it(loaded, tmp_path, bare):
    other = NOWHERE.replace("shop", "other")
    assert loaded("apply", "-f", "-", stdin=other).code == 0
    assert loaded("dump", "-n", "shop", tmp_path / "dump.json").code == 0
    assert named(bare, ("--from", tmp_path / "dump.json")) == [*NAMES, *PODS]


def test_a_dump_has_one_of_two_forms(loaded):
    said = loaded("dump", "-o", "name")
    assert (said.code, said.out) == (2, "")
    assert "a dump is json or yaml" in said.err


def test_a_file_that_cannot_be_written_is_an_error(loaded, tmp_path):
    said = loaded("dump", tmp_path / "none" / "dump.json")
    assert (said.code, "cannot be written" in said.err) == (2, True)


def test_an_anonymous_dump_has_no_name_or_value_of_the_cluster(loaded, tmp_path):
    text = loaded("dump", "--anonymize").out
    words = ("shop", "web", "a1", "b1", "rack", "cluster")
    assert [word for word in words if f'"{word}' in text or f"{word}-" in text] == []
    assert "topology.kubernetes.io/zone" in text
    assert text != loaded("dump", "--anonymize").out, "nobody can compute what stands for a name"


def test_a_dump_of_kubectl_is_made_anonymous_without_a_server(bare, tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    said = bare("dump", "--anonymize", "--from", tmp_path / "cluster.yaml", tmp_path / "dump.json")
    assert said.code == 0
    assert len(bare("get", "pods", "--from", tmp_path / "dump.json", "-o", "name").lines) == 2


def recorded() -> list[dict[str, Any]]:
    """Recorded decisions, with all that constraints, affinity and taints can say.

    Those with selectors that no API server lets into a cluster are left out: they would become
    valid ones.
    """
    with gzip.open(RECORDED, "rt") as file:
        cases = [json.loads(line) for line in file]
    possible = [case for case in cases if "/bad-" not in case["name"]]
    return [case for case in possible if "newError" not in case["expect"]][::12]


def objects_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"apiVersion": version, "kind": kind, **each}
        for member, (version, kind) in LISTS.items()
        for each in case["cluster"].get(member) or ()
    ]


def made(manifest: dict[str, Any]) -> ClusterObject:
    found = object_from_manifest(manifest)
    assert found is not None
    return found


def pod_of(manifest: dict[str, Any]) -> kubernetes_pb2.Pod:
    return pod_from_manifest({"kind": "Pod", **manifest})


def replaced_settings(case: dict[str, Any], replaced: Anonymizer) -> dict[str, Any]:
    """Settings of a case, with other topology keys."""
    if not case.get("args"):
        return settings_of(case)
    args = args_from_manifest(case["args"])
    for each in args.default_constraints:
        each.CopyFrom(replaced.anonymized(each))
    return {**settings_of(case), "args": args}


def verdicts(client, pod, settings) -> tuple[int, Any, Any]:
    """What an answer about a pod says but names: verdicts, and the counts of domains."""
    answer = client.explain_pod(pod, fit="node", skip_suggestions=True, settings=settings)
    counted: Counter[Any] = Counter()
    for each in answer.evaluation.verdict_counts:
        counted[each.verdict.code] += each.node_count
    spread = [
        sorted((domain.pod_count, domain.node_count) for domain in each.domains)
        for each in answer.explanation.constraints
    ]
    return answer.evaluation.feasible_node_count, counted, spread


def test_anonymous_clusters_have_the_verdicts_of_the_real_ones(address):
    checked: Counter[int] = Counter()
    for number, case in enumerate(recorded()):
        objects = [made(each) for each in objects_of(case)]
        incoming = pod_of(case["pod"])
        replaced = Anonymizer([*objects, incoming])
        settings = settings_of(case), replaced_settings(case, replaced)
        with (
            Client(address, cluster=f"real-{number}", timeout=60) as real,
            Client(address, cluster=f"anonymous-{number}", timeout=60) as anonymous,
        ):
            real.apply_objects(objects)
            anonymous.apply_objects([replaced.anonymized(each) for each in objects])
            pods = [each.pod for each in objects if each.HasField("pod")]
            for pod in [incoming, *pods[:4]]:
                found = verdicts(real, pod, settings[0])
                other = verdicts(anonymous, replaced.anonymized(pod), settings[1])
                assert other == found, case["name"]
                checked[len(found[1])] += 1
    assert checked.total() > 100
    assert checked[2] > 20, "nodes with different verdicts are among them"


def test_an_anonymous_cluster_has_the_report_of_the_real_one(bare, tmp_path):
    def report(path):
        said = bare("report", "-o", "json", "--from", path)
        found = json.loads(said.out)
        states = Counter(
            (each["state"], each["whenUnsatisfiable"], each["maxSkew"], each["skew"])
            for each in found["items"]
        )
        return said.code, found["totals"], states

    cluster = ROOT / "examples" / "explain" / "outage.yaml"
    other = tmp_path / "other.json"
    assert bare("dump", "--anonymize", "--from", cluster, other).code == 0
    assert report(other) == report(cluster)
    assert sum(report(cluster)[2].values()) > 0


def texts_of(message, where=""):
    """Each text of a message, with its field's name, or that of the map that it is a key of."""
    for field, value in message.ListFields():
        name = f"{message.DESCRIPTOR.name}.{field.name}"
        if isinstance(value, Message):
            yield from texts_of(value)
            continue
        for each in [value] if isinstance(value, str | bytes | int) else value:
            inner = value[each] if isinstance(value, Mapping) else each
            if isinstance(inner, Message):
                yield from texts_of(inner)
            elif isinstance(inner, str | bytes):
                yield name, inner
            if isinstance(value, Mapping):
                yield name, each


def filled(descriptor):
    """A message of which each field has a text that is a word of the cluster's owner."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        kind, target = field.message_type, getattr(message, field.name)
        if kind is not None and kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"].message_type
            if inner is None:
                target["acme.com/key"] = "acme"
            else:
                target["acme.com/key"].CopyFrom(filled(inner))
        elif kind is not None and field.is_repeated:
            target.append(filled(kind))
        elif kind is not None:
            target.CopyFrom(filled(kind))
        elif field.type in {field.TYPE_STRING, field.TYPE_BYTES}:
            word = "acme" if field.type == field.TYPE_STRING else b"acme"
            if field.is_repeated:
                target.append(word)
            else:
                setattr(message, field.name, word)
    return message


@pytest.mark.parametrize("kind", ["Node", "Pod", *sorted(WORKLOADS)])
def test_every_text_is_replaced_whose_field_is_not_listed(kind):
    """Also that of a field that is new: it is anonymous until somebody lists it."""
    given = filled(kubernetes_pb2.DESCRIPTOR.message_types_by_name[kind])
    found = list(texts_of(Anonymizer([given]).anonymized(given)))
    dropped = {f"{owner}.{name}" for owner, names in DROPPED.items() for name in names}
    kept = sorted(name for name, _ in texts_of(given) if name not in dropped)
    assert sorted(name for name, _ in found) == kept
    left = {name for name, text in found if "acme" in str(text)}
    types = kubernetes_pb2.DESCRIPTOR.message_types_by_name
    assert all(names <= set(types[owner].fields_by_name) for owner, names in KEPT.items())
    assert left <= {f"{owner}.{name}" for owner, names in KEPT.items() for name in names}
    assert len(found) > len(left) > 0


def test_numbers_that_are_compared_and_shared_words_stay():
    node = {
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "labels": {
                "kubernetes.io/hostname": "n1",
                "kubernetes.io/os": "linux",
                "acme.com/cores": "16",
                "acme.com/price": "16",
                "node-role.kubernetes.io/payments": "",
            },
        },
        "status": {"allocatable": {"cpu": "4", "acme.com/tpu": "1"}},
    }
    wanted = {"key": "acme.com/cores", "operator": "Gt", "values": ["8"]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"affinity": affinity}}
    given = [made(each) for each in (node, pod)]
    replaced = Anonymizer(given, key=b"for a test")
    written = [manifest_from_object(replaced.anonymized(each)) for each in given]
    labels = written[0]["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == replaced.text("n1")
    assert labels["kubernetes.io/os"] == "linux"
    assert labels[replaced.key("acme.com/cores")] == "16"
    assert labels[replaced.key("acme.com/price")] == replaced.text("16")
    text = json.dumps(written)
    assert '"8"' in text
    assert '"cpu": "4"' in text
    assert [word for word in ("acme", "payments", "tpu") if word in text] == []


def test_conformance_reads_a_dump_as_the_cluster_of_a_case(bare, capsys, tmp_path):
    with gzip.open(RECORDED, "rt") as file:
        case = json.loads(next(file))
    (tmp_path / "objects.json").write_text(json.dumps({"kind": "List", "items": objects_of(case)}))
    dumped = bare("dump", "--from", tmp_path / "objects.json")
    case["cluster"] = json.loads(dumped.out)
    (tmp_path / "case.json").write_text(json.dumps(case))
    code = run([str(tmp_path / "case.json")], conformance)
    said = capsys.readouterr()
    assert (code, said.out.splitlines()[-1]) == (0, "1 passed, 0 failed")


def test_a_folder_that_is_not_there_is_named(bare, tmp_path):
    (tmp_path / "state.yaml").write_text(CLUSTER)
    path = tmp_path / "none" / "dump.json"
    said = bare("dump", path, "--from", tmp_path / "state.yaml")
    text = f"topospread: {path}: cannot be written: there is no folder {tmp_path / 'none'}\n"
    assert (said.code, said.out, said.err) == (2, "", text)
