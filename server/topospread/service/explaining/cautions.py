"""Constraints that cannot do what their author meant them to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topospread.kube.objects import DO_NOT_SCHEDULE, HOSTNAME_LABEL, ZONE_LABEL
from topospread.kube.selectors import IN
from topospread.service.explaining.findings import Caution, Warned
from topospread.spread.constraints import needs_default_selector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.affinity import CompiledRequirements, CompiledTerm
    from topospread.kube.objects import SpreadConstraint
    from topospread.service.explaining.case import Case
    from topospread.spread.constraints import Constraint


def cautions(case: Case) -> tuple[Warned, ...]:
    """All warnings, those of a constraint by its index, those of the pod first."""
    found = [*_of_pod(case)]
    for hard, constraints in ((True, case.hard), (False, case.soft)):
        for constraint, (index, spec) in zip(constraints, case.specs(hard=hard), strict=False):
            for caution, text in _of_constraint(case, constraint, spec):
                found.append(Warned(caution, index, text))
    return tuple(sorted(found, key=lambda each: each.constraint))


def _of_pod(case: Case) -> Iterator[Warned]:
    for error in (case.constraints.hard.error, case.constraints.soft.error):
        if error:
            yield Warned(Caution.NOT_PARSED, -1, error)
    if case.bound_to:
        yield Warned(
            Caution.ALREADY_BOUND,
            -1,
            f"the pod runs on {case.bound_to} already and is counted there: this says where "
            "another pod like it fits",
        )
    if not case.constraints.defaulted:
        return
    if needs_default_selector(case.pod, case.rules) and not (case.hard or case.soft):
        yield Warned(
            Caution.DEFAULTS_WITHOUT_SELECTOR,
            -1,
            "the pod has no constraints, and the profile's defaults do not apply: no Service, "
            "ReplicationController, ReplicaSet or StatefulSet in the state selects it",
        )
    elif case.soft and case.rules.profile.system_defaulted:
        zone = case.snapshot.domains(ZONE_LABEL)
        lacking = int(np.count_nonzero(case.snapshot.alive & (zone.ids < 0)))
        if lacking and case.snapshot.node_count:
            yield Warned(
                Caution.DEFAULTS_WITHOUT_ZONE,
                -1,
                f"{lacking} of {case.snapshot.node_count} nodes lack {ZONE_LABEL}: there the "
                f"System defaults spread over {HOSTNAME_LABEL} alone",
            )


def _of_constraint(
    case: Case, constraint: Constraint, spec: SpreadConstraint
) -> Iterator[tuple[Caution, str]]:
    selector, hard = constraint.group.selector, spec.when_unsatisfiable == DO_NOT_SCHEDULE
    key = constraint.topology_key
    if selector.nothing:
        yield (
            Caution.NIL_SELECTOR,
            "no labelSelector: it matches no pod, not even this one, so nothing is spread",
        )
    elif selector.empty:
        yield (
            Caution.EMPTY_SELECTOR,
            "an empty labelSelector: kube-scheduler counts no pods for it, so nothing is spread",
        )
    elif not constraint.self_match:
        yield (
            Caution.SELF_MISMATCH,
            (
                "the pod does not match its own labelSelector: it follows other pods, and its own "
                "replicas are not spread"
            ),
        )
    for missing in spec.match_label_keys:
        if missing not in case.pod.labels and case.rules.gates.match_label_keys:
            yield (
                Caution.LABEL_KEY_MISSING,
                f"matchLabelKeys: the pod has no label {missing}, so that key does nothing",
            )
    if case.snapshot.node_count:
        yield from _of_key(case, key, hard=hard)
    yield from _of_min_domains(case, constraint, spec, hard=hard)


def _of_key(case: Case, key: str, *, hard: bool) -> Iterator[tuple[Caution, str]]:
    nodes = case.snapshot.node_count
    lacking = int(np.count_nonzero(case.snapshot.alive & (case.snapshot.domains(key).ids < 0)))
    if lacking == nodes:
        effect = "no node can take the pod" if hard else "no node gets a score"
        yield Caution.KEY_ON_NO_NODE, f"no node has the label {key}: {effect}"
    elif lacking and not case.constraints.defaulted:
        effect = "can never take the pod" if hard else "get no score"
        yield (
            Caution.KEY_ON_SOME_NODES,
            f"{lacking} of {nodes} nodes lack the label {key} and {effect}",
        )


def _of_min_domains(
    case: Case, constraint: Constraint, spec: SpreadConstraint, *, hard: bool
) -> Iterator[tuple[Caution, str]]:
    wanted = spec.min_domains
    if wanted is None or wanted <= 1:
        return
    if not hard:
        yield Caution.MIN_DOMAINS_IGNORED, "minDomains does nothing with ScheduleAnyway"
        return
    if not case.rules.gates.min_domains:
        yield Caution.MIN_DOMAINS_IGNORED, "minDomains does nothing: its feature gate is off"
        return
    key = constraint.topology_key
    requirements = constraint.eligibility.requirements
    named = None if requirements is None else named_values(requirements, key)
    if named is not None and named < wanted:
        yield (
            Caution.MIN_DOMAINS_OUT_OF_REACH,
            (
                f"minDomains {wanted} can never be met: the pod's node affinity admits {named} "
                f"value{'s' * (named != 1)} of {key}"
            ),
        )
        return
    column = case.snapshot.domains(key)
    there = np.unique(column.ids[case.snapshot.alive & (column.ids >= 0)]).size
    if there < wanted:
        yield (
            Caution.MIN_DOMAINS_OUT_OF_REACH,
            (
                f"minDomains {wanted} is more than the {there} domain{'s' * (there != 1)} of {key} "
                f"that the cluster has"
            ),
        )


def named_values(requirements: CompiledRequirements, key: str) -> int | None:
    """How many values of a key a pod's node affinity names; None when it does not name them."""
    if any(pair[0] == key for pair in requirements.node_selector):
        return 1
    if requirements.terms is None:
        return None
    values: set[str] = set()
    for term in requirements.terms:
        here = _values_of(term, key)
        if here is None:
            return None
        values |= here
    return len(values)


def _values_of(term: CompiledTerm, key: str) -> set[str] | None:
    named: list[Sequence[str]] = [
        label.values for label in term.labels if label.key == key and label.operator == IN
    ]
    return set.intersection(*map(set, named)) if named else None
