"""InterPodAffinity: pods that a pod wants in its domain or keeps away, and whom it is kept from.

Three questions in this order. Own affinity: each term's domain of the node has a pod that matches
all terms; or no such pod is anywhere, the pod matches all itself, and the node has all keys. Own
anti-affinity: no term's domain has a pod that matches the term. Anti-affinity of pods that run: no
domain that the node shares with one has a term of it that matches the pod. Terminating pods count.

Where the labels of namespaces are not known, what selects by them refuses nothing and is a gap.
Pods are counted by groups, terms of pods that run by ``Snapshot.holdings``; no pod is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.index.objects import NAMESPACE
from topospread.kube.namespaces import ALL_NAMESPACES, NamespaceSet
from topospread.kube.pod_affinity import UNTOLD
from topospread.kube.selectors import NOTHING, Selector
from topospread.service.fit.question import Refusals, Rule, refusing
from topospread.spread.topology import Eligibility, GroupKey
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.index.objects import Objects
    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.kube.pod_affinity import AffinityTerm
    from topospread.service.fit.nominated import Nominated
    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools

NAME: Final = "InterPodAffinity"
AFFINITY_REASON: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_REASON: Final = "node(s) didn't match pod anti-affinity rules"
OTHERS_REASON: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

STORED_BEFORE: Final = "inter-pod affinity (stored by an older server)"

EVERYWHERE: Final = Eligibility()

_NO_LABELS: Final[Mapping[str, str]] = {}


class OwnTerms(NamedTuple):
    """What a pod's required terms count.

    Attributes:
        together: topology keys of its affinity, and the pods that match all of its terms; None
            without affinity, and where a term of it is not known.
        apart: topology key and pods of each term of its anti-affinity.
    """

    together: tuple[tuple[str, ...], GroupKey] | None
    apart: Sequence[tuple[str, GroupKey]]


def own_terms(demand: Demand, objects: Objects) -> OwnTerms:
    """The terms of a pod, with the namespaces that they select today."""
    together = None
    if demand.affinity and not any(_not_known(each, objects) for each in demand.affinity):
        keys = tuple(dict.fromkeys(each.topology_key for each in demand.affinity))
        together = keys, _matching_all(demand.affinity, objects)
    apart = [(each.topology_key, _matching_all((each,), objects)) for each in demand.anti_affinity]
    return OwnTerms(together, tuple(dict.fromkeys(apart)))


def counted_groups(demand: Demand, objects: Objects) -> tuple[GroupKey, ...]:
    """The groups that must be counted to judge a pod."""
    terms = own_terms(demand, objects)
    groups = [group for _, group in terms.apart]
    if terms.together is not None:
        groups.append(terms.together[1])
    return tuple(dict.fromkeys(each for each in groups if not each.selector.nothing))


def _matching_all(terms: Sequence[AffinityTerm], objects: Objects) -> GroupKey:
    """The pods that match all of some terms."""
    selector: Selector = terms[0].selector
    namespaces = _namespaces(terms[0], objects)
    for each in terms[1:]:
        selector = NOTHING if each.selector.nothing else selector.and_requirements(each.selector)
        namespaces &= _namespaces(each, objects)
    return GroupKey("", selector if namespaces else NOTHING, namespaces, terminating=True)


def _namespaces(term: AffinityTerm, objects: Objects) -> NamespaceSet:
    """The namespaces of a term: those that it names, and those that it selects."""
    chosen = term.namespace_selector
    if chosen is not None and chosen.empty:
        # Also namespaces that are not known.
        return ALL_NAMESPACES
    if chosen is None or objects.unknown(NAMESPACE):
        return NamespaceSet(frozenset(term.namespaces))
    return objects.namespaces_matching(chosen).with_names(term.namespaces)


def _not_known(term: AffinityTerm, objects: Objects) -> bool:
    """Whether it cannot be told of which pods a term is."""
    return term == UNTOLD or (_by_labels(term) and objects.unknown(NAMESPACE) != "")


def _by_labels(term: AffinityTerm) -> bool:
    """Whether a term selects namespaces by their labels."""
    return term.namespace_selector is not None and not term.namespace_selector.empty


def gaps(asked: FitQuestion) -> Iterator[str]:
    """Terms of which a store kept too little, and namespaces whose labels are not known."""
    own = (*asked.demand.affinity, *asked.demand.anti_affinity)
    if UNTOLD in own or asked.snapshot.holdings.is_held(UNTOLD):
        yield STORED_BEFORE
    unknown = asked.snapshot.objects.unknown(NAMESPACE)
    if unknown and any(map(_by_labels, (*own, *(term for term, _ in _about(asked))))):
        yield f"inter-pod affinity by labels of namespaces ({unknown})"


def _about(asked: FitQuestion) -> Iterable[tuple[AffinityTerm, Mapping[int, int]]]:
    return asked.snapshot.holdings.terms_about(asked.pod.namespace, asked.pod.labels)


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes that one of the three questions refuses."""
    return _refusals(_judged(asked))


