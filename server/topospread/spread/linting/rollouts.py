"""Rules on rollouts: what a constraint does while old pods and new ones are there together.

A ReplicaSet adds up to maxSurge pods, and takes old ones away as new ones become available, but
never more than maxUnavailable before. Without matchLabelKeys: [pod-template-hash] the old pods
count.

- *Skew*: the new pods are placed beside the old ones, and which of these go first depends on their
  readiness, their age and who shares their node, not on domains. What is left may be skewed by more
  than maxSkew. Where no pod is added before one has gone (maxSurge 0), the freed domain is the one
  with the fewest pods, and gets the new pod.
- *Deadlock*: with maxUnavailable 0 no old pod goes before a new one runs, and that needs a place
  beside all old ones. There always is one in a domain with the fewest pods, unless such a domain
  cannot take the pod, or minDomains keeps the minimum at 0: then each usable domain has maxSkew
  places and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.spread.linting.catalog import LintFinding, Severity, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.spread.linting.workloads import LintedConstraint, LintedWorkload, Rollout

_SEVERAL: Final = 4
"""Replicas that are reckoned with where the manifest does not say."""


ROLLOUT_SKEW: Final = rule(
    "ROLLOUT_SKEW",
    Severity.WARNING,
    "a rollout counts the pods that it replaces, and may leave the new ones skewed",
    "Set matchLabelKeys: [pod-template-hash], so that each revision is spread by itself.",
)
ROLLOUT_DEADLOCK: Final = rule(
    "ROLLOUT_DEADLOCK",
    Severity.WARNING,
    "a rollout may wait forever: its surge pod needs a place beside all old pods",
    "Set matchLabelKeys: [pod-template-hash], or maxUnavailable to at least 1.",
)


def rollout_findings(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with one constraint while its workload is rolled out."""
    rollout = linted.workload.rollout
    if rollout is None or not linted.counts_own_pods or _is_scoped(linted, rollout):
        return
    replicas = linted.workload.replicas
    if not rollout.surge(_SEVERAL if replicas is None else replicas):
        return
    yield from _skew(linted, rollout)
    if linted.is_hard:
        yield from _deadlock(linted, rollout)


def repelling_findings(
    workload: LintedWorkload, constraints: Sequence[LintedConstraint]
) -> Iterator[LintFinding]:
    """The same deadlock where the pods of a workload repel one another."""
    rollout, replicas = workload.rollout, workload.replicas
    if rollout is None or not replicas or rollout.unavailable(replicas):
        return
    known = {each.spec.topology_key: each.numbers for each in constraints if each.numbers}
    for key in workload.repelling_keys:
        numbers = known.get(key)
        if numbers is not None and numbers.usable > replicas:
            continue
        there = "" if numbers is None else f", and there are {numbers.usable}"
        yield ROLLOUT_DEADLOCK.found(
            -1,
            f"required anti-affinity keeps its pods apart by {key}, and maxUnavailable is 0: a "
            f"rollout of {replicas} replicas needs {replicas + 1} domains{there}",
            None if numbers is None else Severity.ERROR,
        )


def _is_scoped(linted: LintedConstraint, rollout: Rollout) -> bool:
    """Whether each revision is counted by itself."""
    named = {each.key for each in linted.selector.requirements} | {*linted.spec.match_label_keys}
    return rollout.hash_label in named


def _skew(linted: LintedConstraint, rollout: Rollout) -> Iterator[LintFinding]:
    replicas, max_skew = linted.workload.replicas, linted.spec.max_skew
    counts_others = linted.counts_others
    if not counts_others and replicas is not None and replicas <= max(1, max_skew):
        return
    if linted.numbers is not None and linted.numbers.domains == 1:
        return
    surge = 0 if replicas is None else rollout.surge(replicas)
    added = f"up to {surge} pods" if surge > 1 else "a pod" if surge else "pods"
    text = (
        f"a rollout adds {added} before old ones go, and counts these: what is left may be skewed "
        f"by more than maxSkew {max_skew}"
    )
    if counts_others:
        text += (
            f"; {rollout.hash_label} in matchLabelKeys would leave out the other workloads' pods: "
            "set maxSurge to 0 instead"
        )
    else:
        text += f"; {rollout.hash_label} is not in matchLabelKeys"
    yield ROLLOUT_SKEW.found(linted.index, text)


def _deadlock(linted: LintedConstraint, rollout: Rollout) -> Iterator[LintFinding]:
    replicas = linted.workload.replicas
    if rollout.unavailable(_SEVERAL if replicas is None else replicas):
        return
    given = f"maxUnavailable is {rollout.max_unavailable}"
    if rollout.max_unavailable.is_percentage:
        given += f", of {replicas} replicas 0"
    old = "all old ones" if replicas is None else f"all {replicas} old ones"
    beside = f"a new pod needs a place beside {old} before one of these goes"
    places = linted.places
    if linted.numbers is not None:
        if places is not None and places == replicas:
            text = f"{given}: {beside}, and all {places} are taken, as {linted.held_at_zero}"
            yield ROLLOUT_DEADLOCK.found(linted.index, text, Severity.ERROR)
        return
    if replicas is None or replicas > 1:
        text = (
            f"{given}: {beside}; where a domain counts that cannot take it, tainted or full, the "
            "rollout waits forever"
        )
        yield ROLLOUT_DEADLOCK.found(linted.index, text)
