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
  places and no more. With matchLabelKeys the new pods need a place in each domain while the old
  ones are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.objects import HONOR, HOSTNAME_LABEL
from topospread.spread.linting.catalog import LintFinding, Severity, rule
from topospread.spread.rollouts import RolloutEnd, given_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.rollouts import Rollout
    from topospread.spread.linting.workloads import (
        DomainNumbers,
        LintedConstraint,
        LintedWorkload,
        Repulsion,
    )
    from topospread.spread.rollouts import RolloutOutcome

SEVERAL: Final = 4
"""Replicas that are reckoned with where the manifest does not say."""

FEW: Final = 2
"""Replicas for which nearly every cluster has nodes enough."""

_TRIED: Final = "125 of 200 rollouts tried over three zones with maxSkew 1 ended so"
"""Of a Deployment of 6 or 12 replicas, by kube-scheduler 1.37; docs/lint.md has them by setting."""


ROLLOUT_SKEW: Final = rule(
    "ROLLOUT_SKEW",
    Severity.WARNING,
    "a rollout counts the pods that it replaces, and may leave the new ones skewed",
    "Set matchLabelKeys: [pod-template-hash], so that each revision is spread by itself; it waits "
    "for room in each domain then.",
)
ROLLOUT_DEADLOCK: Final = rule(
    "ROLLOUT_DEADLOCK",
    Severity.WARNING,
    "a rollout may wait forever: its surge pod needs a place beside all old pods",
    "Set maxUnavailable to at least 1, or, where every domain has room for a pod more, "
    "matchLabelKeys: [pod-template-hash].",
)

_USABLE_AGAIN: Final = "Set nodeTaintsPolicy: Honor, or let the pod use the domain's nodes."
_MORE_DOMAINS: Final = "Add nodes that the pod can use, or raise maxSkew."
_LOOK_AT_FEWER: Final = "Ask with fewer replicas: a rollout of some hundreds is not followed."
_MORE_CAPACITY: Final = "Make room for as many pods more as maxSurge says, in each domain."


