"""How an order of deletion is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import printing

if TYPE_CHECKING:
    from topospread_client.ranking import Ranked, RankedConstraint, RankedPod


def show(ranked: Ranked, form: str, cluster: str) -> None:
    """Print an order in the form asked for."""
    if form == "name":
        several = len({pod.namespace for pod in ranked.pods}) > 1
        for pod in ranked.pods:
            printing.say(f"{pod.namespace}/{pod.name}" if several else pod.name)
    elif form == "table":
        _print(ranked)
    else:
        printing.structure({"cluster": cluster, **_structure(ranked)}, form)


def _print(ranked: Ranked) -> None:
    if ranked.constraints:
        rows = [_before(each) for each in ranked.constraints]
        printing.table(["TOPOLOGY KEY", "#MAX SKEW", "#SKEW", "PODS BY DOMAIN"], rows)
        click.echo()
    if ranked.pods:
        columns = ["#", "POD", "NODE", "#RANK"]
        for each in ranked.constraints:
            columns += [each.topology_key.rpartition("/")[2].upper(), "#SKEW AFTER"]
        rows = [_row(place, pod) for place, pod in enumerate(ranked.pods, start=1)]
        printing.table(columns, rows)
        click.echo()
    if ranked.constraints:
        outcomes = [(o.strategy, o.kept, o.within, o.last_skew) for o in ranked.outcomes]
        printing.table(["STRATEGY", "#KEPT", "#WITHIN", "#LAST SKEW"], outcomes)
        click.echo()
    longest = ranked.keeps_longest
    printing.fields(
        [
            ("strategy", ranked.strategy),
            ("keeps maxSkew longest", longest and f"{longest} ({_times(ranked)})"),
            ("ranked", f"{ranked.ranked} pods"),
            ("left out", f"{ranked.left_out} pods that go anyway" if ranked.left_out else None),
            ("revision", ranked.revision),
            ("trace", ranked.trace_id),
        ]
    )


def _times(ranked: Ranked) -> str:
    """For how long the best strategy keeps maxSkew."""
    kept = next(each.kept for each in ranked.outcomes if each.strategy == ranked.keeps_longest)
    deletions = len(ranked.pods)
    return "for all deletions" if kept == deletions else f"for {kept} of {deletions} deletions"


def _before(constraint: RankedConstraint) -> list[object]:
    fullest = [f"{domain} {pods}" for domain, pods in list(constraint.pods.items())[:10]]
    more = constraint.domain_count - len(fullest)
    text = ", ".join(fullest) + (f" … and {more} more" if more else "")
    limits = f"={','.join(constraint.limited_values)}" if constraint.limited_values else ""
    return [constraint.topology_key + limits, constraint.max_skew, constraint.skew, text]


def _row(place: int, pod: RankedPod) -> list[object]:
    row: list[object] = [place, f"{pod.namespace}/{pod.name}", pod.node, f"{pod.rank:g}"]
    for domain, skew in zip(pod.domains, pod.skews, strict=True):
        row += [domain, skew]
    return row


def _structure(ranked: Ranked) -> dict[str, object]:
    return {
        "revision": ranked.revision,
        "strategy": ranked.strategy,
        "keepsLongest": ranked.keeps_longest,
        "ranked": ranked.ranked,
        "leftOut": ranked.left_out,
        "constraints": [
            {
                "topologyKey": each.topology_key,
                "limitedValues": list(each.limited_values),
                "maxSkew": each.max_skew,
                "minDomains": each.min_domains,
                "skew": each.skew,
                "pods": dict(each.pods),
                "domainCount": each.domain_count,
            }
            for each in ranked.constraints
        ],
        "outcomes": [
            {
                "strategy": each.strategy,
                "kept": each.kept,
                "within": each.within,
                "lastSkew": each.last_skew,
            }
            for each in ranked.outcomes
        ],
        "pods": [
            {
                "namespace": each.namespace,
                "name": each.name,
                "uid": each.uid,
                "node": each.node,
                "rank": each.rank,
                "domains": list(each.domains),
                "skews": list(each.skews),
            }
            for each in ranked.pods
        ],
        "notes": list(ranked.notes),
        "traceId": ranked.trace_id,
    }
