"""Lints one workload."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.kube.validation import validate_constraints, validate_pod
from topospread.kube.violations import violation_text
from topospread.spread.linting.catalog import LintFinding, Severity, declared_rules, rule
from topospread.spread.linting.rollouts import repelling_findings, rollout_findings
from topospread.spread.linting.rules import CONSTRAINT_RULES, MIN_DOMAINS_OUT_OF_REACH
from topospread.spread.linting.workloads import linted_constraints
from topospread.spread.settings import SYSTEM_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.errors import FieldViolation
    from topospread.kube.objects import SpreadConstraint
    from topospread.kube.versions import KubernetesVersion
    from topospread.spread.linting.catalog import LintRule
    from topospread.spread.linting.workloads import DomainNumbers, LintedConstraint, LintedWorkload

UNKNOWN_FIELD: Final = rule(
    "UNKNOWN_FIELD",
    Severity.ERROR,
    "Kubernetes has no such field: the API server drops it, or refuses the manifest",
    "Spell the field as Kubernetes does.",
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

_AT: Final = re.compile(r"^spec\.topologySpreadConstraints\[(\d+)\]\.?")
_SOFT_MIN_DOMAINS: Final = "can only use minDomains"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of the cluster.

    Attributes:
        numbers: by constraint.
        findings: what an explanation of the workload's pod says.
        defaults: the profile's, for pods that have no constraints; None where they are not known.
        version: one of the known ones; None where the cluster's is not known.
    """

    numbers: Mapping[int, DomainNumbers] = field(default_factory=dict)
    findings: Sequence[LintFinding] = ()
    defaults: Sequence[SpreadConstraint] | None = None
    version: KubernetesVersion | None = None


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
    for each in workload.unknown_fields:
        text = f"Kubernetes has no field {_AT.sub('', each.field)}"
        text += f": {each.description}" if each.description else ""
        yield UNKNOWN_FIELD.found(_index(each), text)
    broken: set[int] = set()
    for violation in _violations(workload):
        broken.add(_index(violation))
        yield INVALID_CONSTRAINT.found(_index(violation), _text(violation))
    constraints = linted_constraints(workload, broken, known.numbers, known.version)
    of_cluster = dict(_of_cluster(workload, known))
    yield from of_cluster.values()
    for linted in constraints:
        checkpoint()
        for findings_of in (*CONSTRAINT_RULES, rollout_findings):
            for finding in findings_of(linted):
                if (finding.rule, finding.constraint) not in of_cluster:
                    yield finding
    yield from repelling_findings(workload, constraints)
    yield from _of_defaults(workload, constraints, known)


def _violations(workload: LintedWorkload) -> Iterator[FieldViolation]:
    pod = workload.pod
    found_here = validate_pod(pod) if workload.is_pod else validate_constraints(pod.constraints)
    for each in found_here:
        if not each.description.startswith(_SOFT_MIN_DOMAINS):  # MinDomainsIgnored says more
            yield each


def _of_cluster(
    workload: LintedWorkload, known: Knowledge
) -> Iterator[tuple[tuple[LintRule, int], LintFinding]]:
    for each in known.findings:
        of_defaults = each.constraint >= len(workload.pod.constraints)
        if each.rule not in _CLUSTER_ALONE or of_defaults:
            continue
        unowned = each.rule is DEFAULTS_WITHOUT_SELECTOR
        if unowned and workload.kind in _SELECTED_BY_OWNER:
            continue
        yield (each.rule, each.constraint), each


def _of_defaults(
    workload: LintedWorkload, constraints: Sequence[LintedConstraint], known: Knowledge
) -> Iterator[LintFinding]:
    if workload.kind not in _SCALED or not workload.may_be_many:
        return
    if not workload.pod.constraints:
        if workload.replicas is not None and not workload.repelling_keys:
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


def _index(violation: FieldViolation) -> int:
    at = _AT.match(violation.field)
    return int(at[1]) if at else -1


def _text(violation: FieldViolation) -> str:
    return _AT.sub("", violation_text(violation))
