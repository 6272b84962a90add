"""GitHub's files: they parse, name what exists, ask for little, and use what is pinned."""

from __future__ import annotations

import json
import re
import shlex
import tomllib

import pytest

from tests.deploy.files import ROOT, parsed

FOLDER = ROOT / ".github"
WORKFLOWS = {path.name: parsed(path) for path in sorted((FOLDER / "workflows").glob("*.yml"))}
JOBS = {
    f"{name}:{job}": found
    for name, workflow in WORKFLOWS.items()
    for job, found in workflow["jobs"].items()
}
STEPS = [(name, step) for name, job in JOBS.items() for step in job.get("steps", ())]
TARGETS = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)
MAY_WRITE = {
    ("release.yml:build", "id-token"),
    ("release.yml:build", "attestations"),
    ("release.yml:publish", "id-token"),
    ("release.yml:image", "id-token"),
    ("release.yml:image", "attestations"),
    ("release.yml:image", "packages"),
    ("release.yml:announce", "contents"),
    ("codeql.yml:analyze", "security-events"),
}


def matrix_values(job, key):
    matrix = job.get("strategy", {}).get("matrix", {})
    return [*matrix.get(key, ()), *(each[key] for each in matrix.get("include", ()) if key in each)]


def commands(step):
    for line in step.get("run", "").replace("\\\n", " ").splitlines():
        yield shlex.split(line, comments=True)


def test_targets_of_make_exist():
    found = set()
    for name, step in STEPS:
        for words in commands(step):
            if words[:1] != ["make"]:
                continue
            target = words[1]
            for versions in matrix_values(JOBS[name], "versions"):
                found.add(target.replace("$VERSIONS", versions))
            if "$" not in target:
                found.add(target)
    assert found <= TARGETS
    assert {"lint", "test", "test-lowest", "test-newest", "dist", "docs-site", "coverage"} <= found


def test_folders_of_tests_exist():
    for _, step in STEPS:
        for folder in re.findall(r"\btests/\w+", step.get("run", "")):
            assert (ROOT / folder).is_dir(), folder


def test_all_pythons_that_the_package_names_are_tested():
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    named = {f"3.{c.removeprefix(prefix)}" for c in supported["classifiers"] if prefix in c}
    assert named <= set(matrix_values(JOBS["ci.yml:test"], "python"))
    assert matrix_values(JOBS["ci.yml:test"], "python")[0] == "3.11"


def test_the_oldest_redis_is_tested():
    assert matrix_values(JOBS["ci.yml:redis"], "redis")[0] == "6.2"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_may_read_only_and_runs_once_a_branch(name):
    assert WORKFLOWS[name]["permissions"] in ({}, {"contents": "read"})
    assert WORKFLOWS[name]["concurrency"]["group"]


@pytest.mark.parametrize("name", JOBS)
def test_job_writes_what_it_must_and_ends(name):
    job = JOBS[name]
    granted = {(name, what) for what, how in job.get("permissions", {}).items() if how == "write"}
    assert granted <= MAY_WRITE
    assert "uses" in job or job["timeout-minutes"] <= 60


def test_every_job_is_needed_for_a_change_to_pass():
    jobs = WORKFLOWS["ci.yml"]["jobs"]
    assert set(jobs["passed"]["needs"]) == set(jobs) - {"passed"}


def test_actions_are_pinned_by_commit_and_say_their_version():
    for path in (FOLDER / "workflows").glob("*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "uses:" in line and "uses: ./" not in line:
                assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_no_checkout_leaves_its_token_behind():
    for _, step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_dependabot_looks_into_folders_that_exist():
    for update in parsed(FOLDER / "dependabot.yml")["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.lstrip("/")).is_dir(), folder


def test_issue_forms_have_fields():
    for path in (FOLDER / "ISSUE_TEMPLATE").glob("*.yml"):
        form = parsed(path)
        if path.name != "config.yml":
            assert {"name", "description", "body"} <= set(form)
            ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
            assert len(ids) == len(set(ids))


def test_hooks_run_programs_of_the_checkout():
    (repository,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].startswith((".venv/bin/", "tools/"))


def test_the_container_of_an_editor_runs_targets_that_exist():
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8")
    found = json.loads(re.sub(r"^//.*$", "", text, flags=re.MULTILINE))
    targets = found["postCreateCommand"].rpartition("&& make ")[2].split()
    assert targets
    assert set(targets) <= TARGETS
