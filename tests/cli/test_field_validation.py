"""What becomes of fields that Kubernetes does not have, by `--validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.manifests import CLUSTER, POD

if TYPE_CHECKING:
    from tests.cli.conftest import Command

MISSPELT = POD.replace("labelSelector:", "labelSelectors:")
PATH = "spec.topologySpreadConstraints[0].labelSelectors"
UNKNOWN = f'standard input:1: Pod shop/web-2: {PATH}: Unknown field: did you mean "labelSelector"?'
ADVICE = "Kubernetes 1.36 has no such fields; --validate=warn takes the manifests all the same"
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  replica: 3
  template:
    metadata: {labels: {app: web}}
    spec: {nodeSelectors: {}}
"""
VERBS = (
    ("apply", "-f", "-"),
    ("apply", "-f", "-", "--replace"),
    ("delete", "-f", "-"),
    ("evaluate", "-f", "-"),
    ("explain", "-f", "-"),
    ("place", "-f", "-"),
    ("reserve", "a1", "-f", "-"),
    ("simulate", "-f", "-"),
    ("rank-deletions", "-f", "-"),
)


@pytest.fixture
def loaded(topospread: Command) -> Command:
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_misspelt_fields_are_refused_by_every_verb_that_reads_manifests(loaded, verb):
    written = loaded("get", "pods", "-o", "json").out
    whole = "..." if "--replace" in verb else ""
    said = loaded(*verb, stdin=f"{MISSPELT}{whole}\n")
    assert said.code == 2
    assert said.err.splitlines() == [f"topospread: {UNKNOWN}", f"topospread: {ADVICE}"]
    assert said.out == ""
    assert loaded("get", "pods", "-o", "json").out == written


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("word", ["warn", "ignore", "false"])
def test_unknown_fields_may_be_taken_with_a_warning_or_without(loaded, verb, word):
    whole = "..." if "--replace" in verb else ""
    said = loaded(*verb, f"--validate={word}", stdin=f"{MISSPELT}{whole}\n")
    warned = [UNKNOWN, "Kubernetes 1.36 has no such fields; they are left out"]
    assert [line for line in said.err.splitlines() if "Kubernetes" in line or PATH in line] == (
        warned if word == "warn" else []
    )
    assert said.code == (2 if verb[0] == "delete" else 0), said.err


def test_true_means_strict_and_other_words_are_refused(loaded):
    assert loaded("apply", "-f", "-", "--validate=true", stdin=MISSPELT).code == 2
    said = loaded("apply", "-f", "-", "--validate=maybe", stdin=MISSPELT)
    assert said.code == 2
    assert "'maybe' is not one of 'strict', 'warn', 'ignore'" in said.err


def test_constraints_are_validated_unless_validation_is_ignored(loaded):
    bad = POD.replace("maxSkew: 1", "maxSkew: 0")
    for word, code in (("strict", 2), ("warn", 2), ("ignore", 1)):
        said = loaded("evaluate", "-f", "-", f"--validate={word}", "-o", "name", stdin=bad)
        assert said.code == code, word


def test_all_unknown_fields_of_all_objects_are_said_at_once(loaded):
    node = "kind: Node\nmetadata: {name: n, label: {}}\nspec: {unschedulable: 1}\n"
    said = loaded("apply", "-f", "-", stdin=f"{node}---\n{MISSPELT}---\n{DEPLOYMENT}")
    first = "topospread: standard input:1: Node n: "
    assert said.err.splitlines() == [
        f'{first}metadata.label: Unknown field: did you mean "labels"?',
        f"{first}spec.unschedulable: expected boolean, got number 1",
        f"topospread: {UNKNOWN.replace(':1:', ':5:')}",
        f"topospread: {ADVICE}",
    ], "a Deployment is not kept, and not looked at"


def test_many_unknown_fields_become_few_lines(loaded):
    node = "{kind: Node, metadata: {name: n%d}, specs: {}}"
    nodes = "\n---\n".join(node % number for number in range(30))
    for word, code in (("strict", 2), ("warn", 0)):
        said = loaded("apply", "-f", "-", f"--validate={word}", stdin=nodes)
        assert said.code == code
        lines = [line for line in said.err.splitlines() if "specs: Unknown field" in line]
        assert len(lines) == 20
        assert "… and 10 more" in said.err


def test_workloads_are_checked_with_the_pods_that_they_make(loaded):
    for verb in (("evaluate",), ("simulate",), ("rank-deletions",)):
        said = loaded(*verb, "-f", "-", stdin=DEPLOYMENT)
        assert said.code == 2
        where = "topospread: standard input:1: Deployment shop/web: spec."
        assert said.err.splitlines() == [
            f'{where}replica: Unknown field: did you mean "replicas"?',
            f'{where}template.spec.nodeSelectors: Unknown field: did you mean "nodeSelector"?',
            f"topospread: {ADVICE}",
        ]


def test_a_stateful_set_to_rank_is_warned_of_once(loaded):
    kept = DEPLOYMENT.replace("Deployment", "StatefulSet")
    said = loaded("rank-deletions", "-f", "-", "--validate=warn", stdin=kept)
    assert said.err.count("spec.replica:") == 1


def test_files_of_simulated_changes_are_checked(loaded, tmp_path):
    node = tmp_path / "node.yaml"
    node.write_text(
        "kind: Node\nmetadata: {name: n, labels: {topology.kubernetes.io/zone: z}}\n"
        "status: {allocateable: {cpu: 1}}\n"
    )
    pods = tmp_path / "pods.yaml"
    pods.write_text(f"{MISSPELT}  nodeName: a1\n")
    for option, said_of in ((("--add-nodes", node), "allocateable"), (("--add-pods", pods), PATH)):
        said = loaded("simulate", "-f", "-", *option, stdin=POD)
        assert said.code == 2
        assert said_of in said.err
        assert loaded("simulate", "-f", "-", *option, "--validate=ignore", stdin=POD).code == 0


def test_unknown_fields_are_one_error_document(loaded):
    said = loaded("apply", "-f", "-", "-o", "json", stdin=MISSPELT)
    assert said.code == 2
    assert '"reason": "BAD_INPUT"' in said.err
    assert PATH in said.err
