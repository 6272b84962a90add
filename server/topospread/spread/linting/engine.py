"""Lints one workload."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.kube.objects import SpreadConstraint
from topospread.kube.validation import CONSTRAINTS_FIELD, validate_constraints, validate_pod
from topospread.kube.violations import violation_text
from topospread.spread.linting.catalog import LintFinding, Severity, declared_rules, rule
from topospread.spread.linting.fields import (
    INVALID_FIELD,
    first_part,
    impossible_key,
    index_in,
    lacking_field,
    meant_field,
    unread_findings,
)
from topospread.spread.linting.repulsions import repelling_findings
from topospread.spread.linting.rollouts import (
    ROLLOUT_DEADLOCK,
    outcome_findings,
    rollout_findings,
)
from topospread.spread.linting.rules import (
    CONSTRAINT_RULES,
    FIELD_RULES,
    MIN_DOMAINS_OUT_OF_REACH,
    TOO_FEW_DOMAINS,
)
from topospread.spread.linting.workloads import linted_constraints
from topospread.spread.settings import SYSTEM_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from topospread.errors import FieldViolation
    from topospread.kube.versions import KubernetesVersion
    from topospread.spread.linting.capacities import ReplicaCapacity
    from topospread.spread.linting.catalog import LintRule
    from topospread.spread.linting.workloads import DomainNumbers, LintedConstraint, LintedWorkload
    from topospread.spread.rollouts import RolloutOutcome

UNKNOWN_FIELD: Final = rule(
    "UNKNOWN_FIELD",
    Severity.ERROR,
    "Kubernetes has no such field: the API server drops it, or refuses the manifest",
    "Spell it as Kubernetes does, or put it where it belongs.",
)
INVALID_CONSTRAINT: Final = rule(
    "INVALID_CONSTRAINT",
    Severity.ERROR,
    "the API server refuses the constraint",
    "Write the field as the API server wants it.",
)
NO_CONSTRAINTS: Final = rule(
    "NO_CONSTRAINTS",
    Severity.INFO,
    "several replicas and no topologySpreadConstraints",
    "Add a constraint, or leave it to the scheduler's defaults.",
)
DEFAULTS_REPLACED: Final = rule(
    "DEFAULTS_REPLACED",
    Severity.INFO,
    "the workload's own constraints take the place of the scheduler's defaults",
    "Add the defaults to the workload's constraints if you relied on them.",
)
KEY_ON_NO_NODE: Final = rule(
    "KEY_ON_NO_NODE",
    Severity.ERROR,
    "no node has the topology key",
    "Use a key that nodes have, or label the nodes.",
)
KEY_ON_SOME_NODES: Final = rule(
    "KEY_ON_SOME_NODES",
    Severity.INFO,
    "some nodes lack the topology key",
    "Label these nodes, or keep the pod off them.",
)
DEFAULTS_WITHOUT_ZONE: Final = rule(
    "DEFAULTS_WITHOUT_ZONE",
    Severity.INFO,
    "nodes lack the zone that the System defaults spread over",
    "Label the nodes.",
)
DEFAULTS_WITHOUT_SELECTOR: Final = rule(
    "DEFAULTS_WITHOUT_SELECTOR",
    Severity.INFO,
    "no Service and no owner selects the pod, so the scheduler's defaults do not apply",
    "Add a constraint, or a Service that selects the pod.",
)

_CLUSTER_ALONE: Final = frozenset(
    {
        KEY_ON_NO_NODE,
        KEY_ON_SOME_NODES,
        MIN_DOMAINS_OUT_OF_REACH,
        DEFAULTS_WITHOUT_ZONE,
        DEFAULTS_WITHOUT_SELECTOR,
    }
)
"""What is said of a pod at a state and not of its manifest."""

RULES: Final = declared_rules()
"""By name; what is not here is said by explanations alone."""

_SCALED: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Rollout", "CloneSet"}
)
"""Workloads whose replicas are alike and serve together."""

_SELECTED_BY_OWNER: Final = _SCALED - {"CloneSet"}
"""Those whose pods an owner selects once they are there."""

_EMPTY: Final = (
    "expected object with maxSkew, topologyKey, whenUnsatisfiable and labelSelector, got nothing"
)
_SINGLE: Final = (
    "topologySpreadConstraints: a map, where Kubernetes has a list: unless the chart makes one of "
    "it, the API server refuses it"
)
_SEPARATORS: Final = re.compile(r"[\[\].{}, ]+")
_IS_LIST: Final = re.compile(r"(^|\.)topologySpreadConstraints$")
_MISPLACED_LABELS: Final = re.compile(r"(^|\.)(template|spec)\.labels$")
_SOFT_MIN_DOMAINS: Final = "can only use minDomains"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of the cluster.

    Attributes:
        numbers: by constraint.
        findings: what an explanation of the workload's pod says.
        defaults: the profile's, for pods that have no constraints; None where they are not known.
        version: one of the known ones; None where the cluster's is not known.
        capacities: by topology key, of what keeps its pods apart; host ports under "".
        rollout: what becomes of one; None where it is not known.
    """

    numbers: Mapping[int, DomainNumbers] = field(default_factory=dict)
    findings: Sequence[LintFinding] = ()
    defaults: Sequence[SpreadConstraint] | None = None
    version: KubernetesVersion | None = None
    capacities: Mapping[str, ReplicaCapacity] = field(default_factory=dict)
    rollout: RolloutOutcome | None = None


