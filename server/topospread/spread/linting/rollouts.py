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

from topospread.kube.objects import HOSTNAME_LABEL
from topospread.spread.linting.catalog import LintFinding, Severity, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.kube.rollouts import Rollout
    from topospread.spread.linting.workloads import DomainNumbers, LintedConstraint

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
_MORE_CAPACITY: Final = "Make room for as many pods more as maxSurge says, in each domain."


def rollout_findings(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with one constraint while its workload is rolled out."""
    rollout = linted.workload.rollout
    if rollout is None or not linted.counts_own_pods or linted.workload.kind == "DaemonSet":
        return
    is_scoped = _is_scoped(linted, rollout)
    surges = rollout.surge(_known(linted.workload.replicas))
    if surges and not is_scoped:
        yield from _skew(linted, rollout)
    if not linted.is_hard:
        return
    if linted.numbers is not None:
        yield from _held_up(linted, rollout, linted.numbers, is_scoped=is_scoped)
    elif surges and not is_scoped:
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


def _given(rollout: Rollout, replicas: int | None) -> str:
    text = f"maxUnavailable is {rollout.max_unavailable}"
    if rollout.doubles:
        return "all new pods come before an old one goes"
    if rollout.max_unavailable.is_percentage:
        text += f", of {replicas} replicas 0"
    return text


def _beside(rollout: Rollout, replicas: int | None) -> str:
    old = "all old ones" if replicas is None else f"all {replicas} old ones"
    if replicas == 1:
        old = "the old one"
    return f"{_given(rollout, replicas)}: a new pod needs a place beside {old}"


def _may_be_held_up(linted: LintedConstraint, rollout: Rollout) -> Iterator[LintFinding]:
    """What a manifest alone tells."""
    replicas = linted.workload.replicas
    if rollout.unavailable(_known(replicas)) or replicas in (0, 1):
        return
    text = (
        f"{_beside(rollout, replicas)} before one of these goes; where a domain counts that cannot "
        "take it, tainted or full, the rollout waits forever"
    )
    is_few = replicas is not None and replicas <= FEW
    is_harmless = is_few and linted.spec.topology_key == HOSTNAME_LABEL
    severity = Severity.INFO if is_harmless else None
    yield ROLLOUT_DEADLOCK.found(linted.index, text, severity)


def _held_up(
    linted: LintedConstraint, rollout: Rollout, numbers: DomainNumbers, *, is_scoped: bool
) -> Iterator[LintFinding]:
    """What the state of the cluster tells."""
    replicas = linted.workload.replicas
    if not replicas:
        return
    if linted.is_outgrown:
        yield _without_a_domain(linted, rollout, numbers, replicas, is_scoped=is_scoped)
        return
    if linted.lacks_places:
        return
    lacking = rollout.unavailable(replicas)
    wanted = replicas + _added(rollout, replicas)
    places = linted.places
    if not is_scoped and not lacking and places is not None and places < wanted:
        text = (
            f"{_beside(rollout, replicas)} before one of these goes, and all {places} are taken, "
            f"as {linted.held_at_zero}"
        )
        yield ROLLOUT_DEADLOCK.found(linted.index, text, Severity.ERROR)
        return
    capacity = numbers.capacity
    if capacity is None or not capacity.total:
        return
    max_skew = linted.spec.max_skew
    most = capacity.places(max_skew, linted.spec.min_domains or 1)
    beside = capacity.total if is_scoped else most
    if most < replicas or (not lacking and beside < wanted):
        text = (
            f"{_beside(rollout, replicas)}, and the nodes that it may use have room for {beside} "
            "now"
        )
        if lacking or most < replicas:
            text = f"the nodes that it may use have room for {most} of {replicas} replicas now"
        yield ROLLOUT_DEADLOCK.found(
            linted.index, f"{text}: a rollout waits for more", mend=_MORE_CAPACITY
        )
    elif is_scoped and capacity.may_hold_up(replicas, lacking, max_skew):
        text = (
            f"{rollout.hash_label} in matchLabelKeys spreads the new pods by themselves, and a "
            "domain with old ones has too little room for new ones now: where old pods of other "
            "domains go first, the rollout waits for room in it"
        )
        severity = Severity.INFO if lacking else None
        yield ROLLOUT_DEADLOCK.found(linted.index, text, severity, mend=_MORE_CAPACITY)


def _added(rollout: Rollout, replicas: int) -> int:
    """New pods that must run before an old one goes."""
    return replicas if rollout.doubles else 1


def _without_a_domain(
    linted: LintedConstraint,
    rollout: Rollout,
    numbers: DomainNumbers,
    replicas: int,
    *,
    is_scoped: bool,
) -> LintFinding:
    """Where a domain that counts has lost the nodes that the pod could use.

    It is certain unless enough old pods of that domain are the last that go.
    """
    unusable = numbers.domains - numbers.usable
    last = 0 if is_scoped else rollout.surge(replicas) // unusable
    is_certain = replicas > numbers.usable * (linted.spec.max_skew + last)
    text = (
        f"{numbers.unusable_text} now: when the old pods there have gone, the others take "
        f"{numbers.usable * linted.spec.max_skew} of {replicas} replicas, "
        f"and a rollout {'waits' if is_certain else 'may wait'} forever"
    )
    severity = Severity.ERROR if is_certain else Severity.WARNING
    return ROLLOUT_DEADLOCK.found(linted.index, text, severity, mend=_USABLE_AGAIN)
