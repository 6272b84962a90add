"""The Grafana dashboard asks for metrics, and labels of them, that a server has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.apiserver.server import ApiServer
from tests.deploy.files import ROOT
from tests.deploy.metrics import NAME, labels_used, metric_labels
from tests.kubernetes.syncing import pod, small_cluster, synced
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

DASHBOARD = json.loads((ROOT / "deploy/kubernetes/monitoring/dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Labels of each metric of a server that was synced and asked; a name without any has none."""
    with (
        ApiServer(small_cluster()) as api,
        synced(tmp_path_factory.mktemp("synced"), api, http="127.0.0.1:0") as (state, server),
    ):
        until(lambda: server.ready()[0], "all kinds listed")
        state.client.evaluate_pod(pod("web-8"))
        state.client.place_pod(pod("web-9"))
        text = server.metrics.expose()[0].decode()
        found: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(text):
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
            for suffix in suffixes.get(family.type, ("",)):
                found[family.name + suffix] = set()
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        yield found


@pytest.mark.parametrize("query", QUERIES)
def test_queries_ask_for_what_is_exposed(exposed: dict[str, set[str]], query: str) -> None:
    names = NAME.findall(query)
    assert names
    for name in names:
        assert name in exposed, f"{name} is no metric"
    # A counter without samples yet shows no labels; the page of metrics has them.
    labels = set().union(*(exposed[name] for name in names))
    if labels:
        assert labels_used(query) <= labels | {"pod", "job"}


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