NOTHING_KNOWN: Final = Knowledge()


def lint(workload: LintedWorkload, known: Knowledge = NOTHING_KNOWN) -> list[LintFinding]:
    """All findings on a workload that its annotation does not silence.

    They stand by constraint, those on the workload as a whole first, and the gravest before others.
    """
    findings = {(each.rule, each.constraint, each.text): each for each in _all(workload, known)}
    return sorted(
        (each for each in findings.values() if each.code.lower() not in workload.ignored),
        key=lambda each: (each.constraint, each.severity.rank, each.code),
    )


def _all(workload: LintedWorkload, known: Knowledge) -> Iterator[LintFinding]:
    yield from unread_findings(workload)
    broken: dict[int, set[str]] = {}
    for each in workload.unknown_fields:
        index, name = index_in(workload, each.field)
        if index >= 0 and (meant := meant_field(workload, each, name)):
            broken.setdefault(index, set()).add(meant)  # what lacks or is empty is said by this
        at = f"{workload.constraints_path}[{index}]."
        text = f"Kubernetes has no field {name}"
        text += f": {each.description.replace(at, '')}" if each.description else ""
        yield UNKNOWN_FIELD.found(index, text, field=each.field)
    for index, name in workload.variable:
        broken.setdefault(index, set()).add(name)
    for each in workload.malformed:
        index, name = index_in(workload, each.field)
        broken.setdefault(index, set()).add(first_part(name) if index >= 0 else name)
        in_list = each.field.startswith(workload.constraints_path)
        shown = name
        if not workload.has_template:
            shown = name.removeprefix(workload.path).removeprefix(".")
        text = f"{shown}: {each.description}" if shown else each.description
        kind = INVALID_CONSTRAINT if in_list else INVALID_FIELD
        yield kind.found(index, text, field=each.field)
    if workload.is_single:
        at = workload.constraints_path
        yield INVALID_CONSTRAINT.found(-1, _SINGLE, Severity.INFO, field=at)
    if not workload.is_readable:
        return
    for index in range(len(workload.pod.constraints)):
        if _is_empty(workload, index) and not broken.get(index):
            broken[index] = {""}
            field = f"{workload.constraints_path}[{index}]"
            yield INVALID_CONSTRAINT.found(index, _EMPTY, field=field)
    for violation in _violations(workload):
        index, name = index_in(workload, violation.field)
        wrong = broken.get(index, set())
        if "" in wrong or wrong & {*_SEPARATORS.split(name)}:
            continue
        severity, text = None, violation_text(replace(violation, field=name))
        if lacking := lacking_field(workload, violation):
            severity = Severity.INFO
            text = f"no {lacking}: unless one is added, the API server refuses the constraint"
        broken.setdefault(index, set()).add(first_part(name))
        yield INVALID_CONSTRAINT.found(index, text, severity, field=violation.field)
    yield from _of_constraints(workload, broken, known)


def _is_empty(workload: LintedWorkload, index: int) -> bool:
    is_given = index < len(workload.given) and workload.given[index]
    return not is_given and workload.pod.constraints[index] == SpreadConstraint(0, "", "")


