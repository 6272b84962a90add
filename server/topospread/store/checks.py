"""Checks before anything is sent to a backend: names, sizes, numbers of changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.errors import InvalidRequest, LimitExceeded
from topospread.store.api import (
    MAX_APPLY_BYTES,
    MAX_CHANGES,
    MAX_LEASE,
    MAX_LIFETIME,
    MAX_OBJECT_BYTES,
    Change,
    Key,
    Kind,
    Put,
    Unchanged,
)
from topospread.store.values import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Wider than the API server's rules, which are not the store's to repeat; narrow enough that names
# can be joined with slashes and read in a terminal.
_NAME: Final = re.compile(r"[!-.0-~]{1,253}")
_UID: Final = re.compile(r"[!-~]{0,255}")
_VERSION: Final = re.compile(r"(0|[1-9][0-9]{0,254})?")


def check_cluster(cluster: str) -> None:
    """Refuse a cluster name that is no DNS label."""
    if not _LABEL.fullmatch(cluster):
        raise InvalidRequest(
            f"cluster {cluster[:70]!r} is not a DNS label: write 1 to 63 of a-z, 0-9 and '-', "
            "with a letter or digit at both ends"
        )


def check_changes(changes: Sequence[Change]) -> None:
    """Refuse changes that cannot be written as one transaction.

    Raises:
        LimitExceeded: too many changes or bytes.
        InvalidRequest: a name, version, uid or lifetime that cannot be stored, a key given twice,
            or a reservation together with its pod.
    """
    if len(changes) > MAX_CHANGES:
        raise LimitExceeded(
            f"{len(changes)} changes in one apply; at most {MAX_CHANGES}: "
            "send them in pieces, or use Replace"
        )
    keys: set[Key] = set()
    size = 0
    for change in changes:
        key = change.object.key if isinstance(change, Put) else change.key
        _check_key(key)
        keys.add(key)
        if isinstance(change, Put):
            size += _check_object(change)
        else:
            _check_words(key, change.uid, change.up_to_version)
    if len(keys) < len(changes):
        raise InvalidRequest("an object is named twice in one apply: send only its last state")
    for key in keys:
        # Which of the two would decide about the reservation depends on their order.
        if key.kind is Kind.RESERVATION and Key(Kind.POD, key.namespace, key.name) in keys:
            raise InvalidRequest(
                f"pod {key.namespace}/{key.name} and its reservation are changed in one apply: "
                "send one after the other"
            )
    if size > MAX_APPLY_BYTES:
        raise LimitExceeded(
            f"{size} bytes in one apply; at most {MAX_APPLY_BYTES}: send fewer objects at once"
        )


def check_lease(holder: str, lifetime: int) -> None:
    """Refuse a holder that cannot be told from others, or a lease that outlasts its use."""
    if not _NAME.fullmatch(holder):
        raise InvalidRequest("holder: 1 to 253 visible ASCII characters without '/' are needed")
    if not 0 <= lifetime <= MAX_LEASE:
        raise InvalidRequest(
            f"lifetime: a lease lasts at most {MAX_LEASE} ms (an hour), not {lifetime}"
        )


def check_precondition(precondition: Unchanged) -> None:
    """Refuse a precondition that could never hold."""
    if precondition.revision.number < 0:
        raise InvalidRequest("a revision's number is never negative")


def _check_key(key: Key) -> None:
    if key.kind is Kind.NODE:
        good = not key.namespace
    else:
        good = _NAME.fullmatch(key.namespace) is not None
    if not good or not _NAME.fullmatch(key.name):
        raise InvalidRequest(
            f"{key.kind.name} {key.namespace[:64]!r} / {key.name[:64]!r} cannot be stored: "
            "a name has 1 to 253 visible ASCII characters and no '/'; "
            "nodes have no namespace, others have one"
        )


def _check_object(change: Put) -> int:
    stored = change.object
    if len(stored.digest) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(stored.digest)}")
    _check_words(stored.key, stored.uid, stored.resource_version)
    if change.lifetime is not None and not 0 <= change.lifetime <= MAX_LIFETIME:
        raise InvalidRequest(
            f"a reservation lasts at most {MAX_LIFETIME} ms (a week), not {change.lifetime}"
        )
    if change.lifetime is not None and stored.key.kind is not Kind.RESERVATION:
        raise ValueError("only reservations have a lifetime")
    if change.ends_reservation and stored.key.kind is not Kind.POD:
        raise ValueError("only pods end reservations")
    size = len(stored.payload)
    if size > MAX_OBJECT_BYTES:
        raise LimitExceeded(
            f"{stored.key.kind.name} {stored.key.namespace}/{stored.key.name} has {size} bytes; "
            f"at most {MAX_OBJECT_BYTES} can be stored"
        )
    return size


def _check_words(key: Key, uid: str, version: str) -> None:
    named = f"{key.kind.name} {key.namespace}/{key.name}"
    if not _UID.fullmatch(uid):
        raise InvalidRequest(f"{named}: uid must be at most 255 visible ASCII characters")
    if not _VERSION.fullmatch(version):
        raise InvalidRequest(
            f"{named}: resourceVersion {version[:40]!r} is not a decimal number without leading "
            "zeros (at most 255 digits); leave it empty to write without a version"
        )
