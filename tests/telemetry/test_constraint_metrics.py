"""Families of constraints: their labels and values."""

from __future__ import annotations

from tests.telemetry.expositions import samples, value
from topospread.telemetry.constraint_metrics import (
    LABELS,
    MISSING,
    STATES,
    ClusterConstraints,
    ConstraintGauges,
)
from topospread.telemetry.metrics import Metrics

WEB = ("shop", "Deployment", "web", "zone", "DoNotSchedule")


def exposed(*clusters: ClusterConstraints) -> bytes:
    metrics = Metrics("1")
    metrics.watch_constraints(lambda: clusters)
    return metrics.expose()[0]


def seen(
    state: str = "violated", *, age: float = 0.0, number: int = 1, cluster: str = "prod"
) -> ClusterConstraints:
    """A cluster with one constraint that is shown and one that is not."""
    shown = ConstraintGauges((*WEB, f"id-{number}"), state, 3, 1, 2)
    return ClusterConstraints(cluster, {state: 2}, {state: 1}, age, [shown])


def test_a_constraint_is_named_by_its_workload() -> None:
    exposition = exposed(seen())
    labels = dict(zip(LABELS, ("prod", *WEB, "id-1"), strict=True))
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
    labels = dict(zip(LABELS, ("prod", *WEB, "id-1"), strict=True))
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
