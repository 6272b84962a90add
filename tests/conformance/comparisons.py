"""A case for each kind of record: how to ask a server again, and what differs.

Decisions walk through the plugin's extension points and EvaluatePod; large clusters compare counts
and hashes; fit errors the message on a pod that fits nowhere; validations and plugin arguments what
is refused.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.conformance.calls import label_of, status_of
from tests.conformance.cases import ABSENT, Difference, compact, differences
from tests.conformance.recordings import (
    CaseResult,
    RecordedCase,
    compare_unordered,
    settings_of,
)
from topospread.spread.verdicts import Code, fit_message
from topospread_client import (
    InvalidRequest,
    ManifestError,
    feasible,
    normalized_by_node,
    raw_by_node,
    verdicts_by_node,
)
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.conformance.recordings import (
        Cluster,
        LoadedCluster,
        Record,
        RecordedDecisions,
    )
    from topospread_proto.v1.decision_service_pb2 import EvaluatePodResponse


_MAX_TOP_NODES: Final = 1000
"""Best nodes that EvaluatePod names at most."""

_SCHEDULER_ERROR: Final = "SchedulerError"
_ANY_CLUSTER: Final[Cluster] = {
    "nodes": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "any"}}]
}
_PLAIN_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "any", "namespace": "default"},
}
_ELLIPSIS: Final = "…"
_ROOTS: Final = ("pod.object.", "settings.args.")
"""Where in a request pods and arguments are."""


def decision_case(record: Record) -> RecordedCase:
    """A case of decisions.jsonl."""
    content = record.content
    ask = partial(_decision_differences, content)
    return RecordedCase(content["name"], record.source, content["cluster"], ask)


def _decision_differences(record: Mapping[str, Any], loaded: LoadedCluster) -> Sequence[Difference]:
    expected: Mapping[str, Any] = record["expect"]
    try:
        got = run_scheduling_cycle(record, loaded)
    except (InvalidRequest, ManifestError) as error:
        if "newError" in expected:
            return []
        return [Difference("request", "accepted", f"refused: {error}")]
    if "newError" in expected:
        return [Difference("newError", expected["newError"], "accepted")]
    found = differences(expected, got)
    if "filterNodes" not in record:
        found += _evaluation_differences(record, expected, loaded)
    return found


def run_scheduling_cycle(record: Mapping[str, Any], loaded: LoadedCluster) -> dict[str, Any]:
    """Walk through a scheduling cycle as the scheduler does; answers in the recordings' form.

    Raises:
        InvalidRequest: the server refuses the pod or the rules.
        ManifestError: they cannot be sent.
    """
    pod, settings = record["pod"], settings_of(record)
    add, remove = hypothetical_pods(record)
    client, got = loaded.client, dict[str, Any]()
    before = client.pre_filter(
        pod,
        add_pods=add,
        remove_pods=remove,
        settings=settings,
        consistency=loaded.revision,
    )
    got["preFilter"] = status_of(before.verdict)
    if before.verdict.code not in {common_pb2.VERDICT_CODE_SUCCESS, common_pb2.VERDICT_CODE_SKIP}:
        return got
    left = len(loaded.nodes)
    if before.verdict.code == common_pb2.VERDICT_CODE_SUCCESS:
        if record.get("ops"):
            got["ops"] = _in_order(record["ops"], [status_of(s) for s in before.extension_verdicts])
        verdicts = client.filter(cycle=before.cycle)
        got["filter"] = {node: status_of(s) for node, s in verdicts_by_node(verdicts).items()}
        left = len(feasible(verdicts))
    chosen = record.get("filterNodes")
    if (left if chosen is None else len(chosen)) == 0:
        return got
    scores = client.score(cycle=before.cycle, candidates=chosen)
    got["preScore"] = status_of(scores.verdict)
    if scores.verdict.code == common_pb2.VERDICT_CODE_SUCCESS:
        got["score"] = raw_by_node(scores)
        got["normalized"] = normalized_by_node(scores)
    return got


def hypothetical_pods(record: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Pods that a record adds and removes; with an exact minimum their order does not matter."""
    ops = record.get("ops") or []
    add = [(op["pod"], op["node"]) for op in ops if op["op"] == "add"]
    remove = [(op["pod"], op["node"]) for op in ops if op["op"] == "remove"]
    return add, remove


def _in_order(ops: Sequence[Mapping[str, Any]], statuses: list[Any]) -> list[Any]:
    """Statuses in the order of the ops; the server answers additions first."""
    additions = sum(op["op"] == "add" for op in ops)
    added, removed = iter(statuses[:additions]), iter(statuses[additions:])
    return [next(added if op["op"] == "add" else removed, ABSENT) for op in ops]


