"""Strategies beyond those of the reference: odd constraints, and histories with questions."""

from dataclasses import dataclass, replace
from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.conformance.cases import Decision, Json
from tests.reference.histories import Change, any_change, changed
from tests.reference.strategies import any_of, cases, clusters, kind_of, maybe, questions

BIGGEST = 2**31 - 1


@cache
def odd_cases() -> SearchStrategy[Decision]:
    """Cases with constraints that an API server would refuse and a plugin copes with."""
    low = st.fixed_dictionaries(
        {"maxSkew": any_of(0, 0, 0, -1, -7), "whenUnsatisfiable": any_of("ScheduleAnyway")}
    )
    odd = maybe(
        {
            "maxSkew": any_of(0, -1, BIGGEST, -BIGGEST - 1),
            "minDomains": any_of(0, -1, BIGGEST),
            "topologyKey": any_of("", "not a key!", "kubernetes.io/hostname"),
            "whenUnsatisfiable": any_of("ScheduleAnyway", "ScheduleAnyway", "DoNotSchedule", ""),
            "nodeAffinityPolicy": any_of("", "Sometimes"),
            "nodeTaintsPolicy": any_of("", "Sometimes"),
            "matchLabelKeys": any_of(["a b"], ["app", "app"], [""]),
        }
    )
    return st.tuples(cases(), st.lists(kind_of(low, odd), min_size=4, max_size=4)).map(
        lambda drawn: replace(drawn[0], pod=with_odd_fields(drawn[0].pod, drawn[1]))
    )


def with_odd_fields(pod: Json, odd: list[Json]) -> Json:
    """The pod with other values in its constraints."""
    own = pod["spec"].get("topologySpreadConstraints") or []
    changed = [constraint | other for constraint, other in zip(own, odd, strict=False)]
    return pod | {"spec": pod["spec"] | {"topologySpreadConstraints": changed}}


@cache
def plain_cases() -> SearchStrategy[Decision]:
    """Cases without settings or what-ifs, scored on what passes Filter."""
    return kind_of(cases(), cases(), odd_cases()).map(
        lambda case: replace(case, args={}, gates={}, ops=[], filter_nodes=None)
    )


@dataclass(frozen=True)
class Interview:
    """A cluster's history, and questions that are asked after each batch of changes.

    Attributes:
        batches: the changes, cut into what is folded at once.
    """

    start: Json
    batches: list[list[Change]]
    questions: list[Decision]


@st.composite
def interviews(draw: DrawFn, max_changes: int = 16) -> Interview:
    """A history with two or three questions."""
    cluster = start = draw(clusters())
    asked = draw(st.lists(questions(start), min_size=2, max_size=3))
    batches: list[list[Change]] = []
    for _ in range(draw(st.integers(1, max_changes))):
        change = draw(any_change(cluster))
        cluster = changed(cluster, change)
        if not batches or draw(any_of(True, True, False)):
            batches.append([])
        batches[-1].append(change)
    return Interview(start, batches, asked)


def at(case: Decision, cluster: Json) -> Decision:
    """The same question of another state; of the nodes to score, those that are still there."""
    chosen = case.filter_nodes
    if chosen is not None:
        names = {node["metadata"]["name"] for node in cluster["nodes"]}
        chosen = [name for name in chosen if name in names] or None
    return replace(case, cluster=cluster, filter_nodes=chosen)
