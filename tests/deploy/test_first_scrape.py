"""What alerts, the dashboard and operations.md ask Prometheus for is there before it happens.

rate() and increase() see only what is added to a series that was there: one that begins with the
first burst shows none of it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.apiserver.server import ApiServer
from tests.deploy.files import ROOT, parsed
from tests.deploy.metrics import metric_labels
from tests.kubernetes.syncing import small_cluster, synced
from tests.telemetry.expositions import samples
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

MONITORING = ROOT / "deploy/kubernetes/monitoring"
OF_PROMETHEUS = {"namespace", "job", "instance", "pod"}

_SELECTED = re.compile(r"\b((?:topospread|scheduler|process)_[a-z0-9_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"')

Series = list[tuple[str, dict[str, str]]]


def expressions() -> Iterator[str]:
    """Of the alerts, the dashboard and the page on operations."""
    for group in parsed(MONITORING / "alerts.yaml")["spec"]["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    known = set(metric_labels())
    for code in re.findall(r"`([^`\n]+)`", (ROOT / "docs/operations.md").read_text("utf-8")):
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


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """The series of a server that listed its cluster, serves the extender and was never called."""
    directory = tmp_path_factory.mktemp("fresh")
    with (
        ApiServer(small_cluster()) as api,
        synced(directory, api, http="127.0.0.1:0") as (_, server),
    ):
        until(lambda: server.ready()[0], "all kinds listed")
        counted = 'topospread_constraints{cluster="'
        until(lambda: counted in server.metrics.expose()[0].decode(), "constraints are counted")
        yield [(name, dict(labels)) for name, labels in samples(server.metrics.expose()[0])]


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


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_fresh_server_has_a_series_that_matches(fresh: Series, selector: str) -> None:
    name, _, rest = selector.partition("{")
    assert any(found == name and matches(labels, rest) for found, labels in fresh)


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
