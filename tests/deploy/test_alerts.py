"""Alerts: of metrics that a server has, at the right time, with a page that says what to do."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.deploy.files import ROOT, parsed
from tests.deploy.metrics import NAME, labels_used, metric_labels
from tests.docs.pages import anchors
from tests.docs.test_pages import accept
from tests.requirements import need
from topospread.cli.main import root

if TYPE_CHECKING:
    from pathlib import Path

SPEC = parsed(ROOT / "deploy/kubernetes/monitoring/alerts.yaml")["spec"]
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in SPEC["groups"] for rule in group["rules"]
}
OF_PROMETHEUS = {"namespace", "job"}


@pytest.mark.parametrize("name", ALERTS)
def test_alert_asks_for_metrics_and_labels_that_are_documented(name: str) -> None:
    rule, known = ALERTS[name], metric_labels()
    names = NAME.findall(rule["expr"])
    assert names
    labels = set().union(*(known[each] for each in names))
    written = " ".join(rule["annotations"].values())
    shown = set(re.findall(r"\$labels\.(\w+)", written))
    assert labels_used(rule["expr"]) | shown <= labels | OF_PROMETHEUS


@pytest.mark.parametrize("name", ALERTS)
def test_alert_leads_to_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    assert heading in anchors(ROOT / page)


def test_every_alert_is_listed_in_the_documents() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bTopospread[A-Z]\w+", text)) - {"TopospreadConfiguration"} == set(
        ALERTS
    )


def test_commands_in_alerts_are_accepted() -> None:
    """As it reads for a workload, and for pods without one."""
    tested = parsed(ROOT / "tests/deploy/alerts_test.yaml")["tests"]
    fired = [alert for test in tested for each in test["alert_rule_test"]
             for alert in each["exp_alerts"]]  # fmt: skip
    written = [each["exp_annotations"].get("description", "") for each in fired]
    commands = {found for text in written for found in re.findall(r"`topospread ([^`]+)`", text)}
    assert {each.split()[0] for each in commands} == {"report", "explain", "plan-rebalance"}
    for each in commands:
        accept(root, shlex.split(each))


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(SPEC))
    shutil.copy(ROOT / "tests/deploy/alerts_test.yaml", tmp_path)
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "alerts_test.yaml"]):
        run = subprocess.run(
            [need("promtool", target="prometheus"), *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
