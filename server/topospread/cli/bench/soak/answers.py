"""What a server answers about a cluster that stands still, in a form that compares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.bench.soak import templates
from topospread_client import Consistency

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.cli.bench.soak.templates import Template
    from topospread_client import Client

_NEWEST: Final = Consistency(fully_consistent=True)


def answers(client: Client, about: Iterable[Template]) -> dict[str, Any]:
    """EvaluatePod and Filter a pod of each template, and Filter one with a selector of its own.

    Returns:
        By what was asked: equal servers with equal states give equal answers.
    """
    found: dict[str, Any] = {}
    for number, template in enumerate(about):
        pod, other = templates.incoming(template, number), templates.never_seen(template, number)
        who = f"{template.namespace}/{pod.metadata.name}"
        evaluation = client.evaluate_pod(pod, consistency=_NEWEST)
        found[f"EvaluatePod {who}"] = replace(evaluation, traceparent=None)
        for what, asked in (("Filter", pod), ("Filter by its own selector", other)):
            verdicts = client.filter(asked, consistency=_NEWEST)
            judged = (verdicts.revision, verdicts.verdict, verdicts.by_node())
            found[f"{what} {who}"] = judged
    return found


def unlike(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What two servers answered differently."""
    return [asked for asked, answer in old.items() if answer != new[asked]]
