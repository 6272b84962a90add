"""An order of deletion as `rank-deletions` prints it."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.kinds import full_name
from topospread.cli.output import Column
from topospread.wording import counted
from topospread_proto.v1.deletion_order_pb2 import (
    RANK_STRATEGY_JOB,
    RANK_STRATEGY_STATEFUL_SET,
    RankStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_proto.v1.deletion_order_pb2 import (
        RankedConstraint,
        RankedPod,
        RankOutcome,
    )
    from topospread_proto.v1.planner_service_pb2 import RankDeletionsResponse

_ALTERNATIVES: Final = 20
"""Pods that may go in the place of others, in a table."""

_CONSTRAINTS: Final = (
    Column("TOPOLOGY KEY", lambda each: each.constraint.topology_key + _limits(each)),
    Column("#MAX SKEW", attrgetter("constraint.max_skew")),
    Column("#SKEW", attrgetter("skew")),
    Column("PODS BY DOMAIN", lambda each: _domains(each)),
)

_PODS: Final = (
    Column("#", lambda row: row[0]),
    Column("POD", lambda row: full_name(row[1].pod)),
    Column("NODE", lambda row: row[1].node),
    Column("#RANK", lambda row: f"{row[1].rank:g}"),
)
"""Of pods with their places in the order."""

_OWN_RANKS: Final = {
    RANK_STRATEGY_STATEFUL_SET: Column("#ORDINAL", lambda row: f"{row[1].rank:g}"),
    RANK_STRATEGY_JOB: Column("IN ANY CASE", lambda row: output.yes_no(row[1].rank > 0)),
}
"""Columns in the place of RANK where a controller takes no order."""

_OUTCOMES: Final = (
    Column("STRATEGY", lambda each: _words(each.strategy)),
    Column("#KEPT", lambda each: _unless_chance(each, each.kept_count)),
    Column("#WITHIN", lambda each: _unless_chance(each, each.within_count)),
    Column("#LAST SKEW", lambda each: _between(each.lowest_last_skew, each.highest_last_skew)),
)


_CERTAIN: Final = Column("CERTAIN", lambda row: output.yes_no(row[1].certain))


def _columns_of_constraint(index: int, heading: str) -> list[Column]:
    return [
        Column(heading, lambda row: row[1].domains[index]),
        Column("#SKEW AFTER", lambda row: row[1].skews[index] if row[1].skews else ""),
    ]


def _rows(ranked: RankDeletionsResponse) -> list[tuple[object, RankedPod]]:
    """The pods in order with their places, then those that may go in the place of some."""
    first: list[tuple[object, RankedPod]] = [*enumerate(ranked.pods, start=1)]
    return [*first, *(("or", each) for each in _alternatives(ranked))]


def _alternatives(ranked: RankDeletionsResponse) -> Sequence[RankedPod]:
    return ranked.alternatives[:_ALTERNATIVES]


def print_order(ranked: RankDeletionsResponse) -> None:
    """Print the constraints, the order, what strategies leave, and who decides."""
    pods = [*_PODS[:-1], _OWN_RANKS.get(ranked.strategy, _PODS[-1])]
    if ranked.strategy == RANK_STRATEGY_JOB and not any(each.rank for each in ranked.pods):
        pods.pop()
    if ranked.alternative_count:
        pods.append(_CERTAIN)
    for index, each in enumerate(ranked.constraints):
        key = each.constraint.topology_key.rpartition("/")[2].upper()
        pods += _columns_of_constraint(index, key)
    outcomes = ranked.outcomes if ranked.constraints else ()
    for columns, rows in (
        (_CONSTRAINTS, ranked.constraints),
        (pods, _rows(ranked)),
        (_OUTCOMES, outcomes),
    ):
        if rows:
            output.print_items(columns, rows)
            click.echo()
    longest, ending = ranked.keeps_longest, ranked.ending_pod_count
    output.fields(
        [
            ("who decides", ranked.decider.text),
            ("strategy", _words(ranked.strategy)),
            (
                "keeps maxSkew longest",
                f"{_words(longest)} ({_times(ranked)})" if longest else "",
            ),
            ("chance", _chance(ranked)),
            ("ranked", counted(ranked.ranked_pod_count, "pod")),
            ("left out", _going(ending) if ending else None),
            ("revision", ranked.meta.revision),
            ("trace", documents.trace_id(ranked)),
        ]
    )


def _going(pods: int) -> str:
    return f"{counted(pods, 'pod')} that {'goes' if pods == 1 else 'go'} anyway"


def _unless_chance(outcome: RankOutcome, number: int) -> int | str:
    return number if outcome.certain else "chance"


def _between(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _chance(ranked: RankDeletionsResponse) -> str | None:
    """What is open where some pods are equal to who decides."""
    if not ranked.alternative_count:
        return None
    certain = sum(each.certain for each in ranked.pods)
    some = len(ranked.pods) - certain
    others = some + ranked.alternative_count
    text = f"{counted(certain, 'pod')} in any case, and {some} of these {others}"
    if unlisted := ranked.alternative_count - len(_alternatives(ranked)):
        text += f" ({unlisted} are not listed)"
    skews = []
    for each in ranked.constraints:
        between = _between(each.lowest_skew_after, each.highest_skew_after)
        skews.append(f"{each.constraint.topology_key} {between}")
    return text + (f"; skew then: {', '.join(skews)}" if skews else "")


def _words(strategy: int) -> str:
    return documents.words(documents.value_name(RankStrategy, strategy))


def _times(ranked: RankDeletionsResponse) -> str:
    """Number of deletions during which the best strategy keeps maxSkew."""
    best = (each for each in ranked.outcomes if each.strategy == ranked.keeps_longest)
    kept, deletions = next(best).kept_count, len(ranked.pods)
    if kept == deletions:
        return "for all deletions"
    return f"for {kept} of {counted(deletions, 'deletion')}"


def _limits(ranked: RankedConstraint) -> str:
    return f"={','.join(ranked.limited_values)}" if ranked.limited_values else ""


def _domains(ranked: RankedConstraint) -> str:
    fullest = [f"{each.value} {each.pod_count}" for each in ranked.domain_counts[:10]]
    more = ranked.domain_count - len(fullest)
    return ", ".join(fullest) + (f" … and {more} more" if more else "")
