"""Rollouts that real controllers carry out, beside what lint and simulate tell of them before."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from bench.campaigns.campaign import Outcome, campaign, run, seed_option
from bench.campaigns.kube_scheduler import HOST, ZONE, Cluster, binaries_option, node
from bench.campaigns.kubelets import Kubelets

APPS: Final = "/apis/apps/v1/namespaces"
STILL: Final = 12.0
"""Seconds without a change after which a rollout waits."""

PATIENCE: Final = 120.0
AT_ONCE: Final = 4
HASH: Final = "pod-template-hash"

CHANGES: Final = ("image", "label", "request")
AFTERWARDS: Final = ("nothing", "nothing", "tainted", "filled")


@dataclass(slots=True)
class Trial:
    """A Deployment on nodes of its own, and how its template changes.

    Attributes:
        said: the verdicts of lint and of simulate.
        became: what came of it.
    """

    number: int
    nodes: list[dict[str, Any]]
    manifest: dict[str, Any]
    afterwards: str
    change: str
    said: dict[str, str] = field(default_factory=dict)
    became: str = ""

    @property
    def name(self) -> str:
        """Of its namespace, and of the label of its nodes."""
        return f"trial-{self.number}"

    @property
    def path(self) -> str:
        """Of the Deployment."""
        return f"{APPS}/{self.name}/deployments/web"

    @property
    def changed(self) -> dict[str, Any]:
        """The manifest that is rolled out."""
        made: dict[str, Any] = json.loads(json.dumps(self.manifest))
        template = made["spec"]["template"]
        (container,) = template["spec"]["containers"]
        container["image"] = "v2"
        if self.change == "label":
            template["metadata"]["labels"]["version"] = "2"
        if self.change == "request":
            container["resources"]["requests"]["memory"] = "48Mi"
        return made

    @property
    def prediction(self) -> str:
        """What was told, once where both agree."""
        return " / ".join(dict.fromkeys(self.said.values()))


def drawn(number: int, seed: int) -> Trial:
    """One trial of chance."""
    chance = random.Random(f"{seed}-{number}")
    trial = Trial(number, [], {}, chance.choice(AFTERWARDS), chance.choice(CHANGES))
    zones, replicas = chance.randint(2, 3), chance.randint(2, 6)
    # Room for all replicas, and for few more: where there is more, all of them complete.
    cpu = f"{-(-replicas // zones) + chance.choice([0, 0, 1])}200m"
    for at in range(zones + chance.randint(0, 1)):
        made = node(f"n{number}-{at}", f"zone-{'abc'[at % zones]}", cpu)
        made["metadata"]["labels"]["trial"] = trial.name
        trial.nodes.append(made)
    surge, unavailable = chance.choice([(1, 0), (1, 0), ("25%", "25%"), (1, 1), ("25%", 0), (0, 1)])
    spec: dict[str, Any] = {
        "nodeSelector": {"trial": trial.name},
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "c",
                "image": "v1",
                "resources": {"requests": {"cpu": "1", "memory": "32Mi"}},
            }
        ],
    }
    own = {"matchLabels": {"app": "web"}}
    if chance.random() < 0.85:
        constraint = {
            "maxSkew": chance.choice([1, 1, 2]),
            "topologyKey": chance.choice([ZONE, ZONE, HOST]),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": own,
            "nodeTaintsPolicy": chance.choice(["Honor", "Ignore"]),
        }
        if chance.random() < 0.5:
            constraint["matchLabelKeys"] = [HASH]
        spec["topologySpreadConstraints"] = [constraint]
    trial.manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": trial.name},
        "spec": {
            "replicas": replicas,
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
            "selector": own,
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    }
    return trial


def carry_out(cluster: Cluster, directory: Path, trial: Trial) -> Trial:
    """Settle a Deployment, ask, and roll it out."""
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": trial.name}})
    for made in trial.nodes:
        cluster.call("POST", "/api/v1/nodes", made)
    cluster.call("POST", f"{APPS}/{trial.name}/deployments", trial.manifest)
    trial.became = "not settled"
    if _end(cluster, trial) == "completed":
        _afterwards(cluster, trial)
        trial.said = _said(cluster, directory, trial)
        cluster.patch(trial.path, {"spec": {"template": trial.changed["spec"]["template"]}})
        trial.became = _end(cluster, trial)
    cluster.call("DELETE", trial.path)
    for made in trial.nodes:
        cluster.call("DELETE", f"/api/v1/nodes/{made['metadata']['name']}")
    return trial


def _afterwards(cluster: Cluster, trial: Trial) -> None:
    """What happens to the last node once the Deployment has settled."""
    last = trial.nodes[-1]["metadata"]["name"]
    if trial.afterwards == "tainted":
        taint = {"key": "closed", "value": "y", "effect": "NoSchedule"}
        cluster.patch(f"/api/v1/nodes/{last}", {"spec": {"taints": [taint]}})
    if trial.afterwards == "filled":
        offered = _thousandths(trial.nodes[-1]["status"]["allocatable"]["cpu"])
        taken = sum(1000 for each in _pods(cluster, trial) if each["spec"].get("nodeName") == last)
        container = {
            "name": "c",
            "image": "v1",
            "resources": {"requests": {"cpu": f"{offered - taken}m"}},
        }
        spec = {"nodeName": last, "containers": [container], "terminationGracePeriodSeconds": 0}
        pod = {"metadata": {"name": "other", "labels": {"app": "other"}}, "spec": spec}
        cluster.call("POST", f"/api/v1/namespaces/{trial.name}/pods", pod)
    time.sleep(1.0)


def _thousandths(cpu: str) -> int:
    return int(cpu.removesuffix("m")) if cpu.endswith("m") else 1000 * int(cpu)


def _pods(cluster: Cluster, trial: Trial) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.call("GET", f"/api/v1/namespaces/{trial.name}/pods")[
        "items"
    ]
    return found


def _said(cluster: Cluster, directory: Path, trial: Trial) -> dict[str, str]:
    """What lint and simulate say of the rollout, of a dump."""
    items = []
    for kind, version, path in (
        ("Node", "v1", f"/api/v1/nodes?labelSelector=trial%3D{trial.name}"),
        ("Pod", "v1", f"/api/v1/namespaces/{trial.name}/pods"),
        ("ReplicaSet", "apps/v1", f"{APPS}/{trial.name}/replicasets"),
    ):
        found = cluster.call("GET", path)["items"]
        items += [{"apiVersion": version, "kind": kind, **each} for each in found]
    state, manifest = directory / f"{trial.name}.json", directory / f"{trial.name}-web.json"
    state.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    manifest.write_text(json.dumps(trial.changed))
    files = ["-f", str(manifest), "--from", str(state), "-o", "json"]
    linted = [each for each in _ran("lint", files)["items"] if each["code"] == "RolloutDeadlock"]
    (workload,) = _ran("simulate", files)["workloads"]
    rollout = workload.get("rollout", {"end": "nothing", "text": ""})
    end = {"Waits": "waits", "MayWait": "may wait", "Completes": "completes"}.get(rollout["end"])
    lint: str | None = "completes"
    if linted:
        lint = end if linted[0]["text"].startswith(rollout["text"]) else "another wait"
    return {"lint": str(lint), "simulate": str(end)}


def _ran(verb: str, arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "topospread", verb, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ran.stdout:
        raise RuntimeError(f"{' '.join(command)}: {ran.returncode} {ran.stderr[-500:]}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _end(cluster: Cluster, trial: Trial) -> str:
    """Whether a rollout completes, or stands still while a pod waits."""
    began = changed = time.monotonic()
    before: object = None
    while time.monotonic() < began + PATIENCE:
        found = cluster.call("GET", trial.path)
        status, wanted = found.get("status", {}), found["spec"]["replicas"]
        counts = [
            status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")
        ]
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        if is_seen and counts == [wanted] * 3:
            return "completed"
        pods = _pods(cluster, trial)
        here = sorted((each["metadata"]["name"], each["spec"].get("nodeName", "")) for each in pods)
        if here != before:
            before, changed = here, time.monotonic()
        if time.monotonic() > changed + STILL and any(not where for _, where in here):
            return "waited"
        time.sleep(0.2)
    return "neither"


@campaign(
    "rollouts",
    binaries_option,
    click.option("--rollouts", type=click.IntRange(1), default=30, show_default=True),
    seed_option,
    click.option("--logs", type=click.Path(path_type=Path), help="Where to keep what was asked."),
)
def command(binaries: Path, rollouts: int, seed: int, logs: Path | None) -> Outcome:
    """Roll Deployments out on tight nodes, as lint and simulate told before, or not."""
    with ExitStack() as opened:
        directory = logs or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        cluster = opened.enter_context(Cluster(binaries, directory))
        Kubelets(opened, cluster, seed=seed)
        cluster.controllers(opened)
        cluster.scheduler(opened, None)
        trials = [drawn(number, seed) for number in range(rollouts)]
        with ThreadPoolExecutor(AT_ONCE) as several:
            done = [*several.map(lambda each: carry_out(cluster, directory, each), trials)]
        predicted = Counter((each.prediction or "not asked", each.became) for each in done)
        figures: dict[str, Any] = {
            f"{said}: {became}": n for (said, became), n in predicted.items()
        }
        figures |= _by_setting(done)
        if logs is not None:
            lines = [json.dumps({"name": t.name, "said": t.said, "became": t.became}) for t in done]
            (directory / "rollouts.jsonl").write_text("\n".join(lines) + "\n")
    return Outcome(dict(sorted(figures.items())), [*_broken(done)])


def _by_setting(trials: list[Trial]) -> dict[str, Any]:
    asked = [each for each in trials if each.said]
    return {
        "changes": dict(Counter(each.change for each in asked)),
        "afterwards": dict(Counter(each.afterwards for each in asked)),
    }


def _broken(trials: list[Trial]) -> list[str]:
    """What was told and did not come, or was told in two ways."""
    found = []
    for each in trials:
        if not each.said:
            continue
        verdicts = {*each.said.values()}
        if len(verdicts) > 1:
            found.append(f"{each.name}: lint and simulate differ: {each.said}")
        if "completes" in verdicts and each.became != "completed":
            found.append(f"{each.name} was told to complete, and {each.became}")
        if "waits" in verdicts and each.became != "waited":
            found.append(f"{each.name} was told to wait, and {each.became}")
    return found


if __name__ == "__main__":
    sys.exit(run(command))
