"""Alerts, the dashboard and the queries of operations.md: of metrics that a server has, in time.

rate() and increase() see only what is added to a series that was there: one that begins with the
first burst shows none of it. So what is asked for must be there before it happens.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.apiserver.server import ApiServer
from tests.deploy.files import ROOT, parsed
from tests.docs.pages import anchors
from tests.docs.test_pages import accept
from tests.kubernetes.syncing import pod, small_cluster, synced
from tests.requirements import need
from tests.telemetry.expositions import samples
from tests.waiting import until
from topospread.cli.main import root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEC = parsed(ROOT / "deploy/kubernetes/monitoring/alerts.yaml")["spec"]
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in SPEC["groups"] for rule in group["rules"]
}
DASHBOARD = json.loads((ROOT / "deploy/kubernetes/monitoring/dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
OPERATIONS = (ROOT / "docs/operations.md").read_text("utf-8")

OF_PROMETHEUS = {"namespace", "job", "instance", "pod"}
"""Labels that Prometheus adds."""

NAME = re.compile(r"\b(?:topospread|scheduler|process|python)_[a-z0-9_]+")
_SELECTED = re.compile(r"\b((?:topospread|scheduler|process)_[a-z0-9_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_BY = re.compile(r"\bby \(([a-z_, ]+)\)")
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)

Series = list[tuple[str, dict[str, str]]]


def metric_labels() -> dict[str, set[str]]:
    """The labels of each metric by docs/metrics.md, which is written from the code."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for name, kind, listed in _ROW.findall(text):
        labels = set(re.findall(r"`(\w+)`", listed))
        if kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels}
            found[f"{name}_count"] = labels
        else:
            found[name] = labels
    return found


def labels_used(query: str) -> set[str]:
    """The labels that a query matches or groups by."""
    used = {label for label, _, _ in _MATCHER.findall(query)}
    for listed in _BY.findall(query):
        used |= {label.strip() for label in listed.split(",")}
    return used


@pytest.mark.parametrize("name", ALERTS)
def test_alert_asks_for_metrics_and_labels_that_are_documented(name: str) -> None:
    rule, known = ALERTS[name], metric_labels()
    names = NAME.findall(rule["expr"])
    assert names
    labels = set().union(*(known[each] for each in names))
    written = " ".join(rule["annotations"].values())
    shown = set(re.findall(r"\$labels\.(\w+)", written))
    assert labels_used(rule["expr"]) | shown <= labels | {"namespace", "job"}


@pytest.mark.parametrize("name", ALERTS)
def test_alert_leads_to_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    assert heading in anchors(ROOT / page)


def test_every_alert_is_listed_in_the_documents() -> None:
    assert set(re.findall(r"\bTopospread[A-Z]\w+", OPERATIONS)) - {
        "TopospreadConfiguration"
    } == set(ALERTS)


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


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """What a server exposes that listed its cluster and was never called, and after some calls."""
    directory = tmp_path_factory.mktemp("synced")
    with (
        ApiServer(small_cluster()) as api,
        synced(directory, api, http="127.0.0.1:0") as (state, server),
    ):
        until(lambda: server.ready()[0], "all kinds listed")
        counted = b'topospread_constraints{cluster="'
        until(lambda: counted in server.metrics.expose()[0], "constraints are counted")
        fresh = server.metrics.expose()[0]
        state.client.evaluate_pod(pod("web-8"))
        state.client.place_pod(pod("web-9"))
        return fresh, server.metrics.expose()[0]


@pytest.fixture(scope="module")
def fresh(scrapes: tuple[bytes, bytes]) -> Series:
    """The series of a server that was never called."""
    return [(name, dict(labels)) for name, labels in samples(scrapes[0])]


