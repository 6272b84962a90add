"""What verbs print for programs: one document of the schema each, and errors as documents, too."""

from __future__ import annotations

import json
import socket

import pytest
import yaml

from tests.access.callers import AccessFile
from tests.cli.conftest import SCHEMA, check_document
from tests.cli.manifests import CLUSTER, NOWHERE, POD
from tests.servers import served
from tests.waiting import until
from topospread.cli.main import VERBS
from topospread_client import Client
from topospread_proto.v1.common_pb2 import KIND_POD, ResourceVersion

# Verb and arguments, what it reads, and which of the schema's kinds it prints.
ANSWERS = [
    (("apply", "-f", "-"), CLUSTER, "ObjectResultList"),
    (
        ("apply", "--replace", "-f", "-"),
        "kind: Node\nmetadata: {name: n}\n...\n",
        "ReplacementList",
    ),
    (("delete", "pod", "web-0", "-n", "shop"), "", "ObjectResultList"),
    (("get", "nodes"), "", "List"),
    (("get", "nodes", "-l", "none=such"), "", "List"),
    (("get", "workloads"), "", "List"),
    (("get", "pod", "web-0", "-n", "shop"), "", "KubernetesObject"),
    (("get", "reservations"), "", "ReservationList"),
    (("get", "constraints"), "", "ConstraintList"),
    (("get", "constraint/missing"), "", "Error"),
    (("report",), "", "ConstraintList"),
    (("report", "--state", "blocked", "--key", "missing"), "", "ConstraintList"),
    (("report", "--state", "bad"), "", "Error"),
    (("evaluate", "-f", "-"), POD, "EvaluationList"),
    (("evaluate", "-f", "-"), NOWHERE, "EvaluationList"),
    (("evaluate", "-f", "-"), POD.replace("DoNotSchedule", "ScheduleAnyway"), "EvaluationList"),
    (("explain", "-f", "-"), POD, "ExplanationList"),
    (("explain", "-f", "-"), NOWHERE, "ExplanationList"),
    (("explain", "-f", "-"), POD.replace("DoNotSchedule", "ScheduleAnyway"), "ExplanationList"),
    (("lint", "-f", "-"), NOWHERE.replace("app: web}}\n", "app: wen}}\n"), "LintFindingList"),
    (("explain", "--pending"), "", "PendingPodList"),
    (("place", "-f", "-"), POD, "PlacementList"),
    (("place", "-f", "-"), NOWHERE, "PlacementList"),
    (("reserve", "b1", "-f", "-"), POD, "PlacementList"),
    (("release", "shop/web-9"), "", "ReleaseList"),
    (("rank-deletions", "-l", "app=web", "-n", "shop"), "", "DeletionOrder"),
    (("simulate", "-f", "-", "--replicas", "3"), POD, "Simulation"),
    (("simulate", "-f", "-", "--drain", "b1=tainted"), NOWHERE, "Simulation"),
    (("plan-rebalance",), "", "RebalancePlan"),
    (("dump",), "", "List"),
    (("status",), "", "ServerStatus"),
    (("version",), "", "Version"),
    (("config", "check"), "", "ConfigurationCheck"),
    (("evaluate",), "", "Error"),
    (("evaluate", "shop/missing"), "", "Error"),
    (("evaluate", "-f", "-"), POD.replace("maxSkew: 1", "maxSkew: 0"), "Error"),
    (("apply", "-f", "-"), "kind: Pod\n metadata: x\n", "Error"),
    (("get", "nodes", "--cluster", "missing"), "", "Error"),
    (("status", "--address", "127.0.0.1:1"), "", "Error"),
]


@pytest.mark.parametrize(("arguments", "stdin", "kind"), ANSWERS, ids=str)
def test_each_verb_prints_documents_of_its_kind(loaded, arguments, stdin, kind):
    said = loaded(*arguments, "-o", "json", stdin=stdin)
    text = said.err.splitlines()[-1] if kind == "Error" else said.out
    document = json.loads(text)
    head = {"List": ("v1", "List"), "KubernetesObject": ("v1", "Pod")}
    expected = head.get(kind, ("topospread.io/v1", kind))
    assert (document["apiVersion"], document["kind"]) == expected
    check_document(document)
    if kind == "Error":
        assert (said.code > 0, said.out) == (True, "")
        return
    written = loaded(*arguments, "-o", "yaml", stdin=stdin)
    assert yaml.safe_load(written.out).keys() == document.keys()


def test_each_verb_that_prints_answers_is_tested():
    others = {
        *("serve", "token", "completion"),  # these print no answers
        "watch",  # test_watches.py
    }
    assert {arguments[0] for arguments, _, _ in ANSWERS} | others == set(VERBS)


def test_each_kind_of_the_schema_is_printed():
    kinds = {each["$ref"].rpartition("/")[2] for each in SCHEMA["oneOf"]}
    printed = {kind for _, _, kind in ANSWERS}
    # test_watches.py, and the transcripts of get and get-constraints
    elsewhere = {"WatchEvent", "ClusterDeletion", "ConstraintEvent", "ConstraintDescriptionList"}
    assert kinds - printed == elsewhere
    assert printed <= kinds


