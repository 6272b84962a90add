from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics

from tests.telemetry.expositions import names, samples, value
from topospread.http import server
from topospread.store.api import Store
from topospread.store.observed import OPERATIONS
from topospread.telemetry.families import (
    CONSTRAINT_LABELS,
    DROPPED,
    MISSING,
    STATES,
    ClusterConstraints,
    ClusterGauges,
    ConstraintGauges,
    PoolGauges,
    constraint_families,
    pool_families,
)
from topospread.telemetry.meters import FIRST_CODES
from topospread.telemetry.metrics import Metrics

# What kube-scheduler 1.36 writes as `le`: ExponentialBuckets(0.00001, 1.5, 20) and
# ExponentialBuckets(0.0001, 2, 12) of its metrics package, as Go formats them.
PLUGIN_ENDS = (
    *("1e-05", "1.5000000000000002e-05", "2.2500000000000005e-05", "3.375000000000001e-05"),
    *("5.062500000000001e-05", "7.593750000000002e-05", "0.00011390625000000003"),
    *("0.00017085937500000006", "0.0002562890625000001", "0.00038443359375000017"),
    *("0.0005766503906250003", "0.0008649755859375004", "0.0012974633789062506"),
    *("0.0019461950683593758", "0.0029192926025390638", "0.004378938903808595"),
    *("0.006568408355712893", "0.009852612533569338", "0.014778918800354007"),
    *("0.02216837820053101", "+Inf"),
)
FRAMEWORK_ENDS = (
    *("0.0001", "0.0002", "0.0004", "0.0008", "0.0016", "0.0032", "0.0064", "0.0128"),
    *("0.0256", "0.0512", "0.1024", "0.2048", "+Inf"),
)


@pytest.fixture
def metrics():
    return Metrics("1.2.3")


def shown(metrics):
    return metrics.expose()[0]


def test_the_schedulers_families_have_upstreams_names_and_types(metrics):
    assert {name for name in names(shown(metrics)) if name.startswith("scheduler_")} == {
        "scheduler_plugin_execution_duration_seconds histogram",
        "scheduler_plugin_evaluation_total counter",
        "scheduler_framework_extension_point_duration_seconds histogram",
        "scheduler_schedule_attempts_total counter",
    }


@pytest.mark.parametrize(
    ("family", "labels", "ends"),
    [
        (
            "scheduler_plugin_execution_duration_seconds",
            {"plugin": "PodTopologySpread", "extension_point": "Filter", "status": "Success"},
            PLUGIN_ENDS,
        ),
        (
            "scheduler_framework_extension_point_duration_seconds",
            {"extension_point": "Filter", "status": "Success", "profile": "default-scheduler"},
            FRAMEWORK_ENDS,
        ),
    ],
)
def test_histograms_have_upstreams_labels_and_buckets(metrics, family, labels, ends):
    metrics.extension_point("Filter", "default-scheduler").observe("Success", 0.0003)
    exposition = shown(metrics)
    buckets = {
        dict(found)["le"]: count
        for (name, found), count in samples(exposition).items()
        if name == f"{family}_bucket"
    }
    assert tuple(buckets) == ends
    assert buckets == {end: float(float(end) >= 0.0003) for end in ends}
    assert value(exposition, f"{family}_count", **labels) == 1
    assert value(exposition, f"{family}_sum", **labels) == 0.0003


def test_profiles_share_the_plugins_histogram_and_have_their_own_extension_points(metrics):
    run = {"extension_point": "Filter", "status": "Unschedulable"}
    for profile in ("default-scheduler", "batch"):
        metrics.extension_point("Filter", profile).observe("Unschedulable", 0.001)
    exposition = shown(metrics)
    plugin = "scheduler_plugin_execution_duration_seconds_count"
    assert value(exposition, plugin, plugin="PodTopologySpread", **run) == 2
    framework = "scheduler_framework_extension_point_duration_seconds_count"
    for profile in ("default-scheduler", "batch"):
        assert value(exposition, framework, profile=profile, **run) == 1


@pytest.mark.parametrize(
    ("point", "statuses", "counted"),
    [
        ("PreFilter", ["Success", "Error"], 2),
        ("PreFilter", ["Success", "Skip"], 1),
        ("PreScore", ["Skip"], None),
        ("Filter", ["Success", "Unschedulable", "UnschedulableAndUnresolvable"], 3),
        ("Score", ["Success"], 1),
        ("ScoreExtensionNormalize", ["Success"], None),
        ("PreFilterExtensionAddPod", ["Success"], None),
    ],
)
def test_evaluations_are_runs_that_were_not_skipped(metrics, point, statuses, counted):
    meter = metrics.extension_point(point, "default-scheduler")
    for status in statuses:
        meter.observe(status, 0.001)
    found = value(
        shown(metrics),
        "scheduler_plugin_evaluation_total",
        plugin="PodTopologySpread",
        extension_point=point,
        profile="default-scheduler",
    )
    assert found == counted


