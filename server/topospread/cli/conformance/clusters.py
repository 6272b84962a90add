"""Large clusters with several incoming pods, and the hashes of what was answered."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from topospread.cli.conformance.cases import Case, Difference
from topospread.cli.conformance.comparing import differences
from topospread.cli.conformance.decisions import answers_of, compare_evaluation
from topospread.cli.conformance.rules import settings_of
from topospread_client import InvalidRequest, ManifestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.cli.conformance.cases import Ground
    from topospread.cli.conformance.recordings import Record


def cluster_cases(record: Record) -> Iterator[Case]:
    """One case for each incoming pod."""
    content = record.content
    name = content.get("name", record.source)
    for incoming in content["incoming"]:
        yield Case(
            name=f"{name}/{incoming['name']}",
            source=record.source,
            cluster=content["cluster"],
            ask=partial(_differences, incoming),
            remark=f"{incoming.get('shape', '')}: {_summary(incoming['compact'])}",
        )


def _differences(incoming: Mapping[str, Any], ground: Ground) -> Sequence[Difference]:
    try:
        got = answers_of(incoming, ground)
        evaluation = ground.client.evaluate_pod(incoming["pod"], settings=settings_of(incoming))
    except (InvalidRequest, ManifestError) as error:
        return [Difference("request", "accepted", f"refused: {error}")]
    found = differences(incoming["compact"], compacted(got))
    if "expect" in incoming:
        found += differences(incoming["expect"], got)
        found += compare_evaluation(
            _without_scores(incoming["expect"]), evaluation, len(ground.nodes)
        )
    return found


def compacted(got: Mapping[str, Any]) -> dict[str, Any]:
    """Answers as counts and hashes."""
    compact: dict[str, Any] = {"preFilter": got["preFilter"]}
    if "filter" in got:
        compact["filterCounts"] = dict(Counter(s["code"] for s in got["filter"].values()))
        compact["filterSha256"] = _sha256(got["filter"])
    if "preScore" in got:
        compact["preScore"] = got["preScore"]
    if "score" in got:
        compact["scoreDistinct"] = len(set(got["score"].values()))
        compact["scoreSha256"] = _sha256(got["score"])
        compact["normalizedSha256"] = _sha256(got["normalized"])
    return compact


def _without_scores(expected: Mapping[str, Any]) -> dict[str, Any]:
    """EvaluatePod names the best nodes only: the scores of all are compared with Score's."""
    return {member: value for member, value in expected.items() if member != "normalized"}


def _sha256(value: object) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _summary(compact: Mapping[str, Any]) -> str:
    counts = compact.get("filterCounts") or {}
    parts = [f"{nodes} {code}" for code, nodes in counts.items()]
    if "scoreDistinct" in compact:
        parts.append(f"{compact['scoreDistinct']} distinct scores")
    return ", ".join(parts) or compact["preFilter"]["code"]
