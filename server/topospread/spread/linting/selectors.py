"""Rules on a constraint's selector: which pods it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.kube.selectors import Selector, selector_text
from topospread.spread.findings import FindingCode
from topospread.spread.linting.catalog import LintFinding, found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.spread.linting.linted import LintedConstraint


def findings_of_selector(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with the pods that a constraint counts."""
    selecting = selector_finding(linted.selector, matches_itself=linted.may_count_own_pods)
    if selecting is not None:
        yield found(selecting[0], linted.index, selecting[1])
    yield from _of_wider_selector(linted)
    yield from _of_match_label_keys(linted)


def selector_finding(selector: Selector, *, matches_itself: bool) -> tuple[FindingCode, str] | None:
    """What is wrong with a constraint's selector.

    Args:
        selector: of the constraint.
        matches_itself: whether it matches the labels of the pod that has the constraint, or may.
    """
    if selector.nothing:
        return (
            FindingCode.NIL_SELECTOR,
            "no labelSelector: it matches no pod, not even this one, so nothing is spread",
        )
    if selector.empty:
        return (
            FindingCode.EMPTY_SELECTOR,
            "an empty labelSelector: kube-scheduler counts no pods for it, so nothing is spread",
        )
    if not matches_itself:
        return (
            FindingCode.SELF_MISMATCH,
            (
                f"the pod does not match its own labelSelector {selector_text(selector)}: it "
                "follows other pods, and its own replicas are not spread"
            ),
        )
    return None


def _of_wider_selector(linted: LintedConstraint) -> Iterator[LintFinding]:
    if linted.counts_others:
        yield found(
            FindingCode.WIDER_SELECTOR,
            linted.index,
            f"the labelSelector {selector_text(linted.selector)} lacks {linted.unrequired} of the "
            "workload's own: pods of others are counted, too",
        )


def _of_match_label_keys(linted: LintedConstraint) -> Iterator[LintFinding]:
    workload, added = linted.workload, linted.workload.added_labels
    for key in linted.spec.match_label_keys:
        if key in workload.pod.labels or key in added:
            continue
        instead = f"; its controller adds {added[0]}" if added else ""
        yield found(
            FindingCode.LABEL_KEY_MISSING,
            linted.index,
            f"matchLabelKeys: pods of a {workload.kind} have no label {key}, so that key does "
            f"nothing{instead}",
        )