class _Judged(NamedTuple):
    """[slots] nodes that a question refuses; None where it refuses none, or there is none."""

    affinity: Bools | None
    anti_affinity: Bools | None
    others: Bools | None


def _judged(asked: FitQuestion) -> _Judged:
    snapshot = asked.snapshot
    terms = own_terms(asked.demand, snapshot.objects)
    affinity = None
    if terms.together is not None:
        affinity = _away_from(asked, *terms.together)
    return _Judged(
        affinity,
        _any_of([_beside(snapshot, key, group) for key, group in terms.apart]),
        _kept_away(asked),
    )


def _refusals(judged: _Judged) -> Refusals | None:
    never = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    return refusing(
        *(
            Rule(NAME, code, [(reason, nodes)])
            for code, reason, nodes in (
                (never, AFFINITY_REASON, judged.affinity),
                (Code.UNSCHEDULABLE, ANTI_AFFINITY_REASON, judged.anti_affinity),
                (Code.UNSCHEDULABLE, OTHERS_REASON, judged.others),
            )
            if nodes is not None
        )
    )


def _any_of(masks: Iterable[Bools | None]) -> Bools | None:
    found: Bools | None = None
    for each in masks:
        if each is not None:
            found = each if found is None else found | each
    return found


def _away_from(asked: FitQuestion, keys: Sequence[str], group: GroupKey) -> Bools:
    """[slots] nodes with a domain where no pod matches all terms."""
    snapshot = asked.snapshot
    lacking = np.zeros_like(snapshot.alive)
    without_key = lacking.copy()
    anywhere = False
    for key in keys:
        ids = snapshot.domains(key).ids
        without_key |= ids < 0
        if group.selector.nothing:
            lacking[:] = True
            continue
        held = snapshot.domain_counts(group, EVERYWHERE, key) > 0
        anywhere = anywhere or bool(held.any())
        lacking |= ~snapshot.domains(key).spread(held)
    if not anywhere and _counts(group, asked.pod.namespace, asked.pod.labels):
        return without_key
    return lacking | without_key


def _beside(snapshot: Snapshot, key: str, group: GroupKey) -> Bools | None:
    """[slots] nodes of domains where a pod of a group is."""
    if group.selector.nothing:
        return None
    held = snapshot.domain_counts(group, EVERYWHERE, key) > 0
    return snapshot.domains(key).spread(held) if held.any() else None


def _kept_away(asked: FitQuestion) -> Bools | None:
    """[slots] nodes of domains where a pod is that keeps this one away."""
    snapshot = asked.snapshot
    marked: dict[str, Bools] = {}
    covers = _covering(asked)
    for term, pods in _about(asked):
        if not covers(term):
            continue
        domains = snapshot.domains(term.topology_key)
        slots = np.fromiter(pods, np.intp, len(pods))
        ids = domains.ids[slots[slots < domains.ids.size]]
        held = marked.get(term.topology_key)
        if held is None:
            held = marked[term.topology_key] = np.zeros(len(domains.values), dtype=np.bool_)
        held[ids[ids >= 0]] = True
    return _any_of(snapshot.domains(key).spread(held) for key, held in marked.items() if held.any())


def _covering(asked: FitQuestion) -> Callable[[AffinityTerm], bool]:
    """Whether a term is about pods of the pod's namespace."""
    name, objects = asked.pod.namespace, asked.snapshot.objects
    if objects.unknown(NAMESPACE):
        return lambda term: term.names(name) if _by_labels(term) else term.covers(name, _NO_LABELS)
    namespace = objects.namespace(name)
    labels = _NO_LABELS if namespace is None else dict(namespace.labels)
    return lambda term: term.covers(name, labels)


def _counts(group: GroupKey, namespace: str, labels: Mapping[str, str]) -> bool:
    return group.covers(namespace) and group.selector.matches(labels)


def refusals_beside(asked: FitQuestion, nominated: Nominated) -> Refusals | None:
    """The nodes with nominated pods that are refused if these run there, and only these.

    Where the plugin has nothing to look at without them, it is skipped with them, too.
    """
    alone = _judged(asked)
    demand, snapshot = asked.demand, asked.snapshot
    if alone.others is None and not (demand.affinity or demand.anti_affinity):
        return None
    affinity, anti_affinity, others = (
        np.zeros_like(snapshot.alive) if each is None else each & nominated.marks for each in alone
    )
    terms = own_terms(demand, snapshot.objects)
    covers = _covering(asked)
    for slot, namespace, row in nominated.pods:
        labels = dict(row.labels)
        if terms.together is not None:
            keys, group = terms.together
            if affinity[slot] and _counts(group, namespace, labels):
                affinity[slot] = any(snapshot.domains(key).ids[slot] < 0 for key in keys)
        for key, group in terms.apart:
            if snapshot.domains(key).ids[slot] >= 0 and _counts(group, namespace, labels):
                anti_affinity[slot] = True
        for term in () if row.holds is None else row.holds.terms:
            if snapshot.domains(term.topology_key).ids[slot] < 0:
                continue
            if term.selector.matches(asked.pod.labels) and covers(term):
                others[slot] = True
    return _refusals(_Judged(affinity, anti_affinity, others))
