"""The recorded answers of kube-scheduler and kube-apiserver as typed cases.

README.md beside this file describes the data. Every evaluator is compared with the same functions:
`differences` for whole answers, `compact` for those recorded as hashes.
"""

import functools
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]

HERE = Path(__file__).parent
BIG_CLUSTERS = ("big-1000n-10000p", "big-5000n-50000p")

LATER = ("decisions-1.38.jsonl.gz", "decisions-1.38-mergeremoved.jsonl.gz")

STATUSES = ("preFilter", "preScore")
HASHED = ("filter", "score", "normalized")
MEMBERS = frozenset({*STATUSES, *HASHED, "ops", "newError"})

RECORDED = "1.36"
"""The version of recordings that name none; 1.37 gives the same answers."""

ABSENT = "absent"
"""Stands in a difference for a member that one side lacks."""


class Difference(NamedTuple):
    """A member of an answer that is not as recorded."""

    member: str
    expected: object
    got: object

    def __str__(self) -> str:
        return f"{self.member}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True)
class Decision:
    """One question to the plugin, and its answer.

    The cluster's member `kubernetesVersion` is its version; absent, the newest that is known.
    Cases of one big cluster share the very `cluster` object, so that an evaluator may keep what it
    loaded for as long as `cluster` is the same object.
    """

    name: str
    cluster: Json
    pod: Json
    args: Json = field(default_factory=dict)
    gates: dict[str, bool] = field(default_factory=dict)
    ops: list[Json] = field(default_factory=list)
    filter_nodes: list[str] | None = None
    expect: Json = field(default_factory=dict)
    category: str = ""
    note: str = ""


@dataclass(frozen=True)
class BigPod:
    """An incoming pod of a big cluster: the question with its answer, and the answer's hashes."""

    decision: Decision
    shape: str
    compact: Json


@dataclass(frozen=True)
class FitError:
    """The PodScheduled condition of a pod that fits nowhere; `case` names a decision."""

    case: str
    reason: str
    message: str


@dataclass(frozen=True)
class FitCount:
    """Refusals ({code, reasons, nodes}) of several plugins, and the message made of them."""

    name: str
    statuses: list[Json]
    message: str


@dataclass(frozen=True)
class PodValidation:
    """A pod sent to kube-apiserver, and the errors below spec.topologySpreadConstraints."""

    name: str
    pod: Json
    expect: list[Json]
    message: str | None
    other_errors: list[str]


@dataclass(frozen=True)
class ArgsValidation:
    """PodTopologySpreadArgs, and kube-scheduler's errors on them."""

    name: str
    args: Json
    expect: list[Json]
    message: str | None


@functools.cache
def decisions() -> Sequence[Decision]:
    """The small clusters' decisions, in the file's order."""
    return [decision(line) for line in lines("decisions.jsonl.gz")]


@functools.cache
def later_decisions() -> Sequence[Decision]:
    """Decisions of versions after 1.36 where these answer otherwise, with controls."""
    return [decision(line) for name in LATER for line in lines(name)]


