"""What the reference model expects, in the forms that the product answers in."""

from collections import Counter
from dataclasses import dataclass, replace

from tests.conformance.cases import Decision, Json
from tests.reference import evaluation, filtering
from tests.reference.constraints import Gates, Question
from tests.reference.objects import labels_of, name_of
from tests.reference.snapshot import Snapshot

Verdict = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Expected:
    """A whole judgement, as EvaluatePod gives it.

    Attributes:
        pre_filter: the code.
        pre_score: the code; None where no node is left to score.
        nodes: how many there are.
        verdicts: nodes by (code, reasons); none after an Error of PreFilter.
        top: (name, raw, normalized) of all feasible nodes, best first.
        condition: {reason, message} of a pod that fits nowhere.
    """

    pre_filter: str
    pre_score: str | None
    nodes: int
    verdicts: dict[Verdict, int]
    top: list[tuple[str, int, int]]
    condition: Json | None


def answer_to(case: Decision) -> Json:
    """The model's answer; normalized scores are cut to the 0 … 100 that the framework allows.

    Only a maxSkew below 1, which no API server lets pass, makes others.
    """
    answer = evaluation.evaluate(
        case.cluster,
        case.pod,
        args=case.args,
        gates=case.gates,
        ops=case.ops,
        filter_nodes=case.filter_nodes,
    )
    if "normalized" in answer:
        answer["normalized"] = {
            name: min(max(score, 0), 100) for name, score in answer["normalized"].items()
        }
    return answer


def judgement_of(case: Decision) -> Expected:
    """The model's judgement of all nodes."""
    answer = answer_to(replace(case, filter_nodes=None))
    pre_filter = answer["preFilter"]["code"]
    nodes = [name_of(node) for node in case.cluster["nodes"]]
    statuses = answer.get("filter") or {name: {"code": "Success", "reasons": []} for name in nodes}
    if pre_filter == "Error":
        statuses = {}
    feasible = [name for name, status in statuses.items() if status["code"] == "Success"]
    pods = matching_pods(case)
    raw, normalized = answer.get("score", {}), answer.get("normalized", {})
    ranked = sorted(feasible, key=lambda n: (-normalized.get(n, 0), pods[n], n.encode()))
    return Expected(
        pre_filter=pre_filter,
        pre_score=answer["preScore"]["code"] if "preScore" in answer else None,
        nodes=len(nodes),
        verdicts=dict(Counter((s["code"], tuple(s["reasons"])) for s in statuses.values())),
        top=[(name, raw.get(name, 0), normalized.get(name, 0)) for name in ranked],
        condition=evaluation.unschedulable(case.cluster, answer),
    )


def matching_pods(case: Decision) -> Counter[str]:
    """For each node the pods that count in its domains, summed over the hard constraints."""
    snapshot = Snapshot(case.cluster)
    question = Question(case.pod, case.args, Gates.parse(case.gates), case.cluster)
    _, spread = filtering.pre_filter(question, snapshot)
    found: Counter[str] = Counter()
    if spread is None:
        return found
    for op in case.ops:
        filtering.apply_op(question, snapshot, spread, op)
    for name, node in snapshot.nodes.items():
        for constraint, counts in zip(spread.constraints, spread.counts, strict=True):
            found[name] += counts.get(labels_of(node).get(constraint.topology_key, ""), 0)
    return found
