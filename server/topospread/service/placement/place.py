"""PlacePod, ReserveNode and what concerns reservations: choose a node, hold it, release it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.errors import ClusterNotFound
from topospread.replica.view import Token
from topospread.service.decisions.evaluate import matching
from topospread.service.decisions.extension_points import select_distinct
from topospread.service.fit.preemption import preemption_gaps
from topospread.service.fit.profile import gaps_of, suited
from topospread.service.fit.question import Fit, spread_rules
from topospread.service.placement.tasks import PlacementRequest, PlacementResult, Rejection
from topospread.service.state.write import failure_deadline, within_history
from topospread.spread.filtering import verdict_of
from topospread.spread.verdicts import (
    FITS,
    UNKNOWN_NODE,
    VERDICTS,
    Code,
    Status,
    error_message,
)
from topospread.store.api import get_one
from topospread.store.model import Key, Kind, LogEntry, Remove, WriteOutcome

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.changes import ReservationRow
    from topospread.index.snapshot import Reservations
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.request import NodeSelection
    from topospread.service.fit.profile import Suited
    from topospread.service.placement.places import Places
    from topospread.service.state.write import Traced
    from topospread.spread.topology import Ints


_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


@dataclass(frozen=True, slots=True)
class Preference:
    """The caller's part of the choice between nodes.

    Attributes:
        fit: how much is asked beside spreading; None for what suits the candidates.
        seed: orders equal nodes, so that callers spread apart.
    """

    fit: Fit | None = None
    seed: str = ""


def place(
    places: Places,
    placement: PlacementRequest,
    preference: Preference,
    traced: Traced,
) -> PlacementResult:
    """Hold the best node for a pod; the one that is held for it already, if that still fits.

    Raises:
        As Places.hold; InvalidRequest and NodeTableChanged for the candidates.
    """
    fit = preference.fit
    if fit is None:
        # Whoever names candidates has filtered them.
        fit = Fit.ALL if placement.decision.nodes is None else Fit.SPREAD_ONLY

    def choice(cycle: Cycle, held: ReservationRow | None) -> str | Rejection:
        suits = suited(cycle.asked, fit)
        chosen = choose(cycle, suits, preference.seed, held, placement.decision.nodes)
        preemption = chosen.not_modelled if isinstance(chosen, Rejection) else ()
        placement.not_modelled = (*suits.gaps, *preemption)
        return chosen

    return places.hold(placement, choice, traced)


def choose(
    cycle: Cycle,
    suits: Suited,
    seed: str = "",
    held: ReservationRow | None = None,
    choice: NodeSelection | None = None,
) -> str | Rejection:
    """The best node for a pod, or why none; the one that is held for it, if that still fits.

    It follows from the arguments alone, so that simulations use it, too.

    Args:
        cycle: the pod, judged at a state that does not count what is held for it.
        suits: what the filters beside spreading leave.
        seed: orders equal nodes.
        held: what is held for the pod.
        choice: the candidates; None for all nodes.

    Raises:
        InvalidRequest, NodeTableChanged: for the candidates.
    """
    status = cycle.pre_filter_status
    if status.code is Code.ERROR:
        return Rejection(status, error_message(status.reasons[0]))
    nodes = cycle.view.snapshot.nodes
    candidates = nodes.order if choice is None else select_distinct(nodes, choice).slots
    there = candidates[candidates >= 0]
    suitable = there[suits.nodes[there]]
    fits = suitable[cycle.verdicts[suitable] == FITS]
    if held is not None and nodes.slot(held.node_name) in fits:
        # That another node would be better by now does not take it away.
        return held.node_name
    if not fits.size:
        spreading = spread_rules(cycle.verdicts)
        reasons, codes = suits.reasons(there, spreading)
        if unknown := candidates.size - there.size:
            status = VERDICTS[UNKNOWN_NODE]
            reasons[status.reasons[0]] += unknown
            codes[status.code] += unknown
        gaps = preemption_gaps(cycle.asked, suits, spreading)
        return _refusal(codes, reasons, suits.message(candidates.size, reasons), gaps)
    return nodes.names[int(fits[_best(cycle, fits, seed)])]


def _best(cycle: Cycle, fits: NDArray[np.intp], seed: str) -> int:
    """Position of the best node.

    By score; then by matching pods in the hard constraints' domains, the fewest first; then by
    matching pods on the node; then by a hash of seed, pod and node.
    """
    # One number a node, as in EvaluatePod; pods of one domain, and on one node, stay below 2³².
    order = matching(cycle, fits)
    if cycle.pre_score_status.code is Code.SUCCESS:
        order += (100 - cycle.scores(fits).normalized) << 32
    left = np.flatnonzero(order == order.min())
    if left.size > 1:
        left = _lowest(left, _on_node(cycle, fits))
    if left.size == 1:
        return int(left[0])
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, cycle.pod.namespace, cycle.name):
        digest.update(part.encode() + b"\0")
    key = np.uint64(int.from_bytes(digest.digest(), "big"))
    mixed = (cycle.view.snapshot.nodes.hashes[fits[left]] ^ key) * _MIX
    mixed = (mixed ^ (mixed >> _SHIFT)) * _MIX
    return int(left[np.argmin(mixed)])


def _lowest(left: NDArray[np.intp], values: Ints) -> NDArray[np.intp]:
    here = values[left]
    lowest: NDArray[np.intp] = left[here == here.min()]
    return lowest


def _on_node(cycle: Cycle, fits: NDArray[np.intp]) -> Ints:
    """[fits] pods on each node that a constraint counts, once for each group."""
    total: Ints = np.zeros(fits.size, dtype=np.int64)
    for group in cycle.effective.groups:
        total += cycle.view.snapshot.node_counts(group)[fits]
    return total


def _refusal(
    codes: Counter[Code], reasons: Counter[str], message: str, gaps: tuple[str, ...]
) -> Rejection:
    # To wait may help the pod if it may help on one node.
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    if not codes or Code.UNSCHEDULABLE in codes:
        code = Code.UNSCHEDULABLE
    ordered = tuple(reason for reason, _ in reasons.most_common())
    return Rejection(Status(code, ordered), message, gaps)


def reserve(
    places: Places, placement: PlacementRequest, node: str, traced: Traced
) -> PlacementResult:
    """Hold one node for a pod, if the hard constraints allow it.

    Raises:
        As Places.hold.
    """

    def choose(cycle: Cycle, held: ReservationRow | None) -> str | Rejection:
        del held  # a renewal is judged like any other
        placement.not_modelled = gaps_of(cycle.asked, Fit.SPREAD_ONLY)
        return _judge(cycle, node)

    return places.hold(placement, choose, traced)


def _judge(cycle: Cycle, node: str) -> str | Rejection:
    status = cycle.pre_filter_status
    if status.code is Code.ERROR:
        return Rejection(status, error_message(status.reasons[0]))
    snapshot = cycle.view.snapshot
    slot = snapshot.slot(node)
    if slot < 0:
        return Rejection(VERDICTS[UNKNOWN_NODE])
    verdict = verdict_of(cycle.states, snapshot, slot)
    return node if verdict == FITS else Rejection(VERDICTS[verdict])


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """The result of ReleaseReservation.

    Attributes:
        released: whether something was held.
    """

    token: str
    released: bool


def release(
    places: Places,
    cluster: str,
    pod: tuple[str, str, str],
    reservation_id: str = "",
    *,
    timeout: float,
    traced: Traced,
) -> ReleaseResult:
    """End the reservation of a pod, if its uid is equal or unknown.

    Args:
        places: holds it.
        cluster: the pod's.
        pod: namespace, name and uid, which may be empty.
        reservation_id: when given, what was made or renewed after it stays.
        timeout: seconds.
        traced: wraps the write in a span.

    Raises:
        ClusterNotFound: there is no such cluster.
        IdentityChanged: the store has another history, which is not complete.
        StoreUnavailable: the store did not answer.
    """
    namespace, name, uid = pod
    key, store = Key(Kind.RESERVATION, namespace, name), places.store
    if uid or reservation_id:
        held = get_one(store, cluster, key)
        if reservation_id and (held is None or held.resource_version != reservation_id):
            head = store.head(cluster, timeout=timeout)
            replicas = places.engine.replicas
            if replicas.identity(cluster) not in ("", head.identity):
                replicas.reconcile(cluster)
            if not head.identity:
                raise ClusterNotFound.unknown(cluster)
            return ReleaseResult(Token(head.identity, head.revision).encode(), False)
        # One that was made without a uid is for any pod of the name.
        uid = uid if held is None or held.uid else ""
    with traced("release", 1):
        removal = Remove(key, uid, reservation_id)
        applied = within_history(
            places.engine.replicas,
            cluster,
            lambda identity: store.apply(
                cluster, [removal], identity=identity, timeout=failure_deadline(timeout)
            ),
        )
    if not applied.identity:
        raise ClusterNotFound.unknown(cluster)
    released = applied.outcomes == (WriteOutcome.DELETED,)
    if released:
        places.show(cluster, applied, [LogEntry(key, None)])
    token = Token(applied.identity, applied.revision).encode()
    return ReleaseResult(token, released)


def list_reservations(
    reservations: Reservations,
    namespace: str,
    matches: Callable[[Mapping[str, str]], bool],
    after: tuple[str, str],
    most: int,
) -> tuple[Sequence[tuple[str, str, ReservationRow]], bool]:
    """A page of reservations, ordered by namespace and name as bytes, and whether more follow.

    Args:
        reservations: all of a state.
        namespace: empty for all.
        matches: by the labels of their pods.
        after: namespace and name that the page begins after.
        most: reservations of the page.
    """
    split = ((pod.partition("/"), row) for pod, row in reservations)
    rest = sorted(
        (
            (space, name, row)
            for (space, _, name), row in split
            if (space, name) > after and namespace in ("", space)
        ),
        key=lambda each: each[:2],
    )
    found = list(islice((each for each in rest if matches(dict(each[2].labels))), most + 1))
    return found[:most], len(found) > most
