"""How an order of deletion is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import printing, structures

if TYPE_CHECKING:
    from topospread_client import RankDeletionsResponse, RankedConstraint, RankedPod


def show(ranked: RankDeletionsResponse, form: str, cluster: str) -> None:
    """Print an order in the form asked for."""
    if form == "name":
        several = len({each.pod.namespace for each in ranked.pods}) > 1
        for each in ranked.pods:
            printing.say(each.pod.full_name if several else each.pod.name)
    elif form == "table":
        _print(ranked)
    else:
        structures.show("DeletionOrder", form, cluster=cluster, answer=ranked)


def _print(ranked: RankDeletionsResponse) -> None:
    if ranked.constraints:
        rows = [_before(each) for each in ranked.constraints]
        printing.table(["TOPOLOGY KEY", "#MAX SKEW", "#SKEW", "PODS BY DOMAIN"], rows)
        click.echo()
    if ranked.pods:
        columns = ["#", "POD", "NODE", "#RANK"]
        for each in ranked.constraints:
            key = each.constraint.topology_key
            columns += [key.rpartition("/")[2].upper(), "#SKEW AFTER"]
        rows = [_row(place, pod) for place, pod in enumerate(ranked.pods, start=1)]
        printing.table(columns, rows)
        click.echo()
    if ranked.constraints:
        outcomes = [
            (structures.words(each.strategy), each.kept_count, each.within_count, each.last_skew)
            for each in ranked.outcomes
        ]
        printing.table(["STRATEGY", "#KEPT", "#WITHIN", "#LAST SKEW"], outcomes)
        click.echo()
    longest, ending = ranked.keeps_longest, ranked.ending_pod_count
    printing.fields(
        [
            ("strategy", structures.words(ranked.strategy)),
            (
                "keeps maxSkew longest",
                longest and f"{structures.words(longest)} ({_times(ranked)})",
            ),
            ("ranked", f"{ranked.ranked_pod_count} pods"),
            ("left out", f"{ending} pods that go anyway" if ending else None),
            ("revision", ranked.revision),
            ("trace", ranked.trace_id),
        ]
    )


def _times(ranked: RankDeletionsResponse) -> str:
    """For how long the best strategy keeps maxSkew."""
    best = (each for each in ranked.outcomes if each.strategy == ranked.keeps_longest)
    kept, deletions = next(best).kept_count, len(ranked.pods)
    return "for all deletions" if kept == deletions else f"for {kept} of {deletions} deletions"


def _before(ranked: RankedConstraint) -> list[object]:
    fullest = [f"{each.value} {each.pod_count}" for each in ranked.domain_counts[:10]]
    more = ranked.domain_count - len(fullest)
    text = ", ".join(fullest) + (f" … and {more} more" if more else "")
    limits = f"={','.join(ranked.limited_values)}" if ranked.limited_values else ""
    constraint = ranked.constraint
    return [constraint.topology_key + limits, constraint.max_skew, ranked.skew, text]


def _row(place: int, ranked: RankedPod) -> list[object]:
    row: list[object] = [place, ranked.pod.full_name, ranked.node, f"{ranked.rank:g}"]
    for domain, skew in zip(ranked.domains, ranked.skews, strict=True):
        row += [domain, skew]
    return row
