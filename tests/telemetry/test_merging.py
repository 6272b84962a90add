from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.telemetry.expositions import samples, value
from topospread.telemetry.families import ClusterGauges, PoolGauges
from topospread.telemetry.merging import merge_expositions
from topospread.telemetry.metrics import Metrics

events = st.lists(
    st.tuples(
        st.sampled_from(["call", "point", "attempt", "wait", "error"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from([0.0, 0.00005, 0.001, 0.3]),
    ),
    max_size=30,
)


def play(metrics, happened):
    for what, label, seconds in happened:
        if what == "call":
            metrics.call(label).done("OK", seconds)
        elif what == "point":
            metrics.extension_point("Filter", label).observe("Success", seconds)
        elif what == "attempt":
            metrics.attempt("scheduled", label)
        elif what == "wait":
            metrics.consistency(label).observe(seconds)
        else:
            metrics.store_error(label)


def added_up(exposition):
    """What must be the same however the work was shared: counters and histograms of our own."""
    return {
        key: total
        for key, total in samples(exposition).items()
        if key[0].startswith(("topospread_", "scheduler_"))
        and key[0].endswith(("_total", "_bucket", "_count", "_sum"))
    }


@given(st.lists(events, min_size=1, max_size=4))
def test_shared_work_adds_up_to_the_work_of_one(shares):
    workers = [Metrics("1") for _ in shares]
    alone = Metrics("1")
    for worker, share in zip(workers, shares, strict=True):
        play(worker, share)
        play(alone, share)
    merged = added_up(merge_expositions(worker.expose()[0] for worker in workers))
    assert merged == pytest.approx(added_up(alone.expose()[0]))


def test_merging_one_changes_nothing():
    metrics = Metrics('with "quotes", \\ and\nlines')
    play(metrics, [("call", "a", 0.001), ("point", "b", 0.001)])
    exposition = metrics.expose()[0]
    assert samples(merge_expositions([exposition])) == samples(exposition)


def test_gauges_follow_their_rules():
    first, second = Metrics("1"), Metrics("1")
    first.watch_clusters(lambda: [ClusterGauges("prod", {"Node": 5}, 3, 9, 0.0, 0.5, 0)])
    second.watch_clusters(
        lambda: [
            ClusterGauges("prod", {"Node": 5}, 2, 0, 4.0, 4.0, 1),
            ClusterGauges("dev", {"Node": 1}, 1, 0, 0.0, 0.0, 0),
        ]
    )
    first.watch_pools(lambda: [PoolGauges("decisions", 3, 2, 1)])
    second.watch_pools(lambda: [PoolGauges("decisions", 4, 1, 0)])
    second.config_reloaded(1, accepted=False)

    merged = merge_expositions([first.expose()[0], second.expose()[0]])

    # All follow the same cluster: the worst stands.
    assert value(merged, "topospread_objects", cluster="prod", kind="Node") == 5
    assert value(merged, "topospread_objects", cluster="dev", kind="Node") == 1
    assert value(merged, "topospread_groups", cluster="prod") == 3
    assert value(merged, "topospread_revision_lag", cluster="prod") == 9
    assert value(merged, "topospread_store_unreachable_seconds", cluster="prod") == 4
    assert value(merged, "topospread_corrupt_values", cluster="prod") == 1
    # Each has its own pool.
    assert value(merged, "topospread_queue_depth", pool="decisions") == 7
    assert value(merged, "topospread_inflight_calls", pool="decisions") == 3
    assert value(merged, "topospread_waiting_calls", pool="decisions") == 1
    # One that refused is enough to be reported.
    assert value(merged, "topospread_config_last_reload_successful") == 0
    assert value(merged, "topospread_config_reloads_total", result="refused") == 1


def test_memory_of_processes_is_added():
    exposition = Metrics("1").expose()[0]
    one = value(exposition, "process_resident_memory_bytes")
    merged = merge_expositions([exposition, exposition])
    assert one
    assert value(merged, "process_resident_memory_bytes") == 2 * one


def test_counters_of_an_ended_process_still_count_but_its_gauges_are_gone():
    ended, fresh = Metrics("1"), Metrics("1")
    play(ended, [("call", "a", 0.001)] * 5)
    play(fresh, [("call", "a", 0.001)])
    ended.watch_clusters(lambda: [ClusterGauges("prod", {}, 3, 99, 0.0, 0.0, 0)])
    last = ended.expose()[0]

    # Kept as one exposition, however many ended.
    retired = merge_expositions([], [last, last])
    merged = merge_expositions([fresh.expose()[0]], [retired])

    assert value(merged, "topospread_calls_total", method="a", code="OK") == 11
    assert value(merged, "topospread_call_duration_seconds_count", method="a", code="OK") == 11
    assert value(merged, "topospread_revision_lag", cluster="prod") is None


def test_nothing_merges_to_nothing():
    assert merge_expositions([]) == b""
