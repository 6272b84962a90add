"""Holding one node, giving it back, and what is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread.errors import ClusterNotFound, ObjectNotFound
from topospread.kube.fit_message import error_message
from topospread.replica.view import Token
from topospread.service.wanted import Held, Refusal, Wanted
from topospread.service.write import told_before
from topospread.spread.filtering import verdict_of
from topospread.spread.verdicts import FITS, UNKNOWN_NODE, VERDICTS, Code
from topospread.store.api import Key, Kind, LogEntry, Outcome, Remove

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topospread.index.changes import ReservationRow
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Consistency, Replicas
    from topospread.replica.view import View
    from topospread.service.asks import PodRef
    from topospread.service.cycle import Cycle
    from topospread.service.holding import Holding
    from topospread.service.pages import PageAsk
    from topospread.service.write import Traced


def reserve(holding: Holding, wanted: Wanted, node: str, traced: Traced) -> Held:
    """Hold one node for a pod, if the hard constraints allow it.

    Raises:
        As Holding.hold.
    """

    def choose(cycle: Cycle, held: ReservationRow | None) -> str | Refusal:
        del held  # a renewal is judged like any other
        return _judge(cycle, node)

    return holding.hold(wanted, choose, traced)


def _judge(cycle: Cycle, node: str) -> str | Refusal:
    status = cycle.pre_filter_status
    if status.code is Code.ERROR:
        return Refusal(status, error_message(status.reasons[0]))
    snapshot = cycle.view.snapshot
    slot = snapshot.slot(node)
    if slot < 0:
        return Refusal(VERDICTS[UNKNOWN_NODE])
    verdict = verdict_of(cycle.states, snapshot, slot)
    return node if verdict == FITS else Refusal(VERDICTS[verdict])


@dataclass(frozen=True, slots=True)
class Released:
    """The result of ReleaseReservation.

    Attributes:
        released: whether something was held.
    """

    token: str
    released: bool


def release(
    holding: Holding,
    cluster: str,
    pod: tuple[str, str, str],
    reservation_id: str = "",
    *,
    timeout: float,
    traced: Traced,
) -> Released:
    """End what is held for a pod, if its uid is equal or unknown.

    Args:
        holding: holds it.
        cluster: the pod's.
        pod: namespace, name and uid, which may be empty.
        reservation_id: when given, what was made or renewed after it stays.
        timeout: seconds.
        traced: wraps the write in a span.

    Raises:
        ClusterNotFound: there is no such cluster.
        StoreUnavailable: the store did not answer.
    """
    namespace, name, uid = pod
    key, store = Key(Kind.RESERVATION, namespace, name), holding.store
    if uid or reservation_id:
        held = store.get(cluster, key)
        if reservation_id and (held is None or held.resource_version != reservation_id):
            head = store.head(cluster, timeout=timeout)
            if not head.identity:
                raise ClusterNotFound(cluster, "is not known")
            return Released(Token(head.identity, head.revision).encode(), False)
        # One that was made without a uid is for any pod of the name.
        uid = uid if held is None or held.uid else ""
    with traced("release", 1):
        removal = Remove(key, uid, reservation_id)
        applied = store.apply(cluster, [removal], timeout=told_before(timeout))
    if not applied.identity:
        raise ClusterNotFound(cluster, "is not known")
    released = applied.outcomes == (Outcome.DELETED,)
    if released:
        holding.show(cluster, applied, [LogEntry(key, None)])
    token = Token(applied.identity, applied.revision).encode()
    return Released(token, released)


def get_reservation(
    replicas: Replicas, cluster: str, pod: PodRef, demand: Consistency, deadline: float
) -> tuple[Replica, View, ReservationRow]:
    """What is held for a pod, and the state that tells it.

    Args:
        replicas: follow the cluster.
        cluster: its name.
        pod: for which it is held, whatever its uid if that is empty.
        demand: how fresh the state must be.
        deadline: of the call.

    Raises:
        NotFound: no such cluster, or nothing is held.
        And what Replicas.resolve raises.
    """
    replica, view = replicas.resolve(cluster, demand, deadline)
    row = view.snapshot.reservations.of(pod.namespace, pod.name, pod.uid)
    if row is None:
        name = f"{pod.namespace}/{pod.name}"
        raise ObjectNotFound(f"no node is held for pod {name}", "Reservation", name, cluster)
    return replica, view, row


@dataclass(frozen=True, slots=True)
class Reservations:
    """A page of what is held.

    Attributes:
        token: of the first page's revision.
        held: (namespace, name, reservation), ordered by namespace and name as bytes.
        next: token of the next page; empty on the last.
        state: what the first page was read from; None for later ones.
    """

    token: str
    held: Sequence[tuple[str, str, ReservationRow]]
    next: str
    state: tuple[Replica, View] | None


def list_reservations(
    replicas: Replicas,
    cluster: str,
    chosen: tuple[str, Callable[[Mapping[str, str]], bool]],
    ask: PageAsk,
    demand: Consistency,
    deadline: float,
) -> Reservations:
    """What is held in a namespace, or in all with an empty one.

    Args:
        replicas: follow the cluster.
        cluster: its name.
        chosen: the pods: their namespace, and which labels they may have.
        ask: which page.
        demand: how fresh the state must be.
        deadline: of the call.

    Raises:
        InvalidRequest: a page size or token that cannot be.
        NotFound: no such cluster.
        And what Replicas.resolve raises.
    """
    most = ask.most
    token, after = ask.place()
    namespace, matches = chosen
    replica, view = replicas.resolve(cluster, demand, deadline)
    split = ((pod.partition("/"), row) for pod, row in view.snapshot.reservations)
    rest = sorted(
        (
            ((space.encode(), name.encode()), space, name, row)
            for (space, _, name), row in split
            if not namespace or space == namespace
        ),
        key=lambda each: each[0],
    )
    found = [each for each in rest if each[0] > after and matches(dict(each[3].labels))]
    here = [each[1:] for each in found[:most]]
    state = None if token else (replica, view)
    token = token or view.token
    more = ask.next(token, *here[-1][:2]) if len(found) > most else ""
    return Reservations(token, here, more, state)
