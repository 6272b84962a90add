"""Reserve, Release and the list of what is held."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.fit_message import error_message
from topospread.replica.replicas import NEWEST_AT_HAND, Replicas
from topospread.replica.view import Token
from topospread.service.wanted import Held, Refusal, Wanted
from topospread.service.write import told_before
from topospread.spread.filtering import verdict_of
from topospread.spread.verdicts import FITS, UNKNOWN_NODE, VERDICTS, Code
from topospread.store.api import Key, Kind, LogEntry, Outcome, Remove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.index.changes import ReservationRow
    from topospread.service.cycle import Cycle
    from topospread.service.holding import Holding
    from topospread.service.write import Traced

DEFAULT_PAGE: Final = 500
MAX_PAGE: Final = 5000


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
    """The result of Release.

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
        StoreUnavailable: the store did not answer.
    """
    namespace, name, uid = pod
    key, store = Key(Kind.RESERVATION, namespace, name), holding.store
    if uid or reservation_id:
        held = store.get(cluster, key)
        if reservation_id and (held is None or held.resource_version != reservation_id):
            head = store.head(cluster, timeout=timeout)
            return Released(Token(head.identity, head.revision).encode(), False)
        # One that was made without a uid is for any pod of the name.
        uid = uid if held is None or held.uid else ""
    with traced("release", 1):
        removal = Remove(key, uid, reservation_id)
        applied = store.apply(cluster, [removal], timeout=told_before(timeout))
    released = applied.outcomes == (Outcome.DELETED,)
    if released:
        holding.show(cluster, applied, [LogEntry(key, None)])
    token = Token(applied.identity, applied.revision).encode()
    return Released(token, released)


@dataclass(frozen=True, slots=True)
class Reservations:
    """A page of what is held.

    Attributes:
        held: (namespace, name, reservation), ordered by namespace and name as bytes.
        next: token of the next page; empty on the last.
    """

    token: str
    held: Sequence[tuple[str, str, ReservationRow]]
    next: str


def list_reservations(
    replicas: Replicas,
    cluster: str,
    namespace: str,
    page: tuple[int, str],
    deadline: float,
) -> Reservations:
    """What is held in a namespace, or in all with an empty one.

    Args:
        replicas: follow the cluster.
        cluster: its name.
        namespace: of the pods.
        page: size (0 is the default of 500) and token (empty for the first page).
        deadline: of the call.

    Raises:
        InvalidRequest: a page size or token that cannot be.
        NotFound: no such cluster.
    """
    size, token = page
    if size > MAX_PAGE:
        raise InvalidRequest(f"pageSize: at most {MAX_PAGE}")
    after = _decode_page(token)
    _, view = replicas.resolve(cluster, NEWEST_AT_HAND, deadline)
    split = ((pod.partition("/"), row) for pod, row in view.snapshot.reservations)
    found = sorted(
        (
            ((space.encode(), name.encode()), space, name, row)
            for (space, _, name), row in split
            if not namespace or space == namespace
        ),
        key=lambda each: each[0],
    )
    rest = [each for each in found if each[0] > after]
    here = rest[: size or DEFAULT_PAGE]
    more = "" if len(here) == len(rest) else _encode_page(*here[-1][0])
    return Reservations(view.token, [each[1:] for each in here], more)


def _encode_page(namespace: bytes, name: bytes) -> str:
    return base64.urlsafe_b64encode(namespace + b"/" + name).decode()


def _decode_page(token: str) -> tuple[bytes, bytes]:
    if not token:
        return b"", b""
    try:
        namespace, name = base64.urlsafe_b64decode(token.encode()).split(b"/")
    except (ValueError, binascii.Error) as cause:
        raise InvalidRequest.of(
            [FieldViolation("pageToken", "must be the token of an earlier page", bad_value=token)]
        ) from cause
    return namespace, name