def big_cluster(name: str) -> list[BigPod]:
    """The incoming pods of one of BIG_CLUSTERS; they share one cluster."""
    with gzip.open(HERE / "clusters" / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        big = orjson.loads(file.read())
    cluster = big["cluster"] | {"kubernetesVersion": RECORDED}
    return [
        BigPod(
            decision=decision(pod | {"name": f"{name}/{pod['name']}", "cluster": cluster}),
            shape=pod["shape"],
            compact=pod["compact"],
        )
        for pod in big["incoming"]
    ]


def fit_errors() -> Iterator[FitError]:
    """The messages of recorded decisions without a node left."""
    for line in lines("fiterrors.jsonl.gz"):
        yield FitError(line["case"], line["reason"], line["message"])


def fit_counts() -> Iterator[FitCount]:
    """Messages made of refusals of several plugins."""
    for line in lines("fitcounts.jsonl.gz"):
        yield FitCount(line["name"], line["statuses"], line["message"])


def pod_validations() -> Iterator[PodValidation]:
    """The API server's validation of pods."""
    for line in lines("validation.jsonl.gz"):
        yield PodValidation(
            line["name"],
            line["pod"],
            line["expect"],
            line.get("message"),
            line.get("otherErrors") or [],
        )


def args_validations() -> Iterator[ArgsValidation]:
    """kube-scheduler's validation of args."""
    for line in lines("args.jsonl.gz"):
        yield ArgsValidation(line["name"], line["args"], line["expect"], line.get("message"))


def lines(name: str) -> Iterator[Json]:
    """The objects of a file of this folder with one JSON object a line."""
    with gzip.open(HERE / name, "rt", encoding="utf-8") as file:
        for line in file:
            yield orjson.loads(line)


def decision(line: Json) -> Decision:
    """A recorded decision as a case."""
    cluster = line["cluster"]
    cluster.setdefault("kubernetesVersion", line.get("kubernetes", RECORDED))
    gates = line.get("gates") or {}
    if line.get("mergeRemoved"):
        gates = gates | {"schedulerMerge": False}
    return Decision(
        name=line["name"],
        cluster=cluster,
        pod=line["pod"],
        args=line["args"],
        gates=gates,
        ops=line.get("ops") or [],
        filter_nodes=line.get("filterNodes"),
        expect=line["expect"],
        category=line.get("category", ""),
        note=line.get("note", ""),
    )


def differences(
    expect: Mapping[str, Any], got: Mapping[str, Any], members: frozenset[str] = MEMBERS
) -> list[Difference]:
    """What distinguishes two answers; empty when they say the same.

    Reasons are not compared where the code is Error, and of newError only the presence: their texts
    are the parser's own. A member that one answer has and the other lacks is a difference.

    Args:
        expect: the recorded answer.
        got: the evaluator's.
        members: of MEMBERS those that the evaluator can answer at all.
    """
    found: list[Difference] = []
    for member in dict.fromkeys([*expect, *got]):
        if member in members or member not in MEMBERS:
            found += unequal(member, expect.get(member, ABSENT), got.get(member, ABSENT))
    return found


def unequal(member: str, expect: Any, got: Any) -> Iterator[Difference]:
    """Where a member of an answer differs, those below it one by one."""
    if ABSENT in (expect, got) or member == "newError":
        if (expect == ABSENT) != (got == ABSENT):
            yield Difference(member, expect, got)
    elif _is_status(expect) and _is_status(got):
        if expect["code"] != got["code"] or (expect != got and expect["code"] != "Error"):
            yield Difference(member, expect, got)
    elif isinstance(expect, dict) and isinstance(got, dict):
        for key in dict.fromkeys([*expect, *got]):
            yield from unequal(f"{member}[{key}]", expect.get(key, ABSENT), got.get(key, ABSENT))
    elif isinstance(expect, list) and isinstance(got, list) and len(expect) == len(got):
        for at, (one, other) in enumerate(zip(expect, got, strict=True)):
            yield from unequal(f"{member}[{at}]", one, other)
    elif expect != got:
        yield Difference(member, expect, got)


def _is_status(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"code", "reasons"}


def compact(answer: Json) -> Json:
    """The answer as recorded for big clusters: statuses as they are, maps counted and hashed."""
    short = {member: answer[member] for member in STATUSES if member in answer}
    for member in HASHED:
        if member in answer:
            short[f"{member}Sha256"] = sha256(answer[member])
    if "filter" in answer:
        short["filterCounts"] = dict(Counter(s["code"] for s in answer["filter"].values()))
    if "score" in answer:
        short["scoreDistinct"] = len(set(answer["score"].values()))
    return short


def sha256(member: Json) -> str:
    """SHA-256, in hex, over canonical JSON."""
    text = json.dumps(member, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
