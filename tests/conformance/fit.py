"""Whether a pod fits, as a whole kube-scheduler 1.37.2 answered, and as the filters here answer.

README.md beside this file describes the data. Run as a program, it prints what differs, by plugin:
``python -m tests.conformance.fit [--plugin NAME] [--category NAME] [--case NAME] [FILE...]``.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import orjson

from tests.conformance.cases import ABSENT, HERE, Json
from tests.conformance.core import changes_of, pod_of, prepared
from topospread.codec.demands import DemandReader
from topospread.codec.objects import OBJECTS
from topospread.index.builder import Builder
from topospread.index.changes import KindChange
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.service.fit.profile import PROFILE, suited
from topospread.service.fit.question import SPREADING, Fit, FitQuestion, spread_rules
from topospread.spread.filtering import filter_nodes, pre_filter
from topospread.spread.settings import Rules
from topospread_client import object_from_manifest, pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.service.fit.profile import Plugin
    from topospread.service.fit.question import Rule
    from topospread.spread.constraints import PodConstraints

RECORDED: Final = HERE / "fit.jsonl.gz"
_ALL_KNOWN: Final = [KindChange(kind.DESCRIPTOR.name, "") for kind in OBJECTS.values()]
_OF_CLAIM: Final = "resource claims ("
"""What a gap begins with where claims to devices are not looked at."""

_NARROWED: Final = "satisfy plugin(s)"


@dataclass(frozen=True)
class FitCase:
    """A pod in a cluster, and the scheduler's answer; see README.md for the members."""

    name: str
    category: str
    cluster: Json
    pod: Json
    expect: Json

    @property
    def plugins(self) -> frozenset[str]:
        """The plugins that refuse a node or say something of the pod, alone or in their order."""
        nodes = self.expect["nodes"].values()
        of_nodes = {name for node in nodes for name in node.get("plugin", "").split(",") if name}
        return frozenset(of_nodes | {*self.expect.get("alone", ())})


class FitDifference(NamedTuple):
    """What is not as recorded: of a node, of a plugin asked alone, or the message."""

    plugin: str
    where: str
    expected: object
    got: object

    def __str__(self) -> str:
        return f"{self.plugin} {self.where}: expected {self.expected}, got {self.got}"


@functools.cache
def fit_cases(path: Path = RECORDED) -> Sequence[FitCase]:
    """The cases of a file, in its order."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [orjson.loads(line) for line in file]
    return [
        FitCase(each["name"], each["category"], each["cluster"], each["pod"], each["expect"])
        for each in lines
    ]


class FitAnswer(NamedTuple):
    """What the filters say of a pod: the members of the recorded answers."""

    nodes: Mapping[str, Json]
    alone: Mapping[str, Json]
    message: str
    gaps: Sequence[str]


def answered(case: FitCase) -> FitAnswer:
    """The answer at a state that has all of the case's cluster and knows each kind of objects."""
    builder = Builder()
    manifests = [each for objects in case.cluster.values() for each in objects]
    objects = [made for each in manifests if (made := object_from_manifest(each)) is not None]
    builder.fold([*changes_of(objects), *_ALL_KNOWN])
    pod, rules = pod_of(case.pod), Rules()
    demand, _ = DemandReader().of(pod_from_manifest(case.pod).SerializeToString())
    constraints, snapshot = prepared(builder, pod, rules)
    terms = counted_groups(demand, snapshot.objects)
    if snapshot.missing(terms):
        snapshot = builder.ensure_counted([*snapshot.groups, *terms])
    metadata = case.pod["metadata"]
    asked = FitQuestion(
        snapshot,
        pod,
        constraints.requirements,
        demand,
        rules,
        metadata.get("name", ""),
        metadata.get("uid", ""),
        constraints.hard.constraints,
    )
    spreading = _spreading(constraints, snapshot)
    suits = suited(asked, Fit.ALL)
    nodes = _by_node(snapshot, list(suits.rules(spreading)))
    if suits.refusal is not None:
        ats = dict.fromkeys(nodes, "PreFilter")
    else:
        outside = _by_node(snapshot, [suits.narrowed] if suits.narrowed is not None else [])
        ats = {name: "Filter" if outside[name]["feasible"] else "PreFilterResult" for name in nodes}
    for name, node in nodes.items():
        if not node["feasible"]:
            node["at"] = ats[name]
    message = ""
    if not any(node["feasible"] for node in nodes.values()):
        reasons, _ = suits.reasons(snapshot.nodes.order, spreading)
        message = suits.message(snapshot.node_count, reasons)
    alone = {
        plugin.name: found
        for plugin in PROFILE
        if (found := _alone(asked, plugin, snapshot, spreading))
    }
    return FitAnswer(nodes, alone, message, suits.gaps)


def _spreading(constraints: PodConstraints, snapshot: Snapshot) -> Sequence[Rule]:
    hard = constraints.hard.constraints
    return spread_rules(filter_nodes(pre_filter(hard, snapshot), snapshot)) if hard else ()


def _by_node(snapshot: Snapshot, rules: Sequence[Rule]) -> dict[str, Json]:
    return {name: _verdict(snapshot.slot(name), rules) for name in _names(snapshot)}


def _names(snapshot: Snapshot) -> list[str]:
    return [snapshot.nodes.names[slot] for slot in np.flatnonzero(snapshot.alive).tolist()]


def _verdict(slot: int, rules: Sequence[Rule]) -> Json:
    for rule in rules:
        if rule.refused[slot]:
            reasons = sorted({reason for reason, refused in rule.reasons if refused[slot]})
            return {
                "feasible": False,
                "plugin": rule.plugin,
                "code": rule.code.label,
                "reasons": reasons,
            }
    return {"feasible": True}


