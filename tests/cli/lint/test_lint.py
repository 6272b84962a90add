"""`topospread lint`: options, places, forms and exit codes."""

from __future__ import annotations

import json

import pytest

from tests.cli.manifests import CLUSTER, POD
from topospread.spread.linting.engine import RULES

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web}]
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: web}}
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: wen}}
"""
"""A warning on the first constraint, an error on the second."""

CLEAN = POD

TAINTED = """\
apiVersion: v1
kind: Node
metadata: {name: c1, labels: {topology.kubernetes.io/zone: c}}
spec: {taints: [{key: out, effect: NoSchedule}]}
"""
"""A third zone, whose node takes no pod."""


def codes(said) -> list[str]:
    return [each["code"] for each in json.loads(said.out)["items"]]


def test_a_clean_manifest_ends_with_0(bare):
    said = bare("lint", "-f", "-", stdin=CLEAN)
    assert (said.code, said.out, said.err) == (0, "", "no findings in 1 workload\n")


def test_findings_show_the_file_and_the_line_of_the_constraint(bare, tmp_path):
    (tmp_path / "web.yaml").write_text(f"{CLEAN}---\n{WEB}")
    said = bare("lint", "-f", tmp_path)
    assert said.code == 1
    first = len(CLEAN.splitlines()) + 1
    at = [line.split(": ")[:2] for line in said.lines]
    assert at == [
        [f"{tmp_path}/web.yaml:{first + 12}", "warning RolloutSkew"],
        [f"{tmp_path}/web.yaml:{first + 16}", "error SelfMismatch"],
    ]
    assert said.err == "1 error, 1 warning in 2 workloads\n"


def test_items_of_a_list_have_lines_of_their_own(bare):
    body = "".join(f"  {line}\n" for line in WEB.splitlines())
    listed = f"apiVersion: v1\nkind: List\nitems:\n- {body[2:]}"
    said = bare("lint", "-f", "-", "-o", "json", stdin=listed)
    assert [each["line"] for each in json.loads(said.out)["items"]] == [15, 19]


def test_json_input_has_the_line_of_its_object(bare):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        },
    }
    said = bare("lint", "-f", "-", "-o", "json", stdin=f"\n\n{json.dumps(pod)}")
    assert [each["line"] for each in json.loads(said.out)["items"]] == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "code", "found"),
    [
        ([], 1, ["RolloutSkew", "SelfMismatch"]),
        (["--severity", "error"], 1, ["SelfMismatch"]),
        (["--fail-on", "never"], 0, ["RolloutSkew", "SelfMismatch"]),
        (["--ignore", "selfmismatch"], 1, ["RolloutSkew"]),
        (["--ignore", "SelfMismatch", "--fail-on", "error"], 0, ["RolloutSkew"]),
        (["--ignore", "SelfMismatch,RolloutSkew"], 0, []),
        (["--ignore", "SelfMismatch", "--ignore", "RolloutSkew"], 0, []),
    ],
)
def test_options_choose_what_is_shown_and_what_fails(bare, arguments, code, found):
    said = bare("lint", "-f", "-", "-o", "json", *arguments, stdin=WEB)
    assert (said.code, codes(said)) == (code, found)


def test_an_annotation_silences_codes_of_its_object_alone(bare):
    note = "annotations: {topospread.io/ignore: 'RolloutSkew, SelfMismatch'}"
    silent = WEB.replace("namespace: shop}", f"namespace: shop, {note}}}")
    said = bare("lint", "-f", "-", "-o", "json", stdin=f"{silent}---\n{WEB}")
    assert codes(said) == ["RolloutSkew", "SelfMismatch"]


def test_an_annotation_with_an_unknown_code_is_warned_of(bare):
    note = "annotations: {topospread.io/ignore: SelfMissmatch}"
    said = bare(
        "lint", "-f", "-", stdin=WEB.replace("namespace: shop}", f"namespace: shop, {note}}}")
    )
    assert said.code == 1
    warning, _ = said.err.splitlines()
    assert warning == (
        "standard input:1: Deployment shop/web: topospread.io/ignore: there is no code "
        "'selfmissmatch'. Did you mean 'SelfMismatch'?"
    )


def test_an_unknown_code_is_refused_with_its_likeness(bare):
    said = bare("lint", "-f", "-", "--ignore", "SelfMissmatch", stdin=WEB)
    assert said.code == 2
    assert "Did you mean 'SelfMismatch'?" in said.err


def test_a_form_that_lint_does_not_print_is_refused(bare):
    said = bare("-o", "name", "lint", "-f", "-", stdin=WEB)
    assert said.code == 2
    assert "lint prints table, json" in said.err


def test_manifests_that_cannot_be_read_end_with_2(bare):
    said = bare(
        "lint",
        "-f",
        "-",
        stdin=WEB.replace(
            "replicas: 4", "replicas: 4\n  strategy: {rollingUpdate: {maxSurge: many}}"
        ),
    )
    assert (said.code, said.out) == (2, "")
    assert "standard input:1: Deployment shop/web: maxSurge: must be a number of pods" in said.err


def test_other_objects_and_what_controllers_made_are_skipped(bare):
    owner = "ownerReferences: [{kind: ReplicaSet, name: web, controller: true}]"
    made = WEB.replace("namespace: shop}", f"namespace: shop, {owner}}}")
    said = bare("lint", "-f", "-", stdin=f"{CLUSTER}---\n{made}")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("skipped: 1 ConfigMap, 1 Deployment, 3 Node, 1 Service (no pod")


PATCH = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: web}}
"""
KUSTOMIZATION = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
patches: [{path: patch.yaml}]
"""


def test_patches_and_what_kustomize_reads_are_skipped_with_a_hint(bare, tmp_path):
    (tmp_path / "kustomization.yaml").write_text(KUSTOMIZATION)
    (tmp_path / "patch.yaml").write_text(PATCH)
    said = bare("lint", "-f", tmp_path)
    assert (said.code, said.out) == (0, "")
    build = "lint the output of `kustomize build`"
    assert said.err.splitlines()[:2] == [
        f"skipped: 1 Kustomization ({build})",
        f"skipped: 1 Deployment (looks like a patch, without a selector or containers: {build})",
    ]


def test_workloads_that_are_broken_end_with_2_and_are_all_named(bare):
    broken = [
        WEB.replace("replicas: 4", "replicas: three"),
        WEB.replace("replicas: 4", "replicas: 99999999999999999999"),
        WEB[: WEB.index("spec:")],
        f"{WEB[: WEB.index('  template:')]}  template: foo\n",
    ]
    said = bare("lint", "-f", "-", stdin="---\n".join([WEB, *broken]))
    assert (said.code, said.out) == (2, "")
    for path in ("spec.replicas: must", "spec.template: required", "spec.template: expected"):
        assert f": Deployment shop/web: {path}" in said.err
    assert len(said.err.splitlines()) == 4


@pytest.mark.parametrize(
    ("kind", "version"), [("Rollout", "argoproj.io/v1alpha1"), ("DaemonSet", "apps/v1")]
)
def test_objects_with_a_pod_template_are_looked_at(bare, kind, version):
    manifest = WEB.replace("kind: Deployment", f"kind: {kind}").replace("apps/v1", version)
    said = bare("lint", "-f", "-", "-o", "json", stdin=manifest)
    assert "SelfMismatch" in codes(said)
    assert ("RolloutSkew" in codes(said)) == (kind == "Rollout")


def test_github_gets_workflow_commands(bare, tmp_path):
    (tmp_path / "a,b.yaml").write_text(WEB.replace("maxSkew: 1", "maxSkew: 1", 1))
    said = bare("lint", "-f", tmp_path / "a,b.yaml", "-o", "github")
    assert said.code == 1
    assert said.lines[1].startswith(
        f"::error file={tmp_path}/a%2Cb.yaml,line=16,title=SelfMismatch::Deployment shop/web: "
    )
    assert said.lines[0].startswith("::warning file=")


def test_texts_of_manifests_start_no_workflow_command(bare):
    said = bare(
        "lint",
        "-f",
        "-",
        "-o",
        "github",
        stdin=WEB.replace("name: web,", r'name: "a\n::error::b%",'),
    )
    assert len(said.lines) == 2
    assert all(r"Deployment shop/a\n::error::b%25: " in line for line in said.lines)


def test_sarif_has_each_rule_and_each_finding(bare, tmp_path):
    (tmp_path / "my web.yaml").write_text(WEB)
    said = bare("lint", "-f", tmp_path, "-o", "sarif")
    assert said.code == 1
    log = json.loads(said.out)
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == [rule.code for rule in RULES.values()]
    assert {"id", "shortDescription", "help", "helpUri", "defaultConfiguration"} == set(
        driver["rules"][0]
    )
    found = [
        (
            driver["rules"][each["ruleIndex"]]["id"] == each["ruleId"],
            each["ruleId"],
            each["level"],
            each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            each["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for each in run["results"]
    ]
    file = f"{tmp_path}/my%20web.yaml"
    assert found == [
        (True, "RolloutSkew", "warning", file, 12),
        (True, "SelfMismatch", "error", file, 16),
    ]
    assert all(each["message"]["text"] for each in run["results"])


class TestOfACluster:
    """With a server."""

    @pytest.fixture
    def loaded(self, topospread):
        assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
        return topospread

    def test_nothing_is_asked_of_a_server_unless_it_is_named(self, bare):
        assert bare("lint", "-f", "-", stdin=CLEAN).code == 0

    def test_a_server_that_does_not_answer_ends_with_3(self, bare):
        said = bare("lint", "-f", "-", "--address", "127.0.0.1:1", stdin=CLEAN)
        assert said.code == 3

    def test_keys_that_no_node_has_are_found(self, loaded):
        rack = CLEAN.replace("topology.kubernetes.io/zone", "example.com/rack")
        assert codes(loaded("lint", "-f", "-", "-o", "json", stdin=rack)) == []
        said = loaded("lint", "-f", "-", "-o", "json", "--live", stdin=rack)
        assert (said.code, codes(said)) == (1, ["KeyOnNoNode"])

    def test_a_rollout_that_has_places_is_no_deadlock(self, loaded):
        three = WEB.replace("replicas: 4", "replicas: 3").replace("app: wen", "app: web")
        assert "RolloutDeadlock" in codes(loaded("lint", "-f", "-", "-o", "json", stdin=three))
        said = loaded("lint", "-f", "-", "-o", "json", "--live", stdin=three)
        assert "RolloutDeadlock" not in codes(said)

    def test_a_rollout_without_a_place_is_an_error(self, loaded):
        assert loaded("apply", "-f", "-", stdin=TAINTED).code == 0
        two = WEB.replace("replicas: 4", "replicas: 2")
        said = loaded("lint", "-f", "-", "-o", "json", "--live", stdin=two)
        found = {each["code"]: each for each in json.loads(said.out)["items"]}
        assert found["RolloutDeadlock"]["severity"] == "Error"
        assert "all 2 are taken, as 1 of 3 domains" in found["RolloutDeadlock"]["text"]
        assert "TooFewDomains" not in found
        four = loaded("lint", "-f", "-", "-o", "json", "--live", stdin=WEB)
        found = {each["code"]: each for each in json.loads(four.out)["items"]}
        assert found["TooFewDomains"]["text"].startswith("2 of 4 replicas find a place")

    def test_a_state_is_asked_about_the_pod_of_a_job_with_its_name(self, loaded):
        zones = "".join(
            f"""\
---
apiVersion: v1
kind: Pod
metadata: {{name: old-{zone}, namespace: shop, labels: {{app: web, job-name: old}}}}
spec: {{nodeName: {zone}1}}
"""
            for zone in "bc"
        )
        assert loaded("apply", "-f", "-", stdin=f"{TAINTED}{zones}").code == 0
        job = """\
apiVersion: batch/v1
kind: Job
metadata: {name: new, namespace: shop}
spec:
  parallelism: 4
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web}]
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: web}}
"""
        all_jobs = loaded("lint", "-f", "-", "-o", "json", "--live", stdin=job)
        assert codes(all_jobs) == ["UnusableNodesCounted"]
        own = f"{job}        matchLabelKeys: [job-name]\n"
        said = loaded("lint", "-f", "-", "-o", "json", "--live", stdin=own)
        assert codes(said) == ["TooFewDomains", "UnusableNodesCounted"]