def rollout_findings(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with one constraint while its workload is rolled out, by the manifest."""
    rollout = linted.workload.rollout
    if rollout is None or not linted.counts_own_pods or linted.workload.kind == "DaemonSet":
        return
    is_scoped = _is_scoped(linted, rollout)
    surges = rollout.surge(_known(linted.workload.replicas))
    if surges and not is_scoped:
        yield from _skew(linted, rollout)
    if not linted.is_hard:
        return
    if linted.numbers is None and surges and not is_scoped:
        yield from _may_be_held_up(linted, rollout)


def _known(replicas: int | None) -> int:
    return SEVERAL if replicas is None else replicas


def _is_scoped(linted: LintedConstraint, rollout: Rollout) -> bool:
    """Whether each revision is counted by itself."""
    named = {each.key for each in linted.selector.requirements} | {*linted.spec.match_label_keys}
    return rollout.hash_label in named


def _skew(linted: LintedConstraint, rollout: Rollout) -> Iterator[LintFinding]:
    replicas, max_skew = linted.workload.replicas, linted.spec.max_skew
    is_alone = replicas is not None and replicas <= max(1, max_skew)
    if is_alone and not (linted.counts_others and replicas):
        return
    surge = 0 if replicas is None else rollout.surge(replicas)
    if linted.numbers is not None and _stays_even(linted, linted.numbers, surge):
        return
    added = f"up to {surge} pods" if surge > 1 else "a pod" if surge else "pods"
    text = (
        f"a rollout adds {added} before old ones go, and counts these: what is left may be skewed "
        f"by more than maxSkew {max_skew}"
    )
    is_few = False
    if linted.spec.topology_key == HOSTNAME_LABEL and linted.numbers is None:
        # With a node for each pod none ever gets more than maxSkew.
        is_few = replicas is None or replicas <= FEW
        enough = "pods" if replicas is None else f"{replicas + surge}"
        if not linted.counts_others:
            text += f" where there are fewer nodes than {enough}"
    is_grave = linted.is_hard and not is_alone and not is_few
    if is_grave:
        text += f" ({_TRIED})"
    label = rollout.hash_label
    if not linted.counts_others:
        text += f"; {label} is not in matchLabelKeys"
        mend = ROLLOUT_SKEW.mend.replace("pod-template-hash", label)
    else:
        text += f"; {label} in matchLabelKeys would leave out the other workloads' pods"
        mend = (
            "Where the constraint need not spread several workloads together, give it all labels "
            f"of the workload's own selector, and {label} in matchLabelKeys"
        )
        if _may_lack_surge(rollout, replicas):
            text += ": set maxSurge to 0 instead"
            mend += "; else set maxSurge to 0"
        mend += "."
    yield ROLLOUT_SKEW.found(linted.index, text, None if is_grave else Severity.INFO, mend=mend)


def _stays_even(linted: LintedConstraint, numbers: DomainNumbers, surge: int) -> bool:
    """Whether a rollout cannot skew, as there is one domain, or one stays without pods throughout.

    Where the global minimum is 0 at each placement no domain gets more than maxSkew pods.
    """
    if numbers.domains == 1:
        return True
    if linted.counts_others or not linted.is_hard:
        return False
    replicas = linted.workload.replicas
    is_enough = replicas is not None and numbers.domains >= replicas + surge
    return is_enough or bool(linted.held_at_zero)


def _may_lack_surge(rollout: Rollout, replicas: int | None) -> bool:
    """Whether replicas are left in a rollout with maxSurge 0."""
    if rollout.doubles:
        return False
    given = _known(replicas)
    return max(1, rollout.max_unavailable.of(given, up=False)) < given


def _beside(rollout: Rollout, replicas: int | None) -> str:
    old = "all old ones" if replicas is None else f"all {replicas} old ones"
    if replicas == 1:
        old = "the old one"
    return f"{given_text(rollout, replicas)}: a new pod needs a place beside {old}"


def _may_be_held_up(linted: LintedConstraint, rollout: Rollout) -> Iterator[LintFinding]:
    """What a manifest alone tells."""
    replicas = linted.workload.replicas
    if rollout.unavailable(_known(replicas)) or replicas in (0, 1):
        return
    if replicas is not None and replicas % linted.spec.max_skew:
        return  # the other domains take one pod more than all of them
    # Under Honor a node whose taints the pod does not tolerate is in no domain.
    how = "full" if linted.spec.node_taints_policy == HONOR else "tainted or full"
    text = (
        f"{_beside(rollout, replicas)} before one of these goes; where a domain counts whose nodes "
        f"are {how}, and the others have no place more, the rollout waits forever"
    )
    is_few = replicas is not None and replicas <= FEW
    is_harmless = is_few and linted.spec.topology_key == HOSTNAME_LABEL
    severity = Severity.INFO if is_harmless else None
    yield ROLLOUT_DEADLOCK.found(linted.index, text, severity)


def outcome_findings(
    workload: LintedWorkload, outcome: RolloutOutcome | None, hard: Sequence[LintedConstraint]
) -> Iterator[LintFinding]:
    """What the state of the cluster tells: the rollout was carried out on it.

    Args:
        workload: that is linted.
        outcome: of its rollout; None where it is not known.
        hard: its hard constraints.
    """
    if outcome is not None and outcome.end is RolloutEnd.UNKNOWN:
        yield ROLLOUT_DEADLOCK.found(-1, outcome.text, Severity.INFO, mend=_LOOK_AT_FEWER)
    if outcome is None or outcome.wait is None:
        return
    severity = Severity.WARNING
    if not outcome.is_likely:
        severity = Severity.INFO
    elif outcome.end is RolloutEnd.WAITS and not outcome.wait.lacks_resources:
        severity = Severity.ERROR
    index = hard[0].index if len(hard) == 1 and not workload.repulsions else -1
    text = outcome.text
    for numbers in _unusable(hard):
        text += f" {numbers.unusable_text}."
    yield ROLLOUT_DEADLOCK.found(index, text, severity, mend=_mend(workload, outcome, hard))


def _unusable(hard: Sequence[LintedConstraint]) -> list[DomainNumbers]:
    """Of constraints for which domains count that have no node for the pod."""
    numbers = (each.numbers for each in hard)
    return [each for each in numbers if each is not None and each.usable < each.domains]


def _mend(
    workload: LintedWorkload, outcome: RolloutOutcome, hard: Sequence[LintedConstraint]
) -> str:
    replicas, rollout = outcome.replicas, outcome.rollout
    if outcome.wait is not None and outcome.wait.lacks_resources:
        return _MORE_CAPACITY
    for repulsion in workload.repulsions:
        if not repulsion.is_scoped and not rollout.unavailable(replicas):
            return slower(rollout, repulsion, replicas)
    if _unusable(hard):
        return _USABLE_AGAIN
    return "" if not rollout.unavailable(replicas) else _MORE_DOMAINS


def slower(rollout: Rollout, repulsion: Repulsion, replicas: int) -> str:
    """What helps pods that keep one another apart to be rolled out."""
    if replicas == 1 or rollout.doubles:
        mend = f"Keep enough {repulsion.noun}s that the pod can use"
    else:
        mend = f"Set maxUnavailable to at least 1, or keep more {repulsion.noun}s than replicas"
    if not repulsion.ports:
        mend += f", or name {rollout.hash_label} in matchLabelKeys of the anti-affinity"
    return f"{mend}."
