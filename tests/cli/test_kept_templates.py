"""Rollouts that leave pods as they are, and those of one file: simulate and lint say the same."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from tests.cli.owned import HASH, documents, nodes, pod_of, spread, workload

OTHER = [spread(maxSkew=2)]
NODES = nodes("a1", "b1", "c1")
DB = [pod_of("StatefulSet/db", f"db-{each}", f"{'abc'[each]}1") for each in range(3)]
WEB = [pod_of("CloneSet/web", f"web-{each}", f"{'abc'[each]}1") for each in range(3)]


def db(**strategy):
    return workload("StatefulSet", "db", constraints=OTHER, replicas=3, updateStrategy=strategy)


def web(partition):
    strategy = {"partition": partition}
    return workload("CloneSet", "web", constraints=OTHER, replicas=3, updateStrategy=strategy)


@pytest.fixture
def said(bare, tmp_path, monkeypatch):
    """What simulate says of manifests, and both exit codes."""

    def say(pods, *manifests, state=NODES):
        (tmp_path / "state.yaml").write_text(documents(*state, *pods), encoding="utf-8")
        (tmp_path / "w.yaml").write_text(documents(*manifests), encoding="utf-8")
        simulated = bare("simulate", "-f", "w.yaml", "--from", "state.yaml", "-o", "json")
        linted = bare("lint", "-f", "w.yaml", "--from", "state.yaml", "--severity", "warning")
        return json.loads(simulated.out), simulated.code, linted

    monkeypatch.chdir(tmp_path)
    return say


KEPT = {
    # pods, the manifest, names that are made
    "all, by a partition": (DB, db(rollingUpdate={"partition": 3}), []),
    "all, by a larger partition": (DB, db(rollingUpdate={"partition": 7}), []),
    "those below a partition": (DB, db(rollingUpdate={"partition": 1}), ["db-1", "db-2"]),
    "none": (DB, db(rollingUpdate={"partition": 0}), ["db-0", "db-1", "db-2"]),
    "one below a partition is missing": (
        DB[1:],
        db(rollingUpdate={"partition": 2}),
        ["db-0", "db-2"],
    ),
    "all, until they are deleted": (DB, db(type="OnDelete"), []),
    "all but one that is missing": (DB[:2], db(type="OnDelete"), ["db-2"]),
    "two of a CloneSet": (WEB, web(2), ["web-2"]),
    "a share of a CloneSet": (WEB, web("50%"), ["web-2"]),
    "all but one, as 90% is not all": (WEB, web("90%"), ["web-2"]),
    "all of a CloneSet": (WEB, web("100%"), []),
}


@pytest.mark.parametrize("case", KEPT)
def test_pods_that_a_rollout_keeps_stay_where_they_are(said, case):
    pods, manifest, made = KEPT[case]
    found, code, _ = said(pods, manifest)
    assert sorted(each["pod"]["name"] for each in found.get("placements", ())) == made
    (of,) = found["workloads"]
    assert of["changedFields"]
    if not made:
        assert "rollout" not in of
    assert code == 0


FULL = nodes("a1", "b1", "c1")
for each in FULL:
    each["status"] = {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "1"}}


@pytest.mark.parametrize(
    "strategy", [{"type": "OnDelete"}, {"rollingUpdate": {"partition": 3}}], ids=str
)
def test_where_none_is_replaced_none_needs_capacity(said, strategy):
    """The new template asks for more than any node has."""
    manifest = db(**strategy)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "64"}}
    found, code, linted = said(DB, manifest, state=FULL)
    assert (code, linted.code) == (0, 0), linted.out
    assert found["pendingPodCount"] == 0


# ------------------------------ rollouts of one file


def test_the_order_in_a_file_does_not_decide_what_becomes_of_a_rollout(said, monkeypatch):
    """Each has as many states as the others, however few there are for all."""
    monkeypatch.setattr("topospread.service.simulation.rollouts._ALL_STATES", 24)
    pods, manifests = [], []
    for name, count in (("x", 6), ("y", 6), ("z", 6)):
        for number in range(count):
            on = f"{'abc'[number % 3]}1"
            owner = f"ReplicaSet/{name}-5d8f"
            labels = {HASH: "5d8f"}
            pods.append(pod_of(owner, f"{name}-5d8f-{number}", on, labels=labels))
        rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        manifests.append(workload("Deployment", name, constraints=[spread()], replicas=count))
        manifests[-1]["spec"]["strategy"] = rolling
    tight = nodes("a1", "b1", "c1")
    for each in tight:
        each["status"] = {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "7"}}
    seen = []
    for order in permutations(manifests):
        found, _, _ = said(pods, *order, state=tight)
        texts = {of["workload"]["name"]: of["rollout"] for of in found["workloads"]}
        seen.append(texts)
    assert all(each == seen[0] for each in seen)