def _of_constraints(
    workload: LintedWorkload, broken: Mapping[int, AbstractSet[str]], known: Knowledge
) -> Iterator[LintFinding]:
    """What rules say of constraints; of those with a wrong field, what the others allow."""
    unreadable = {index for index, wrong in broken.items() if "" in wrong}
    found = linted_constraints(workload, unreadable, known.numbers, known.version)
    without_key = {each.index for each in found if [*impossible_key(each)]}
    labels_wrong = any(".metadata" in f".{each.field}" for each in workload.malformed) or any(
        _MISPLACED_LABELS.search(each.field) for each in workload.unknown_fields
    )
    constraints = [
        each for each in found if each.index not in broken and each.index not in without_key
    ]
    if labels_wrong or not workload.has_template:
        constraints = []
    whole = {each.index for each in constraints}
    for linted in found:
        if linted.index in whole:
            continue
        wrong = broken.get(linted.index, set()) | ({"labelSelector"} if labels_wrong else set())
        for findings_of, fields in FIELD_RULES:
            if not fields & wrong:
                yield from findings_of(linted)
    if not workload.has_template:
        return
    of_cluster = dict(_of_cluster(workload, known))
    for index in without_key:
        of_cluster.pop((KEY_ON_NO_NODE, index), None)  # no node can have it, which is said
    yield from of_cluster.values()
    found_here = [*repelling_findings(workload, known.capacities)]
    for linted in constraints:
        checkpoint()
        for findings_of in (*CONSTRAINT_RULES, rollout_findings):
            found_here += findings_of(linted)
    hard = [each for each in constraints if each.is_hard]
    found_here += outcome_findings(workload, known.rollout, hard)
    lacks_places = any(each.rule is TOO_FEW_DOMAINS for each in found_here)
    for finding in found_here:
        if lacks_places and finding.rule is ROLLOUT_DEADLOCK:
            continue  # it is the same wait
        if (finding.rule, finding.constraint) not in of_cluster:
            yield finding
    misplaced = (*workload.unknown_fields, *workload.malformed)
    if not any(_IS_LIST.search(each.field) for each in misplaced):
        yield from _of_defaults(workload, constraints, known)


def _violations(workload: LintedWorkload) -> Iterator[FieldViolation]:
    """What the API server refuses, by paths in the object."""
    pod = workload.pod
    found_here = validate_pod(pod) if workload.is_pod else validate_constraints(pod.constraints)
    for each in found_here:
        if not each.description.startswith(_SOFT_MIN_DOMAINS):  # MinDomainsIgnored says more
            below = each.field.removeprefix(CONSTRAINTS_FIELD)
            if below != each.field:
                below = below.replace("][", "].matchLabelKeys[")  # upstream's path lacks the name
                each = replace(each, field=workload.constraints_path + below)
            yield each


def _of_cluster(
    workload: LintedWorkload, known: Knowledge
) -> Iterator[tuple[tuple[LintRule, int], LintFinding]]:
    for each in known.findings:
        of_defaults = each.constraint >= len(workload.pod.constraints)
        if each.rule not in _CLUSTER_ALONE or of_defaults:
            continue
        if each.rule is DEFAULTS_WITHOUT_SELECTOR and not _may_lack_selector(workload):
            continue
        yield (each.rule, each.constraint), each


def _may_lack_selector(workload: LintedWorkload) -> bool:
    """Whether the scheduler's defaults, which would spread its pods, may have no selector."""
    is_selected = workload.kind in _SELECTED_BY_OWNER or not workload.labels_known
    return not is_selected and workload.may_be_many and workload.kind != "DaemonSet"


def _of_defaults(
    workload: LintedWorkload, constraints: Sequence[LintedConstraint], known: Knowledge
) -> Iterator[LintFinding]:
    if workload.kind not in _SCALED or not workload.may_be_many:
        return
    if not workload.pod.constraints:
        if workload.replicas is not None and not workload.repulsions:
            text = (
                f"{workload.replicas} replicas and no topologySpreadConstraints: the scheduler's "
                "defaults alone spread them"
            )
            yield NO_CONSTRAINTS.found(-1, text)
        return
    own = {each.spec.topology_key for each in constraints}
    defaults = SYSTEM_DEFAULTS if known.defaults is None else known.defaults
    lost = [each for each in defaults if each.topology_key not in own]
    if constraints and lost:
        texts = ", ".join(
            f"{each.topology_key} ({each.when_unsatisfiable}, maxSkew {each.max_skew})"
            for each in lost
        )
        which = ", System's unless configured" if known.defaults is None else ""
        text = (
            "with constraints of its own the pod gets none of the scheduler's defaults"
            f"{which}: {texts}"
        )
        yield DEFAULTS_REPLACED.found(-1, text)