def test_the_schedulers_names_can_be_switched_off():
    metrics = Metrics("1", scheduler_metrics=False)
    metrics.extension_point("Filter", "default-scheduler").observe("Success", 0.001)
    metrics.attempt("scheduled", "default-scheduler")
    metrics.call("DecisionService/EvaluatePod").observe("OK", 0.001)
    exposition = shown(metrics)
    assert b"scheduler_" not in exposition
    assert value(
        exposition, "topospread_calls_total", method="DecisionService/EvaluatePod", code="OK"
    )


def test_calls_are_counted_and_timed_by_method_and_code(metrics):
    evaluate = metrics.call("DecisionService/EvaluatePod")
    for code, seconds in (("OK", 0.0002), ("OK", 0.04), ("INVALID_ARGUMENT", 0.0001)):
        evaluate.observe(code, seconds)
    # Another meter of the same method counts into the same series.
    metrics.call("DecisionService/EvaluatePod").observe("OK", 0.0002)
    exposition = shown(metrics)
    ok = {"method": "DecisionService/EvaluatePod", "code": "OK"}
    assert value(exposition, "topospread_calls_total", **ok) == 3
    assert value(exposition, "topospread_call_duration_seconds_count", **ok) == 3
    assert value(exposition, "topospread_call_duration_seconds_bucket", **ok, le="0.0002") == 2
    assert value(exposition, "topospread_call_duration_seconds_sum", **ok) == pytest.approx(0.0404)
    refused = {"method": "DecisionService/EvaluatePod", "code": "INVALID_ARGUMENT"}
    assert value(exposition, "topospread_calls_total", **refused) == 1


def test_series_with_known_labels_are_there_from_the_beginning(metrics):
    metrics.call("DecisionService/EvaluatePod")
    metrics.expect_profile("default-scheduler")
    metrics.expect_store_operations(OPERATIONS)
    metrics.expect_placements("PlacePod")
    metrics.watch_clusters(lambda: [ClusterGauges("prod", {}, 0, 0, 0.0, 0.0, 0)])
    found = samples(shown(metrics))

    def zeros(name):
        return {
            tuple(value for _, value in sorted(labels))
            for (sample, labels), count in found.items()
            if sample == name and count == 0
        }

    method, profile = "DecisionService/EvaluatePod", "default-scheduler"
    assert zeros("topospread_calls_total") == {(code, method) for code in FIRST_CODES}
    assert zeros("topospread_call_duration_seconds_count") == {("OK", method)}
    assert zeros("scheduler_schedule_attempts_total") == {
        (profile, result) for result in ("scheduled", "unschedulable", "error")
    }
    assert zeros("topospread_store_errors_total") == {(name,) for name in OPERATIONS}
    assert zeros("topospread_config_reloads_total") == {("accepted",), ("refused",)}
    assert zeros("topospread_http_connections_dropped_total") == {(reason,) for reason in DROPPED}
    assert zeros("topospread_placements_total") == {
        ("PlacePod", result) for result in ("held", "refused", "bound")
    }
    assert zeros("topospread_placement_conflicts_total") == {("PlacePod",)}
    assert zeros("topospread_extender_unknown_nodes_total") == {("prod",)}
    assert zeros("topospread_extender_stale_decisions_total") == {("prod",)}


def test_clusters_that_are_followed_no_more_leave_no_series(metrics):
    clusters = [ClusterGauges("old", {}, 0, 0, 0.0, 0.0, 0)]
    metrics.watch_clusters(lambda: clusters)
    assert b'cluster="old"' in shown(metrics)
    clusters[:] = [ClusterGauges("new", {}, 0, 0, 0.0, 0.0, 0)]
    assert b'cluster="old"' not in shown(metrics)


def test_the_operations_of_a_store_are_those_that_are_observed():
    """All of the contract but what asks no store."""
    contract = {name for name in dir(Store) if not name.startswith("_")}
    assert set(OPERATIONS) == contract - {"address", "wake", "close"}


def test_the_reasons_of_dropped_connections_are_those_that_are_counted():
    assert set(DROPPED) == {server.OVER_LIMIT, server.HANDSHAKE, server.MALFORMED, server.SLOW}