def _evaluation_differences(
    record: Mapping[str, Any], expected: Mapping[str, Any], loaded: LoadedCluster
) -> list[Difference]:
    """Compare EvaluatePod as far as it answers the same: counts by verdict, and the best nodes."""
    add, remove = hypothetical_pods(record)
    evaluation = loaded.client.evaluate_pod(
        record["pod"],
        top_k=_MAX_TOP_NODES,
        add_pods=add,
        remove_pods=remove,
        settings=settings_of(record),
    )
    return compare_evaluation(expected, evaluation, len(loaded.nodes))


def compare_evaluation(
    expected: Mapping[str, Any], evaluation: EvaluatePodResponse, nodes: int
) -> list[Difference]:
    """The differences between EvaluatePod and the recorded extension points."""
    wanted: dict[str, Any] = {"evaluate.preFilter": expected["preFilter"]}
    got: dict[str, Any] = {"evaluate.preFilter": status_of(evaluation.pre_filter_verdict)}
    if expected["preFilter"]["code"] != Code.ERROR.label:
        counts: dict[str, int] = {}
        for status in (expected.get("filter") or {}).values():
            counts[status["code"]] = counts.get(status["code"], 0) + 1
        if "filter" not in expected and nodes:
            counts[Code.SUCCESS.label] = nodes
        wanted["evaluate.verdicts"] = counts
        got["evaluate.verdicts"] = _counts(evaluation)
    if "normalized" in expected and len(expected["normalized"]) <= _MAX_TOP_NODES:
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
        label = label_of(counted.verdict)
        counts[label] = counts.get(label, 0) + counted.node_count
    return counts


def cluster_cases(record: Record) -> Iterator[RecordedCase]:
    """One case for each incoming pod."""
    content = record.content
    name = content.get("name", record.source)
    for incoming in content["incoming"]:
        yield RecordedCase(
            name=f"{name}/{incoming['name']}",
            source=record.source,
            cluster=content["cluster"],
            ask=partial(_cluster_differences, incoming),
            remark=f"{incoming.get('shape', '')}: {_summary(incoming['compact'])}",
        )


def _cluster_differences(
    incoming: Mapping[str, Any], loaded: LoadedCluster
) -> Sequence[Difference]:
    try:
        got = run_scheduling_cycle(incoming, loaded)
        evaluation = loaded.client.evaluate_pod(incoming["pod"], settings=settings_of(incoming))
    except (InvalidRequest, ManifestError) as error:
        return [Difference("request", "accepted", f"refused: {error}")]
    found = differences(incoming["compact"], compact(got))
    if "expect" in incoming:
        found += differences(incoming["expect"], got)
        found += compare_evaluation(
            _without_scores(incoming["expect"]), evaluation, len(loaded.nodes)
        )
    return found


def _without_scores(expected: Mapping[str, Any]) -> dict[str, Any]:
    """EvaluatePod names the best nodes only: the scores of all are compared with Score's."""
    return {member: value for member, value in expected.items() if member != "normalized"}


def _summary(compact: Mapping[str, Any]) -> str:
    counts = compact.get("filterCounts") or {}
    parts = [f"{nodes} {code}" for code, nodes in counts.items()]
    if "scoreDistinct" in compact:
        parts.append(f"{compact['scoreDistinct']} distinct scores")
    return ", ".join(parts) or compact["preFilter"]["code"]


def fit_error_case(record: Record, decisions: RecordedDecisions) -> RecordedCase:
    """A case of fiterrors.jsonl: the condition of a pod of another recording."""
    content = record.content
    cluster, decision = decisions[content["case"]]
    ask = partial(_condition_differences, content, decision)
    return RecordedCase(content["case"], record.source, cluster, ask)


def _condition_differences(
    record: Mapping[str, Any], decision: Mapping[str, Any], loaded: LoadedCluster
) -> Sequence[Difference]:
    add, remove = hypothetical_pods(decision)
    try:
        evaluation = loaded.client.evaluate_pod(
            decision["pod"],
            add_pods=add,
            remove_pods=remove,
            settings=settings_of(decision),
            consistency=loaded.revision,
        )
    except InvalidRequest as error:
        return [Difference("request", "accepted", f"refused: {error}")]
    wanted = {"reason": record["reason"], "message": record["message"]}
    got = {"reason": evaluation.reason, "message": evaluation.message}
    if record["reason"] == _SCHEDULER_ERROR and evaluation.message:
        got["message"] = wanted["message"]  # the text is the parser's own: its presence counts
    return differences(wanted, got)


