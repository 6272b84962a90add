"""Rules on the selector of a constraint, and on matchLabelKeys: which pods are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.selectors import Selector, selector_text
from topospread.spread.linting.catalog import LintFinding, LintRule, Severity, rule
from topospread.spread.settings import RELEASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.kube.versions import KubernetesVersion
    from topospread.spread.linting.workloads import LintedConstraint

NIL_SELECTOR: Final = rule(
    "NIL_SELECTOR",
    Severity.ERROR,
    "without a labelSelector a constraint counts no pod and spreads nothing",
    "Give the constraint the workload's own labelSelector.",
)
EMPTY_SELECTOR: Final = rule(
    "EMPTY_SELECTOR",
    Severity.ERROR,
    "up to Kubernetes 1.37 an empty labelSelector counts no pod and spreads nothing",
    "Give the constraint the workload's own labelSelector.",
)
SELF_MISMATCH: Final = rule(
    "SELF_MISMATCH",
    Severity.ERROR,
    "the pod does not match its own labelSelector, so its replicas are not spread",
    "Let the constraint's labelSelector match the labels of the pod template.",
)


_ADDS_SELECTORS: Final = "additionalLabelSelectors"
"""A field by which prometheus-operator makes the selector."""


def of_selector(linted: LintedConstraint) -> Iterator[LintFinding]:
    """A selector that matches nothing, or not the pods that have it."""
    workload, matches_itself = linted.workload, linted.may_count_own_pods
    if not workload.has_template:
        matches_itself = True  # of its pods no label is known
    wrong = selector_finding(linted.selector, matches_itself=matches_itself, version=linted.version)
    if wrong is None:
        return
    found, text = wrong
    severity = None
    if found is SELF_MISMATCH and not workload.labels_known:
        severity = Severity.INFO
        text = (
            f"the template's labels do not match the labelSelector {selector_text(linted.selector)}"
            f": {_unless_added(workload.kind, 'others')}, it follows other pods, "
            "and its own replicas are not spread"
        )
    elif found is NIL_SELECTOR and (workload.is_partial or not workload.has_template):
        if not workload.has_template and _ADDS_SELECTORS in workload.given[linted.index]:
            return
        severity = Severity.INFO
        text = "no labelSelector: unless one is added, it matches no pod, and nothing is spread"
    yield found.found(linted.index, text, severity)


def _unless_added(kind: str, labels: str) -> str:
    """What may add labels to the pods of a template; a text or values of a chart have no kind."""
    adds = f"the controller of the {kind} adds" if kind else "something else adds"
    return f"unless {adds} {labels}"


def selector_finding(
    selector: Selector, *, matches_itself: bool, version: KubernetesVersion | None
) -> tuple[LintRule, str] | None:
    """What is wrong with a constraint's selector.

    Args:
        selector: with matchLabelKeys merged in.
        matches_itself: whether it matches the pod that has it.
        version: one of the known ones; None where the cluster's is not known.
    """
    if selector.nothing:
        return (
            NIL_SELECTOR,
            "no labelSelector: it matches no pod, not even this one, so nothing is spread",
        )
    if selector.empty and version is None:
        return (
            EMPTY_SELECTOR,
            (
                "an empty labelSelector: up to Kubernetes 1.37 kube-scheduler counts no pods for "
                "it, so nothing is spread; from 1.38 on it counts all pods of the namespace"
            ),
        )
    if selector.empty and version is not None and not RELEASES[version].counts_empty_selector:
        return (
            EMPTY_SELECTOR,
            (
                f"an empty labelSelector: kube-scheduler of Kubernetes {version} counts no pods "
                "for it, so nothing is spread"
            ),
        )
    if not matches_itself:
        return (
            SELF_MISMATCH,
            (
                f"the pod does not match its own labelSelector {selector_text(selector)}: it "
                "follows other pods, and its own replicas are not spread"
            ),
        )
    return None


WIDER_SELECTOR: Final = rule(
    "WIDER_SELECTOR",
    Severity.WARNING,
    "the labelSelector counts pods of other workloads, too",
    "Give the constraint all labels of the workload's own selector.",
)


def of_wider_selector(linted: LintedConstraint) -> Iterator[LintFinding]:
    """A selector that matches more than the workload's own."""
    if linted.counts_others:
        yield WIDER_SELECTOR.found(
            linted.index,
            f"the labelSelector {selector_text(linted.selector)} lacks {linted.unrequired} of the "
            "workload's own: pods of others are counted, too",
        )


LABEL_KEY_MISSING: Final = rule(
    "LABEL_KEY_MISSING",
    Severity.WARNING,
    "a key of matchLabelKeys is no label of the pod, so it does nothing",
    "Name a label that the pods have: pod-template-hash of a Deployment's, "
    "controller-revision-hash of a StatefulSet's.",
)


def of_match_label_keys(linted: LintedConstraint) -> Iterator[LintFinding]:
    """Keys of matchLabelKeys that no pod has."""
    workload, added = linted.workload, linted.workload.added_labels
    for key in linted.spec.match_label_keys:
        if key in workload.pod.labels or key in added:
            continue
        if not workload.labels_known:
            yield LABEL_KEY_MISSING.found(
                linted.index,
                f"matchLabelKeys: the template has no label {key}: "
                f"{_unless_added(workload.kind, 'one')}, that key does nothing",
                Severity.INFO,
            )
            continue
        instead = f"; its controller adds {added[0]}" if added else ""
        yield LABEL_KEY_MISSING.found(
            linted.index,
            f"matchLabelKeys: pods of a {workload.kind} have no label {key}, so that key does "
            f"nothing{instead}",
        )