def test_waits_count_calls_that_did_not_wait(metrics):
    fresh = metrics.consistency("at_least_as_fresh")
    for seconds in (0.0, 0.0, 0.015):
        fresh.observe(seconds)
    exposition = shown(metrics)
    name, mode = "topospread_consistency_wait_seconds", "at_least_as_fresh"
    assert value(exposition, f"{name}_bucket", mode=mode, le="0.0") == 2
    assert value(exposition, f"{name}_count", mode=mode) == 3


@pytest.mark.parametrize(
    ("happens", "name", "labels"),
    [
        (
            lambda metrics: metrics.attempt("unschedulable", "p"),
            "scheduler_schedule_attempts_total",
            {"result": "unschedulable", "profile": "p"},
        ),
        (
            lambda metrics: metrics.store_error("apply"),
            "topospread_store_errors_total",
            {"operation": "apply"},
        ),
        (
            lambda metrics: metrics.rejection("decisions"),
            "topospread_queue_rejections_total",
            {"pool": "decisions"},
        ),
        (
            lambda metrics: metrics.placement("PlacePod", "refused"),
            "topospread_placements_total",
            {"call": "PlacePod", "result": "refused"},
        ),
        (
            lambda metrics: metrics.placement_conflict("PlacePod"),
            "topospread_placement_conflicts_total",
            {"call": "PlacePod"},
        ),
        (
            lambda metrics: metrics.unknown_nodes("prod"),
            "topospread_extender_unknown_nodes_total",
            {"cluster": "prod"},
        ),
        (
            lambda metrics: metrics.wake("prod", "gone"),
            "topospread_extender_wakes_total",
            {"cluster": "prod", "result": "gone"},
        ),
    ],
)
def test_each_time_is_counted_in_its_series(metrics, happens, name, labels):
    for expected in (1, 2):
        happens(metrics)
        exposition = shown(metrics)
        assert value(exposition, name, **labels) == expected
        assert [found for found, _ in samples(exposition) if found.startswith(name)] == [name]


def test_a_refused_configuration_shows_until_one_is_accepted(metrics):
    def state():
        exposition = shown(metrics)
        return (
            value(exposition, "topospread_config_generation"),
            value(exposition, "topospread_config_last_reload_successful"),
            value(exposition, "topospread_config_reloads_total", result="refused"),
        )

    assert state() == (1, 1, 0)
    metrics.config_reloaded(1, accepted=False)
    assert state() == (1, 0, 1)
    metrics.config_reloaded(2, accepted=True)
    assert state() == (2, 1, 1)


def test_gauges_are_asked_for_at_each_scrape(metrics):
    lag = 7

    def clusters():
        yield ClusterGauges(
            "prod", {"Node": 5000, "Pod": 50_000}, 20, lag, 0.0, 0.012, 1, label_sets=40
        )
        yield ClusterGauges("dev", {"Node": 3}, 1, 0, 4.5, 5.0, 0)

    metrics.watch_clusters(clusters)
    metrics.watch(pool_families, lambda: [PoolGauges("decisions", 3, 2, 1)])

    exposition = shown(metrics)
    assert value(exposition, "topospread_objects", cluster="prod", kind="Pod") == 50_000
    assert value(exposition, "topospread_objects", cluster="dev", kind="Node") == 3
    assert value(exposition, "topospread_groups", cluster="prod") == 20
    assert value(exposition, "topospread_label_sets", cluster="prod") == 40
    assert value(exposition, "topospread_revision_lag", cluster="prod") == 7
    assert value(exposition, "topospread_store_unreachable_seconds", cluster="dev") == 4.5
    assert value(exposition, "topospread_snapshot_age_seconds", cluster="prod") == 0.012
    assert value(exposition, "topospread_corrupt_values", cluster="prod") == 1
    assert value(exposition, "topospread_queue_depth", pool="decisions") == 3
    assert value(exposition, "topospread_inflight_calls", pool="decisions") == 2
    assert value(exposition, "topospread_waiting_calls", pool="decisions") == 1
    lag = 8
    assert value(shown(metrics), "topospread_revision_lag", cluster="prod") == 8


def test_the_build_is_named(metrics):
    found = [
        dict(labels)
        for (name, labels) in samples(shown(metrics))
        if name == "topospread_build_info"
    ]
    assert [build["version"] for build in found] == ["1.2.3"]


