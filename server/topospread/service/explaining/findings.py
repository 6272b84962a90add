"""The findings on a pod and its constraints at a snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.kube.affinity import named_values, pinned_node
from topospread.kube.label_syntax import label_text
from topospread.kube.objects import DO_NOT_SCHEDULE, HOSTNAME_LABEL, ZONE_LABEL
from topospread.service.explaining.constraint_reports import explained_constraints
from topospread.service.explaining.topology_keys import has_key, meant_on
from topospread.spread.constraints import needs_default_selector
from topospread.spread.linting.rules import (
    DEPRECATED,
    min_domains_above_named,
    unusable_domains,
)
from topospread.spread.linting.selectors import selector_finding
from topospread.spread.linting.workloads import own_match
from topospread.wording import counted
from topospread_client import CONTROLLER_LABELS, NEW_REVISION, ORDINAL_LABELS
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.kube.objects import SpreadConstraint
    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Eligibility

Found = tuple["pb.FindingCode.ValueType", str]
"""A code, and the text for people."""

_ADDED_LABELS: Final = frozenset(label for each in CONTROLLER_LABELS.values() for label in each)


def findings_of(context: EvaluationContext) -> list[pb.Finding]:
    """All findings: those on the pod first, then those on constraints by index."""
    found = [pb.Finding(code=code, text=text) for code, text in _of_pod(context)]
    for each in explained_constraints(context):
        for code, text in constraint_findings(context, each.constraint, each.spec):
            found.append(pb.Finding(code=code, constraint_index=each.index, text=text))
    return found


def _of_pod(context: EvaluationContext) -> Iterator[Found]:
    for unparsed in (context.constraints.hard.error, context.constraints.soft.error):
        if unparsed:
            yield pb.FINDING_CODE_NOT_PARSED, unparsed
    if context.bound_to:
        text = (
            f"the pod runs on {context.bound_to} already and is counted there: this says where "
            "another pod like it fits"
        )
        yield pb.FINDING_CODE_ALREADY_BOUND, text
    if not context.constraints.defaulted:
        return
    if pinned_node(context.pod.requirements) is not None:
        return  # no constraint chooses its node
    if needs_default_selector(context.pod, context.rules) and not (context.hard or context.soft):
        text = (
            "the pod has no constraints, and the profile's defaults do not apply: no Service, "
            "ReplicationController, ReplicaSet or StatefulSet in the state selects it"
        )
        yield pb.FINDING_CODE_DEFAULTS_WITHOUT_SELECTOR, text
    elif context.soft:
        yield from zone_findings(context)


def zone_findings(context: EvaluationContext) -> Iterator[Found]:
    """Yield what System defaults lack where nodes have no zone: these are scored all the same."""
    lacking = _lacking(context, ZONE_LABEL)
    if lacking and _by_system_defaults(context):
        text = (
            f"{lacking} of {context.snapshot.node_count} nodes lack {ZONE_LABEL}: there the "
            f"System defaults spread over {HOSTNAME_LABEL} alone"
        )
        yield pb.FINDING_CODE_DEFAULTS_WITHOUT_ZONE, text


def _by_system_defaults(context: EvaluationContext) -> bool:
    return context.constraints.defaulted and context.rules.profile.system_defaulted


def _lacking(context: EvaluationContext, key: str) -> int:
    return context.snapshot.node_count - int(context.snapshot.domains(key).nodes.sum())


def constraint_findings(
    context: EvaluationContext, constraint: Constraint, spec: SpreadConstraint
) -> Iterator[Found]:
    """The findings on one constraint, each with its text."""
    selector, hard = constraint.group.selector, spec.when_unsatisfiable == DO_NOT_SCHEDULE
    key = constraint.topology_key
    # What a workload would make has no name, and lacks labels that a controller adds, or has them
    # with values of a new revision.
    added = () if context.name else _ADDED_LABELS
    labels = {
        label: value
        for label, value in context.pod.labels.items()
        if not (value.startswith(NEW_REVISION) or (label in ORDINAL_LABELS and added))
    }
    unknown = (*added, *(context.pod.labels.keys() - labels.keys()))
    matches = constraint.self_match or own_match(selector, labels, unknown)[1]
    wrong = selector_finding(selector, matches_itself=matches, version=context.rules.version)
    if wrong is not None:
        rule, text = wrong
        yield pb.FindingCode.Value(f"FINDING_CODE_{rule.name}"), text
    for missing in spec.match_label_keys:
        lacks = missing not in context.pod.labels and missing not in added
        if lacks and context.rules.gates.match_label_keys:
            yield (
                pb.FINDING_CODE_LABEL_KEY_MISSING,
                f"matchLabelKeys: the pod has no label {missing}, so that key does nothing",
            )
    if context.snapshot.node_count:
        yield from _of_key(context, key, hard=hard)
    yield from _of_min_domains(context, constraint, spec, hard=hard)
    if hard:
        yield from _of_unusable_nodes(context, constraint)


def _of_unusable_nodes(context: EvaluationContext, constraint: Constraint) -> Iterator[Found]:
    """Domains that count and have no node for the pod: by affinity and taints, or by size."""
    eligibility, requirements = constraint.eligibility, context.constraints.requirements
    honoring = replace(
        eligibility,
        requirements=None if requirements.matches_all else requirements,
        tolerations=context.pod.tolerations,
        comparison_operators=context.rules.gates.taint_comparison_operators,
    )
    domains = context.snapshot.membership(eligibility, constraint.topology_key).size
    usable = context.snapshot.membership(honoring, constraint.topology_key).size
    lacking, large = _too_small_domains(context, constraint.topology_key, honoring, usable)
    if not 0 < large < domains:
        return
    text = unusable_domains(domains, large, constraint.max_skew)
    if lacking:
        text += (
            f"; nodes lack {' and '.join(lacking)}: a node selector or affinity for those that "
            "have it leaves such domains out"
        )
    yield pb.FINDING_CODE_UNUSABLE_NODES_COUNTED, text


def _too_small_domains(
    context: EvaluationContext, key: str, eligibility: Eligibility, usable: int
) -> tuple[list[str], int]:
    """Devices that no node of some usable domains has, and how many domains are left then."""
    ids = context.snapshot.domains(key).ids
    nodes = context.snapshot.mask(eligibility) & context.snapshot.alive & (ids >= 0)
    lacking = []
    for name, amount in context.demand.requests:
        if "/" not in name or not amount:
            continue
        large = nodes & (context.snapshot.nodes.allocatable(name) >= amount)
        left = int(np.unique(ids[large]).size)
        if 0 < left < usable:
            lacking.append(name)
            nodes, usable = large, left
    return lacking, usable


def _of_key(context: EvaluationContext, key: str, *, hard: bool) -> Iterator[Found]:
    nodes, lacking = context.snapshot.node_count, _lacking(context, key)
    system = _by_system_defaults(context)
    if system and key == ZONE_LABEL:
        return  # zone_findings() says it
    if lacking == nodes:
        soft = "it adds nothing to scores" if system else "no node gets a score"
        effect = "no node can take the pod" if hard else soft
        shown, meant = label_text(key), meant_on(context.snapshot, key)
        if meant in DEPRECATED:
            effect += f"; nodes have {label_text(meant)}, whose successor it is"
        yield pb.FINDING_CODE_KEY_ON_NO_NODE, f"no node has the label {shown}: {effect}"
        if meant and meant not in DEPRECATED:
            of_none = "a well-known label, which no node has either"
            have = "which nodes have" if has_key(context.snapshot, meant) else of_none
            if key in DEPRECATED:
                text = f"{shown} is deprecated: its successor is {label_text(meant)}, {have}"
                yield pb.FINDING_CODE_DEPRECATED_KEY, text
                return
            text = f"{shown} looks like {label_text(meant)}, {have}"
            yield pb.FINDING_CODE_MISSPELT_KEY, text
    elif lacking and not context.constraints.defaulted:
        effect = "can never take the pod" if hard else "get no score"
        yield (
            pb.FINDING_CODE_KEY_ON_SOME_NODES,
            f"{lacking} of {nodes} nodes lack the label {label_text(key)} and {effect}",
        )


def _of_min_domains(
    context: EvaluationContext, constraint: Constraint, spec: SpreadConstraint, *, hard: bool
) -> Iterator[Found]:
    wanted = spec.min_domains
    if wanted is None or wanted <= 1:
        return
    if not hard:
        yield pb.FINDING_CODE_MIN_DOMAINS_IGNORED, "minDomains does nothing with ScheduleAnyway"
        return
    if not context.rules.gates.min_domains:
        yield (
            pb.FINDING_CODE_MIN_DOMAINS_IGNORED,
            "minDomains does nothing: its feature gate is off",
        )
        return
    key = constraint.topology_key
    requirements = constraint.eligibility.requirements
    named = None if requirements is None else named_values(requirements, key)
    if named is not None and named < wanted:
        yield (
            pb.FINDING_CODE_MIN_DOMAINS_OUT_OF_REACH,
            min_domains_above_named(wanted, named, key),
        )
        return
    there = int(np.count_nonzero(context.snapshot.domains(key).nodes))
    if there < wanted:
        yield (
            pb.FINDING_CODE_MIN_DOMAINS_OUT_OF_REACH,
            (
                f"minDomains {wanted} is more than the {counted(there, 'domain')} of "
                f"{label_text(key)} that the cluster has"
            ),
        )
