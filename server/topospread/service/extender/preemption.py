"""Preempt for kube-scheduler's extender: nodes that a pod could go to without their victims.

Victims come with their uid alone, or as whole pods; either way the state decides what they
are, because only what is counted there can make room.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.codec.pods import pod_from_proto
from topospread.codec.stored import object_from_stored
from topospread.errors import CorruptValue, IdentityChanged, InvalidPod, RevisionUnavailable
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.spread.filtering import PodMove, pre_filter, verdict_of
from topospread.spread.verdicts import FITS, Code
from topospread.store.api import get_one, scan_all
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.kube.objects import Pod
    from topospread.service.decisions.engine import Engine, ResolvedCycle
    from topospread.service.decisions.request import DecisionRequest
    from topospread.store.api import Reader
    from topospread.store.model import Revision, StoredObject

MOST_CLUSTERS: Final = 8
"""Clusters whose uids are remembered; past it, all are read anew."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that would be removed.

    Attributes:
        name: empty when only the uid is known.
    """

    uid: str
    name: str = ""
    namespace: str = DEFAULT_NAMESPACE


class _Uids:
    """The pods of a cluster by uid, up to a revision of one history."""

    def __init__(self, identity: str, revision: Revision) -> None:
        self.identity = identity
        self.revision = revision
        self.keys: dict[str, Key] = {}
        self._uids: dict[Key, str] = {}

    def note(self, key: Key, stored: StoredObject | None) -> None:
        """Keep what a pod is now; None: it is gone."""
        former = self._uids.pop(key, "")
        if self.keys.get(former) == key:
            del self.keys[former]
        if stored is not None and stored.uid:
            self.keys[stored.uid] = key
            self._uids[key] = stored.uid


class PodsByUid:
    """Finds pods of the state by uid.

    The first uid of a cluster costs a scan of its pods, and one that is not remembered later what
    the log has since: a pod that is gone is asked for again and again.
    """

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._uids: dict[str, _Uids] = {}
        self._lock = Lock()

    def find(self, cluster: str, victims: Iterable[Victim]) -> dict[str, Pod]:
        """The pods that are there, by uid."""
        remembered = self._uids.get(cluster)
        keys: Mapping[str, Key] = {} if remembered is None else remembered.keys
        found: dict[str, Pod] = {}
        unknown: list[str] = []
        for victim in victims:
            key = keys.get(victim.uid)
            if victim.name:
                key = Key(Kind.POD, victim.namespace, victim.name)
            pod = None if key is None else self._pod(cluster, key, victim.uid)
            if pod is not None:
                found[victim.uid] = pod
            elif not victim.name:
                unknown.append(victim.uid)
        if unknown:
            keys = self._newest(cluster)
            for uid in unknown:
                if uid in keys and (pod := self._pod(cluster, keys[uid], uid)) is not None:
                    found[uid] = pod
        return found

    def _pod(self, cluster: str, key: Key, uid: str) -> Pod | None:
        try:
            stored: StoredObject | None = get_one(self._store, cluster, key)
        except CorruptValue:
            return None
        if stored is None or stored.uid != uid:
            return None
        return pod_from_proto(object_from_stored(stored).pod)

    def _newest(self, cluster: str) -> Mapping[str, Key]:
        with self._lock:
            known = self._uids.get(cluster)
            try:
                if known is not None:
                    self._follow(cluster, known)
                    return known.keys
            except (IdentityChanged, RevisionUnavailable):
                del self._uids[cluster]
            head = self._store.head(cluster)
            found = _Uids(head.identity, head.revision)
            for page in scan_all(self._store, cluster, Kind.POD):
                for stored in page:
                    found.note(stored.key, stored)
            if len(self._uids) >= MOST_CLUSTERS:
                self._uids = {}
            self._uids[cluster] = found
            return found.keys

    def _follow(self, cluster: str, known: _Uids) -> None:
        while found := self._store.follow(cluster, known.identity, known.revision, wait=0):
            for transaction in found:
                for entry in transaction.entries:
                    if entry.key.kind is Kind.POD:
                        known.note(entry.key, entry.object)
                known.revision = transaction.revision


def nodes_made_feasible(
    engine: Engine,
    pods: PodsByUid,
    request: DecisionRequest,
    candidates: Mapping[str, Sequence[Victim]],
) -> list[str]:
    """The nodes that the pod may go to once their victims are gone, in the order given.

    A node that it may go to already is one of them, with or without victims: these make room for
    something else. Without hard constraints all are.

    Raises:
        InvalidRequest: a constraint does not parse.
        StoreUnavailable: the store did not answer.
        And what Engine.new_cycle raises.
    """
    resolved = engine.new_cycle(request)
    status = resolved.cycle.pre_filter_status
    if status.code is Code.ERROR:
        raise InvalidPod.at("spec.topologySpreadConstraints", status.reasons[0])
    if status.code is Code.SKIP:
        return list(candidates)
    snapshot = resolved.cycle.view.snapshot
    slots = {name: snapshot.slot(name) for name in candidates}
    fits = {
        name
        for name, slot in slots.items()
        if slot >= 0 and verdict_of(resolved.cycle.states, snapshot, slot) == FITS
    }
    refused = [name for name, slot in slots.items() if slot >= 0 and name not in fits]
    known = pods.find(request.cluster, [victim for name in refused for victim in candidates[name]])
    for name in refused:
        checkpoint()
        # Whoever is named twice leaves once.
        uids = dict.fromkeys(victim.uid for victim in candidates[name])
        there = [known[uid] for uid in uids if uid in known]
        if _is_feasible_without(resolved, name, there):
            fits.add(name)
    return [name for name in candidates if name in fits]


def _is_feasible_without(resolved: ResolvedCycle, node: str, victims: Sequence[Pod]) -> bool:
    """Whether the pod may go to a node without these pods; only those that count there matter."""
    cycle, snapshot = resolved.cycle, resolved.cycle.view.snapshot
    slot = snapshot.slot(node)
    moves = [
        PodMove(pod, slot, -1)
        for pod in victims
        if pod.node_name == node and resolved.replica.is_counted(pod.namespace, pod.name)
    ]
    if not moves:
        return False
    states = pre_filter(cycle.constraints.hard.constraints, snapshot, moves)
    return verdict_of(states, snapshot, slot) == FITS
