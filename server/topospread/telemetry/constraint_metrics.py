"""Metrics of constraints: how many are in which state, and what the worst of them look like.

Series of single constraints come and go with these, so there is a limit on them; the totals, and
how many constraints have no series of their own, are always there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PREFIX: Final = "topospread_constraint"
AGE: Final = "topospread_constraints_age_seconds"

STATES: Final = ("blocked", "violated", "ineffective", "satisfied")

MISSING: Final = ("not_followed", "loading", "too_many", "failed")
"""Reasons why constraints are not counted."""

LABELS: Final = (
    "cluster",
    "namespace",
    "owner_kind",
    "owner_name",
    "topology_key",
    "when_unsatisfiable",
    "constraint_id",
)
"""Of the series of a constraint. The id tells apart what is otherwise alike, such as two selectors
of one owner."""

MOST_BYTES: Final = 253
"""Of a label's value: as many as most names of Kubernetes may have. Owners' names, which come with
pods, have no bound there.
"""


@dataclass(frozen=True, slots=True)
class ConstraintGauges:
    """Gauges of one constraint.

    Attributes:
        labels: the values of LABELS but the first.
        state: one of STATES.
        blocked: waiting pods that a node could take if this constraint were not.
    """

    labels: tuple[str, ...]
    state: str
    skew: int
    max_skew: int
    blocked: int


@dataclass(frozen=True, slots=True)
class ClusterConstraints:
    """Gauges of the constraints of one cluster.

    Attributes:
        cluster: its name.
        totals: constraints by state; empty before they were counted.
        omitted: those of them by state that were chosen and are more than the limit.
        age_seconds: since they were last worked out, or the cluster was seen to be unchanged.
        constraints: with series of their own.
        missing: why they are not counted at the newest state; empty where they are.
    """

    cluster: str
    totals: Mapping[str, int]
    omitted: Mapping[str, int]
    age_seconds: float
    constraints: Sequence[ConstraintGauges]
    missing: str = ""


def constraint_families(clusters: Iterable[ClusterConstraints]) -> Iterator[Metric]:
    """All families of constraints."""
    clusters = list(clusters)
    for name, text, read in (
        ("constraints", "Spread constraints in force, by state: the worst that holds.", "totals"),
        (
            "constraints_omitted",
            "Constraints of --constraint-metrics without series, for --max-constraint-series.",
            "omitted",
        ),
    ):
        by_state = GaugeMetricFamily(f"topospread_{name}", text, labels=("cluster", "state"))
        for one in clusters:
            for state in STATES if one.totals else ():
                by_state.add_metric((one.cluster, state), getattr(one, read).get(state, 0))
        yield by_state
    age = GaugeMetricFamily(
        AGE,
        "Since the constraints were last counted, or nothing had changed; before, since the "
        "cluster is known.",
        labels=("cluster",),
    )
    missing = GaugeMetricFamily(
        "topospread_constraints_missing",
        "1 for the reason why the constraints of the newest state are not counted: "
        f"{', '.join(MISSING)}.",
        labels=("cluster", "reason"),
    )
    for one in clusters:
        age.add_metric((one.cluster,), one.age_seconds)
        for reason in MISSING:
            missing.add_metric((one.cluster, reason), float(one.missing == reason))
    yield age
    yield missing
    shown = [
        ((one.cluster, *map(label_value, each.labels)), each)
        for one in clusters
        for each in one.constraints
    ]
    for name, text, read in (
        ("skew", "Pods in the fullest eligible domain, less the global minimum.", "skew"),
        ("max_skew", "maxSkew of the constraint.", "max_skew"),
        ("blocked_pods", "Waiting pods that a node could take without this constraint.", "blocked"),
    ):
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=LABELS)
        for labels, each in shown:
            family.add_metric(labels, getattr(each, read))
        yield family
    states = GaugeMetricFamily(
        f"{PREFIX}_state",
        "1 for the state that the constraint is in, 0 for the others.",
        labels=(*LABELS, "state"),
    )
    for labels, each in shown:
        for state in STATES:
            states.add_metric((*labels, state), float(each.state == state))
    yield states


def label_value(text: str) -> str:
    """The beginning of a text that came with an object, with "?" for what cannot be printed."""
    cut = text[:MOST_BYTES].encode("utf-8", "replace")[:MOST_BYTES].decode("utf-8", "ignore")
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