@pytest.fixture(scope="module")
def exposed(scrapes: tuple[bytes, bytes]) -> dict[str, set[str]]:
    """Labels of each metric of a server that was asked; a name without any has none."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scrapes[1].decode()):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        for suffix in suffixes.get(family.type, ("",)):
            found[family.name + suffix] = set()
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_queries_ask_for_what_is_exposed(exposed: dict[str, set[str]]) -> None:
    for query in QUERIES:
        names = NAME.findall(query)
        assert names
        assert set(names) <= exposed.keys(), query
        # A counter without samples yet shows no labels; the page of metrics has them.
        labels = set().union(*(exposed[name] for name in names))
        if labels:
            assert labels_used(query) <= labels | {"pod", "job"}, query


def test_every_query_is_of_the_chosen_job_and_cluster() -> None:
    names = [each["name"] for each in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "job", "cluster"]
    known = metric_labels()
    for query in QUERIES:
        for found in NAME.finditer(query):
            selector = query[found.end() :].partition("}")[0]
            assert 'job=~"$job"' in selector, query
            assert ('cluster=~"$cluster"' in selector) == ("cluster" in known.get(found[0], ()))


def test_every_panel_says_what_it_shows_and_lies_beside_the_others() -> None:
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places, panel["title"]
        assert max(x for x, _ in cells) < 24
        places |= cells
        assert panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_most_important_metrics_are_shown() -> None:
    shown = set(NAME.findall(" ".join(QUERIES)))
    assert {
        "topospread_call_duration_seconds_bucket",
        "topospread_store_unreachable_seconds",
        "topospread_sync_lag_seconds",
        "topospread_sync_active",
        "topospread_queue_wait_seconds_bucket",
        "topospread_queue_depth",
        "topospread_queue_rejections_total",
        "topospread_transport_info",
        "topospread_constraints",
        "topospread_constraint_skew",
        "topospread_constraint_blocked_pods",
    } <= shown


def expressions() -> Iterator[str]:
    """Of the alerts, the dashboard and the page on operations."""
    yield from (rule["expr"] for rule in ALERTS.values())
    yield from QUERIES
    known = set(metric_labels())
    for code in re.findall(r"`([^`\n]+)`", OPERATIONS):
        yield from (found[0] for found in _SELECTED.finditer(code) if found[1] in known)


SELECTORS = sorted(
    {
        found[0]
        for one in expressions()
        for found in _SELECTED.finditer(one)
        # Gauges that come and go with a constraint.
        if not found[1].startswith("topospread_constraint_")
    }
)


def matches(labels: dict[str, str], selector: str) -> bool:
    """Whether a series has the labels, but those that Prometheus adds."""
    for label, operator, wanted in _MATCHER.findall(re.sub(r"\$\w+", ".*", selector)):
        if label in OF_PROMETHEUS:
            continue
        found = labels.get(label, "")
        same = re.fullmatch(wanted, found) is not None if "~" in operator else found == wanted
        if same != (operator in ("=", "=~")):
            return False
    return True


def test_a_fresh_server_has_a_series_that_matches_each_selector(fresh: Series) -> None:
    for selector in SELECTORS:
        name, _, rest = selector.partition("{")
        assert any(found == name and matches(labels, rest) for found, labels in fresh), selector


def test_selectors_are_found_everywhere() -> None:
    assert 'topospread_extender_wakes_total{result="failed"}' in SELECTORS
    assert any(selector.startswith("topospread_placements_total") for selector in SELECTORS)
    assert any(selector.startswith("process_cpu_seconds_total") for selector in SELECTORS)


def test_matchers_are_judged_as_prometheus_judges_them() -> None:
    assert matches({"code": "INTERNAL"}, 'code!="OK",job=~"$job"}')
    assert not matches({"code": "OK"}, 'code!="OK"}')
    assert matches({"pool": "state"}, 'pool!~"planner|expander"}')
    assert not matches({"pool": "planner"}, 'pool!~"planner|expander"}')
    assert matches({"cluster": "default"}, 'cluster=~"$cluster"}')