ABOUT_PODS = {
    "evaluate": "items",
    "explain": "items",
    "place": "items",
    "reserve b1": "items",
    "simulate": "pods",
}
WEB = {"name": "web-2", "namespace": "shop"}


@pytest.mark.parametrize("verb", ABOUT_PODS)
def test_pod_of_a_request_has_the_same_key_everywhere(loaded, verb):
    pod = POD.replace("name: web-2", "name: web-2, uid: u-2")
    assert pod != POD
    said = loaded(*verb.split(), "-f", "-", "-o", "json", stdin=pod)
    (item,) = json.loads(said.out)[ABOUT_PODS[verb]]
    assert item["pod"] == {**WEB, "uid": "u-2"}
    assert (item["kind"], item["source"]) == ("Pod", "standard input:1")
    assert loaded("apply", "-f", "-", stdin=POD).code == 0
    said = loaded(*verb.split(), "shop/web-2", "-o", "json")
    (item,) = json.loads(said.out)[ABOUT_PODS[verb]]
    assert item["pod"] == WEB
    assert item["kind"] == "Pod"
    assert "source" not in item


def test_reservation_has_the_same_key_everywhere(loaded):
    loaded("place", "-f", "-", stdin=POD)
    (held,) = json.loads(loaded("get", "reservations", "-o", "json").out)["items"]
    (released,) = json.loads(loaded("release", "shop/web-2", "-o", "json").out)["items"]
    assert held["pod"] == released["pod"] == WEB


def test_observed_versions_are_absent_until_known(loaded, address, cluster):
    def item():
        return json.loads(loaded("evaluate", "-f", "-", "-o", "json", stdin=POD).out)["items"][0]

    assert "observed" not in item()
    with Client(address, cluster=cluster) as client:
        seen = [ResourceVersion(kind=KIND_POD, resource_version="7")]
        client.apply_objects([], observed=seen)
    assert item()["observed"] == [{"kind": "Pod", "resourceVersion": "7"}]


def test_refusal_of_a_server_has_its_reason(loaded):
    bad = POD.replace("maxSkew: 1", "maxSkew: 0").replace("DoNotSchedule", "Never")
    said = loaded("evaluate", "-f", "-", "-o", "json", stdin=bad)
    error = json.loads(said.err)["error"]
    assert (error["code"], error["reason"]) == ("INVALID_ARGUMENT", "INVALID_FIELDS")
    assert [each["reason"] for each in error["violations"]] == [
        "FIELD_VALUE_INVALID",
        "FIELD_VALUE_NOT_SUPPORTED",
    ]
    field = "pod.object.spec.topologySpreadConstraints[0].maxSkew"
    assert error["violations"][0]["field"] == field
    lines = error["message"].split("\n")
    assert [line.split(": ")[:2] for line in lines] == [["standard input:1", "Pod shop/web-2"]] * 2
    about = {key: error["violations"][0][key] for key in ("pod", "kind", "source")}
    assert about == {"pod": WEB, "kind": "Pod", "source": "standard input:1"}
    missing = json.loads(loaded("evaluate", "shop/missing", "-o", "json").err)["error"]
    assert (missing["code"], missing["reason"]) == ("NOT_FOUND", "POD_NOT_FOUND")
    assert "retryAfter" not in missing


def test_error_has_the_metadata_of_its_reason(bare, tmp_path):
    access = AccessFile(tmp_path / "access.yaml", reader=["read"])
    token = tmp_path / "token"
    token.write_text(access.tokens["reader"].text)
    with served(access_file=str(access)) as server:
        to = ("--address", server.address, "--token-file", token, "-o", "json")
        error = json.loads(bare("delete", "pod", "x", *to).err)["error"]
    assert (error["code"], error["reason"]) == ("PERMISSION_DENIED", "ROLE_MISSING")
    assert error["metadata"] == {"role": "write"}
    with served(rate_limit=0.001, rate_burst=1) as server:
        once = ("get", "nodes", "--address", server.address, "-o", "json")
        bare(*once)
        error = json.loads(bare(*once).err)["error"]
    assert (error["code"], error["reason"]) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
    assert float(error["retryAfter"].removesuffix("s")) > 0


def test_deadline_has_its_reason_from_client_and_server(bare):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = bare("status", "--address", address, "--timeout", "0.3", "-o", "json")
    error = json.loads(said.err)["error"]
    assert (said.code, error["reason"]) == (3, error["code"]) == (3, "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("what", ["pods", "workloads", "reservations"])
def test_a_list_has_the_revision_that_it_was_read_at(loaded, what):
    written = json.loads(loaded("apply", "-f", "-", "-o", "json", stdin=POD).out)["revision"]

    def revision() -> str:
        return json.loads(loaded("get", what, "-o", "json").out)["revision"]

    # What comes from the newest snapshot at hand may be a moment behind the write.
    until(lambda: revision() == written, "a list at the revision of the write")