def fit_counts_result(record: Record) -> CaseResult:
    """A case of fitcounts.jsonl: so many nodes with such a verdict, other plugins' included.

    No call takes verdicts of other plugins: this asks the function behind EvaluatePod's message.
    """
    content = record.content
    counts: Counter[str] = Counter()
    for status in content["statuses"]:
        for reason in status["reasons"]:
            counts[reason] += status["nodes"]
    nodes = sum(status["nodes"] for status in content["statuses"])
    got = {"message": fit_message(nodes, counts)}
    found = differences({"message": content["message"]}, got)
    return CaseResult(content["name"], record.source, found)


def validation_case(record: Record) -> RecordedCase:
    """A case of validation.jsonl: a pod that is created."""
    return RecordedCase(
        record.content["name"],
        record.source,
        _ANY_CLUSTER,
        partial(_validation_differences, record.content),
    )


def args_case(record: Record) -> RecordedCase:
    """A case of args.jsonl: PodTopologySpreadArgs that are configured."""
    return RecordedCase(
        record.content["name"],
        record.source,
        _ANY_CLUSTER,
        partial(_args_differences, record.content),
    )


def _validation_differences(
    record: Mapping[str, Any], loaded: LoadedCluster
) -> Sequence[Difference]:
    try:
        loaded.client.pre_filter(record["pod"], consistency=loaded.revision, validation="STRICT")
    except InvalidRequest as error:
        # The recorded message names errors elsewhere in the pod, too, which no server looks for.
        message = None if record.get("otherErrors") else record.get("message")
        return _compare_violations(record["expect"], error, _after_title(message, record["pod"]))
    except ManifestError as error:
        return [Difference("request", "can be sent", str(error))]
    return _all_missing(record["expect"])


def _args_differences(record: Mapping[str, Any], loaded: LoadedCluster) -> Sequence[Difference]:
    settings = {"args": record["args"]}
    try:
        loaded.client.pre_filter(_PLAIN_POD, consistency=loaded.revision, settings=settings)
    except InvalidRequest as error:
        return _compare_violations(record["expect"], error, record.get("message"))
    except ManifestError as error:
        return [Difference("request", "can be sent", str(error))]
    return _all_missing(record["expect"])


def _all_missing(expected: Sequence[Mapping[str, Any]]) -> list[Difference]:
    return [Difference("violations", _violation_text(one), ABSENT) for one in expected]


def _compare_violations(
    expected: Sequence[Mapping[str, Any]], error: InvalidRequest, message: str | None
) -> list[Difference]:
    """All recorded violations must be there; the last one may count those left out."""
    got = [_without_root(violation.text) for violation in error.violations if violation.field]
    wanted = [_violation_text(one) for one in expected]
    more = _omitted_violations(error)
    if more:
        found = compare_unordered("violations", [text for text in wanted if text in got], got)
        if len(got) + more != len(wanted):
            found.append(Difference("violations", f"{len(wanted)} in all", f"{len(got) + more}"))
    else:
        found = compare_unordered("violations", wanted, got)
    if not wanted and not got:
        found.append(Difference("request", "accepted", f"refused: {error}"))
    if message is not None and not _same_message(message, str(error)):
        found.append(Difference("message", message, str(error)))
    return found


def _without_root(text: str) -> str:
    """A violation's text without the path of the pod or the arguments in a request."""
    for root in _ROOTS:
        text = text.removeprefix(root)
    return text


def _omitted_violations(error: InvalidRequest) -> int:
    """The number of violations that the error left out: trailers have a limit."""
    last = error.violations[-1] if error.violations else None
    if last is None or last.field or not last.description.startswith(_ELLIPSIS):
        return 0
    return next((int(word) for word in last.description.split() if word.isdigit()), 0)


def _violation_text(violation: Mapping[str, Any]) -> str:
    parts = (violation["field"], violation["type"], violation["detail"])
    return ": ".join(part for part in parts if part)


def _after_title(message: str | None, pod: Mapping[str, Any]) -> str | None:
    """The API server's text without ``Pod "NAME" is invalid:``."""
    if message is None:
        return None
    return message.removeprefix(f'Pod "{pod["metadata"]["name"]}" is invalid: ')


def _same_message(wanted: str, got: str) -> bool:
    if got.endswith(_ELLIPSIS):
        return wanted.startswith(got.removesuffix(_ELLIPSIS))
    return wanted == got
