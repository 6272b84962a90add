"""The plugin's answers for one pod: PreFilter, what-ifs, Filter, PreScore, Score, EvaluatePod."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.conformance.cases import Case, Difference
from topospread.cli.conformance.comparing import ABSENT, differences, recorded_form
from topospread.cli.conformance.rules import settings_of
from topospread_client import Consistency, InvalidRequest, ManifestError, PodOnNode, VerdictCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.cli.conformance.cases import Ground
    from topospread.cli.conformance.recordings import Record
    from topospread_client import EvaluatePodResponse

_ALL: Final = 1000
"""Best nodes that EvaluatePod names at most."""


def decision_case(record: Record) -> Case:
    """A case of decisions.jsonl."""
    content = record.content
    ask = partial(_differences, content)
    return Case(content["name"], record.source, content["cluster"], ask)


def _differences(record: Mapping[str, Any], ground: Ground) -> Sequence[Difference]:
    expected: Mapping[str, Any] = record["expect"]
    try:
        got = answers_of(record, ground)
    except (InvalidRequest, ManifestError) as error:
        if "newError" in expected:
            return []
        return [Difference("request", "accepted", f"refused: {error}")]
    if "newError" in expected:
        return [Difference("newError", expected["newError"], "accepted")]
    found = differences(expected, got)
    if "filterNodes" not in record:
        found += _in_one_call(record, expected, ground)
    return found


def answers_of(record: Mapping[str, Any], ground: Ground) -> dict[str, Any]:
    """Walk through a scheduling cycle as the scheduler does; answers in the recordings' form.

    Raises:
        InvalidRequest: the server refuses the pod or the rules.
        ManifestError: they cannot be sent.
    """
    pod, settings = record["pod"], settings_of(record)
    add, remove = what_ifs(record)
    client, got = ground.client, dict[str, Any]()
    before = client.pre_filter(
        pod,
        add_pods=add,
        remove_pods=remove,
        settings=settings,
        consistency=Consistency(at_least_as_fresh=ground.revision),
    )
    got["preFilter"] = recorded_form(before.verdict)
    if before.verdict.code not in {VerdictCode.SUCCESS, VerdictCode.SKIP}:
        return got
    left = len(ground.nodes)
    if before.verdict.success:
        if record.get("ops"):
            got["ops"] = _in_order(
                record["ops"], [recorded_form(s) for s in before.extension_verdicts]
            )
        verdicts = client.filter(cycle=before.cycle)
        got["filter"] = {node: recorded_form(s) for node, s in verdicts.by_node().items()}
        left = len(verdicts.feasible())
    chosen = record.get("filterNodes")
    if (left if chosen is None else len(chosen)) == 0:
        return got
    scores = client.score(cycle=before.cycle, candidates=chosen)
    got["preScore"] = recorded_form(scores.verdict)
    if scores.verdict.success:
        got["score"] = scores.raw_by_node()
        got["normalized"] = scores.normalized_by_node()
    return got


def what_ifs(record: Mapping[str, Any]) -> tuple[list[PodOnNode], list[PodOnNode]]:
    """The additions and the removals; with a true minimum their order does not matter."""
    ops = record.get("ops") or []
    add = [PodOnNode(op["pod"], op["node"]) for op in ops if op["op"] == "add"]
    remove = [PodOnNode(op["pod"], op["node"]) for op in ops if op["op"] == "remove"]
    return add, remove


def _in_order(ops: Sequence[Mapping[str, Any]], statuses: list[Any]) -> list[Any]:
    """Statuses in the order of the ops; the server answers additions first."""
    additions = sum(op["op"] == "add" for op in ops)
    added, removed = iter(statuses[:additions]), iter(statuses[additions:])
    return [next(added if op["op"] == "add" else removed, ABSENT) for op in ops]


def _in_one_call(
    record: Mapping[str, Any], expected: Mapping[str, Any], ground: Ground
) -> list[Difference]:
    """The same from EvaluatePod, as far as it says it: counts by verdict, and the best nodes."""
    add, remove = what_ifs(record)
    evaluation = ground.client.evaluate_pod(
        record["pod"],
        top_k=_ALL,
        add_pods=add,
        remove_pods=remove,
        settings=settings_of(record),
    )
    return compare_evaluation(expected, evaluation, len(ground.nodes))


def compare_evaluation(
    expected: Mapping[str, Any], evaluation: EvaluatePodResponse, nodes: int
) -> list[Difference]:
    """What EvaluatePod says otherwise than the recorded extension points."""
    wanted: dict[str, Any] = {"evaluate.preFilter": expected["preFilter"]}
    got: dict[str, Any] = {"evaluate.preFilter": recorded_form(evaluation.pre_filter_verdict)}
    if expected["preFilter"]["code"] != VerdictCode.ERROR.label:
        counts: dict[str, int] = {}
        for status in (expected.get("filter") or {}).values():
            counts[status["code"]] = counts.get(status["code"], 0) + 1
        if "filter" not in expected and nodes:
            counts[VerdictCode.SUCCESS.label] = nodes
        wanted["evaluate.verdicts"] = counts
        got["evaluate.verdicts"] = _counts(evaluation)
    if "normalized" in expected and len(expected["normalized"]) <= _ALL:
        wanted["evaluate.top"] = {
            node: {"raw": expected["score"][node], "normalized": normalized}
            for node, normalized in expected["normalized"].items()
        }
        got["evaluate.top"] = {
            top.node: {"raw": top.raw, "normalized": top.normalized} for top in evaluation.top_nodes
        }
    return differences(wanted, got)


def _counts(evaluation: EvaluatePodResponse) -> dict[str, int]:
    counts: dict[str, int] = {}
    for counted in evaluation.verdict_counts:
        label = counted.verdict.code.label
        counts[label] = counts.get(label, 0) + counted.node_count
    return counts
