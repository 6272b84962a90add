"""The pods that are ranked: those of one workload, and how many of its family run where."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topospread.checkpoints import checkpoint
from topospread.codec.stored_pods import controller_of, deletion_candidate, owner_key_of
from topospread.errors import CorruptValue
from topospread.kube.workloads import REPLICA_SET
from topospread.service.ranking.deciders import Decider, deciders_of, only_decider
from topospread.spread.settings import NEWEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.codec.stored_pods import EncodedPod, ListedPod, StoredPodReader
    from topospread.kube.objects import OwnerReference
    from topospread.kube.selectors import Selector
    from topospread.kube.versions import KubernetesVersion
    from topospread.service.ranking.deciders import Controllers
    from topospread.service.ranking.request import RankQuestion
    from topospread.spread.deletion import DeletionCandidate


@dataclass(slots=True, eq=False)
class RankedPods:
    """The pods of the workload, how many of their families run where, and the cluster's version.

    Attributes:
        not_chosen: of pods that the selector matches, and that are not of the workload.
        decider: of the workload.
        revisions: how many pods are of each ReplicaSet, or other revision, that it scales in.
        beside: how many bound pods of the namespace are not ranked, by their labels.
        elsewhere: workloads of the same name in other namespaces, where there are no pods.
        version: the newest where no cluster is read.
    """

    pods: list[DeletionCandidate] = field(default_factory=list)
    encoded: list[EncodedPod] = field(default_factory=list)
    constraints: set[tuple[bytes, ...]] = field(default_factory=set)
    not_chosen: list[Decider | None] = field(default_factory=list)
    decider: Decider | None = None
    revisions: Counter[str] = field(default_factory=Counter)
    beside: Counter[tuple[tuple[str, str], ...]] = field(default_factory=Counter)
    elsewhere: Sequence[str] = ()
    related: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: int = 0
    version: KubernetesVersion = NEWEST


def owner_keys(replica_sets: Iterable[bytes]) -> dict[tuple[str, str], str]:
    """The owner keys of ReplicaSets' pods, by namespace and name of the ReplicaSets."""
    found = {}
    for encoded in replica_sets:
        checkpoint()
        with suppress(CorruptValue):  # counted and logged where it is followed
            name, owner_key = owner_key_of(encoded)
            found[name] = owner_key
    return found


class SelectorMatches:
    """Whether a selector matches labels; equal ones are looked at once."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._known: dict[tuple[tuple[str, str], ...], bool] = {}

    def __call__(self, labels: tuple[tuple[str, str], ...]) -> bool:
        """Whether it matches sorted labels."""
        known = self._known.get(labels)
        if known is None:
            known = self._known[labels] = self._selector.matches(dict(labels))
        return known


def controllers(replica_sets: Iterable[bytes]) -> Controllers:
    """The controllers of ReplicaSets, by namespace; see kube.workloads.controllers_of."""
    found: dict[str, dict[tuple[str, str], OwnerReference | None]] = {}
    for encoded in replica_sets:
        checkpoint()
        with suppress(CorruptValue):
            namespace, name, owner = controller_of(encoded)
            found.setdefault(namespace, {})[REPLICA_SET, name] = owner
    return found


def choose(
    found: RankedPods,
    encoded: Iterable[EncodedPod],
    reader: StoredPodReader,
    question: RankQuestion,
    known: Controllers,
) -> None:
    """Choose the pods of one workload.

    Raises:
        InvalidRequest: they are of several, or of one whose pods have no order.
    """
    matches = SelectorMatches(question.selector)
    chosen: list[tuple[tuple[Decider, ...], ListedPod, EncodedPod]] = []
    for each in encoded:
        question.turn()
        with suppress(CorruptValue):  # counted and logged where it is followed
            listed = reader.listed(each)
            if listed.active:
                found.related[listed.owner_key, listed.node] += 1
            if not matches(listed.labels):
                continue
            owners = listed.message.metadata.owner_references
            deciders = deciders_of(listed.namespace, owners, dict(listed.labels), known)
            if not question.means(deciders):
                if question.message.HasField("label_selector") and listed.active:
                    found.not_chosen.append(deciders[-1])
            elif listed.active:
                chosen.append((deciders, listed, each))
            else:
                found.left_out += 1
    found.decider = _decider(question, [deciders for deciders, _, _ in chosen])
    owned = any(deciders for deciders, _, _ in chosen)
    for deciders, listed, each in chosen:
        if owned and not deciders:
            found.not_chosen.append(None)
            continue
        if len(deciders) > 1 and found.decider == deciders[-1]:
            found.revisions[deciders[0].shown] += 1
        found.pods.append(deletion_candidate(listed, each.uid))
        found.encoded.append(each)
        found.constraints.add(listed.constraints)


def _decider(question: RankQuestion, found: Sequence[tuple[Decider, ...]]) -> Decider | None:
    if not found:
        return None
    if not question.message.HasField("workload"):
        return only_decider([deciders[-1] if deciders else None for deciders in found])
    workload = question.message.workload
    named = Decider(workload.kind, question.namespace, workload.name)
    return only_decider(
        [
            next((each for each in deciders if each.same(workload.kind, workload.name)), named)
            for deciders in found
        ]
    )