def _alone(
    asked: FitQuestion, plugin: Plugin, snapshot: Snapshot, spreading: Sequence[Rule]
) -> Json:
    """What a plugin says by itself; empty where it refuses nothing and narrows nothing."""
    said: Json = {}
    found = plugin.pre_filter(asked)
    if found is not None and found.refusal is not None:
        reasons = list(found.refusal.reasons)
        return {"preFilter": {"code": found.refusal.code.label, "reasons": reasons}}
    if found is not None and found.names is not None:
        said["nodes"] = sorted(found.names)
    refusals = plugin.refusals(asked)
    rules = spreading if plugin.name == SPREADING else () if refusals is None else refusals.rules()
    refused = {
        name: {"code": verdict["code"], "reasons": verdict["reasons"]}
        for name, verdict in _by_node(snapshot, list(rules)).items()
        if not verdict["feasible"]
    }
    if refused:
        said["refused"] = refused
    return said


def differences(case: FitCase, got: FitAnswer) -> Iterator[FitDifference]:
    """Where an answer is not as recorded."""
    for name, expected in case.expect["nodes"].items():
        answer = got.nodes.get(name, {})
        if _without_combined_plugin(expected) != _without_combined_plugin(answer):
            plugin = expected.get("plugin") or answer.get("plugin") or "no plugin"
            yield FitDifference(plugin, f"node {name}", expected, answer or ABSENT)
    recorded: Mapping[str, Json] = case.expect.get("alone", {})
    for plugin in sorted({*recorded, *got.alone}):
        if _never_asked(plugin, recorded):
            continue
        expected, answer = recorded.get(plugin, {}), got.alone.get(plugin, {})
        for member in sorted({*expected, *answer}):
            one, other = expected.get(member, ABSENT), answer.get(member, ABSENT)
            if one != other:
                yield FitDifference(plugin, f"alone, {member}", one, other)
    message = case.expect.get("message", "")
    if message != got.message:
        yield FitDifference("message", "of the condition", message, got.message)


def _without_combined_plugin(node: Json) -> Json:
    """A node's answer; where a reason names the plugins itself, without the name beside it."""
    if any(_NARROWED in reason for reason in node.get("reasons", ())):
        return node | {"plugin": ""}
    return node


def _never_asked(plugin: str, recorded: Mapping[str, Json]) -> bool:
    """Whether nobody sees what a plugin says: another refuses the pod before it.

    NodeVolumeLimits looks up claims that are missing or another pod's by itself, and says so in
    words of its own; in the profile VolumeBinding has refused such a pod in PreFilter.
    """
    return plugin == "NodeVolumeLimits" and "preFilter" in recorded.get("VolumeBinding", {})


def names_claims(got: FitAnswer) -> bool:
    """Whether an answer says that it did not look at some claim to devices."""
    return any(gap.startswith(_OF_CLAIM) for gap in got.gaps)


# ------------------------------ the program


class _Counts:
    """Refusals of nodes by plugin: how many are recorded, and what became of them."""

    def __init__(self) -> None:
        self.recorded: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.other: Counter[str] = Counter()
        self.invented: Counter[str] = Counter()

    def add(self, case: FitCase, got: FitAnswer) -> None:
        """Count a case's nodes."""
        for name, expected in case.expect["nodes"].items():
            answer = got.nodes[name]
            plugin = expected.get("plugin") or answer.get("plugin")
            if plugin is None:
                continue
            self.recorded[plugin] += not expected["feasible"]
            if _without_combined_plugin(expected) == _without_combined_plugin(answer):
                continue
            if expected["feasible"]:
                self.invented[plugin] += 1
            elif answer["feasible"]:
                self.missed[plugin] += 1
            else:
                self.other[plugin] += 1

    def lines(self) -> Iterator[str]:
        """The table."""
        yield f"{'plugin':28}{'refused':>9}{'missed':>8}{'other':>8}{'invented':>10}"
        for plugin in sorted({*self.recorded, *self.invented}):
            yield (
                f"{plugin:28}{self.recorded[plugin]:9}{self.missed[plugin]:8}"
                f"{self.other[plugin]:8}{self.invented[plugin]:10}"
            )


def _selected(case: FitCase, args: argparse.Namespace) -> bool:
    return (
        (not args.category or case.category in args.category)
        and (not args.case or case.name in args.case)
        and (not args.plugin or not case.plugins.isdisjoint(args.plugin))
    )


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.conformance.fit", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=[RECORDED])
    for name, text in (("plugin", "cases where it speaks, and what is of it"), ("category", "")):
        parser.add_argument(f"--{name}", action="append", default=[], help=text)
    parser.add_argument("--case", action="append", default=[], help="of this name")
    parser.add_argument("--show", type=int, default=20, help="differences that are printed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print what differs and a table; 1 where one differs that names no claim."""
    args = _parsed(arguments)
    cases = [case for path in args.files for case in fit_cases(path) if _selected(case, args)]
    by_plugin, outcomes, shown = _Counts(), Counter[str](), 0
    for case in cases:
        got = answered(case)
        by_plugin.add(case, got)
        found = [
            each for each in differences(case, got) if not args.plugin or each.plugin in args.plugin
        ]
        named = "with claims named" if names_claims(got) else ""
        outcomes[" ".join(filter(None, ("differ" if found else "equal", named)))] += 1
        for each in found:
            shown += 1
            if shown <= args.show:
                _print(f"{case.name}: {each}")
    for line in by_plugin.lines():
        _print(line)
    _print(
        f"{len(cases)} cases: " + ", ".join(f"{n} {what}" for what, n in sorted(outcomes.items()))
    )
    return int(outcomes["differ"] > 0)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