def test_registries_do_not_share_anything():
    one, other = Metrics("1"), Metrics("1")
    one.store_error("apply")
    assert value(shown(other), "topospread_store_errors_total", operation="apply") is None


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("text/plain;version=0.0.4", "text/plain"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics"),
    ],
)
def test_the_format_is_the_one_asked_for(metrics, accept, content_type):
    metrics.call("DecisionService/EvaluatePod").observe("OK", 0.001)
    metrics.extension_point("Filter", "default-scheduler").observe("Success", 0.001)
    metrics.attempt("scheduled", "default-scheduler")
    exposition, said = metrics.expose(accept)
    assert said.startswith(content_type)
    if "openmetrics" in said:
        families = {family.name for family in open_metrics(exposition.decode())}
        assert "topospread_call_duration_seconds" in families
    else:
        assert samples(exposition)


# ------------------------------ constraints

WEB = ("shop", "Deployment", "web", "zone", "DoNotSchedule")


def exposed(*clusters: ClusterConstraints) -> bytes:
    metrics = Metrics("1")
    metrics.watch(constraint_families, lambda: clusters)
    return metrics.expose()[0]


def seen(
    state: str = "violated", *, age: float = 0.0, number: int = 1, cluster: str = "prod"
) -> ClusterConstraints:
    """A cluster with one constraint that is shown and one that is not."""
    shown = ConstraintGauges((*WEB, f"id-{number}"), state, 3, 1, 2)
    return ClusterConstraints(cluster, {state: 2}, {state: 1}, age, [shown])


def test_a_constraint_is_named_by_its_workload() -> None:
    exposition = exposed(seen())
    labels = dict(zip(CONSTRAINT_LABELS, ("prod", *WEB, "id-1"), strict=True))
    assert value(exposition, "topospread_constraint_skew", **labels) == 3
    assert value(exposition, "topospread_constraint_max_skew", **labels) == 1
    assert value(exposition, "topospread_constraint_blocked_pods", **labels) == 2
    assert value(exposition, "topospread_constraints_age_seconds", cluster="prod") == 0


def test_a_cluster_that_was_not_counted_has_a_reason_and_no_numbers() -> None:
    exposition = exposed(ClusterConstraints("prod", {}, {}, 9.0, [], "too_many"), seen(cluster="a"))
    name = "topospread_constraints_missing"
    reasons = [value(exposition, name, cluster="prod", reason=reason) for reason in MISSING]
    assert reasons == [0, 0, 1, 0]
    assert not any(value(exposition, name, cluster="a", reason=reason) for reason in MISSING)
    assert value(exposition, "topospread_constraints_age_seconds", cluster="prod") == 9
    of_prod = [name for name, labels in samples(exposition) if ("cluster", "prod") in labels]
    assert "topospread_constraints" not in of_prod


def test_each_state_has_a_series_of_which_one_is_1() -> None:
    exposition = exposed(seen("blocked"))
    labels = dict(zip(CONSTRAINT_LABELS, ("prod", *WEB, "id-1"), strict=True))
    states = [
        value(exposition, "topospread_constraint_state", state=state, **labels) for state in STATES
    ]
    assert states == [1, 0, 0, 0]
    for name, count in (("topospread_constraints", 2), ("topospread_constraints_omitted", 1)):
        totals = [value(exposition, name, cluster="prod", state=state) for state in STATES]
        assert totals == [count, 0, 0, 0]


def test_constraints_that_differ_in_their_selector_alone_do_not_collide() -> None:
    one, other = seen(number=1).constraints[0], seen(number=2).constraints[0]
    exposition = exposed(ClusterConstraints("prod", {}, {}, 0.0, [one, other]))
    assert len([name for name, _ in samples(exposition) if name.endswith("_constraint_skew")]) == 2


def test_names_are_cut_and_have_no_control_characters() -> None:
    def named(name: str, number: int) -> ConstraintGauges:
        labels = ("shop", "Deployment", name, "zone", "DoNotSchedule", f"id-{number}")
        return ConstraintGauges(labels, "violated", 3, 1, 2)

    names = ["n" * 100_000, "\N{SNOWMAN}" * 100, "a\x00\x1b[31m\nb\u202ec"]
    gauges = [named(name, number) for number, name in enumerate([*names, names[0]])]
    exposition = exposed(ClusterConstraints("prod", {}, {}, 0.0, gauges))
    shown = [
        dict(labels)["owner_name"]
        for name, labels in samples(exposition)
        if name == "topospread_constraint_skew"
    ]
    # Two that are cut to the same name are told apart by their ids.
    assert shown == ["n" * 253, "\N{SNOWMAN}" * 84, "a??[31m?b?c", "n" * 253]
    assert len(exposition) < 100_000
    assert b"\x1b" not in exposition
