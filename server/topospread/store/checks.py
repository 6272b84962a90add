"""Checks before anything is sent to a backend: names, sizes, numbers of changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.errors import FieldViolation, InvalidRequest, TooLarge
from topospread.store.model import (
    CLUSTER_SCOPED,
    MAX_APPLY_BYTES,
    MAX_CHANGES,
    MAX_LEASE,
    MAX_LIFETIME,
    MAX_OBJECT_BYTES,
    Change,
    Key,
    Kind,
    Put,
    StoredObject,
    Unchanged,
)
from topospread.store.values import DIGEST_BYTES, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Wider than the API server's rules, which are not the store's to repeat; narrow enough that names
# can be joined with slashes and read in a terminal.
_NAME: Final = re.compile(r"[!-.0-~]{1,253}")
_UID: Final = re.compile(r"[!-~]{0,255}")
_VERSION: Final = re.compile(f"({VERSION.pattern})?")

_NAME_TEXT: Final = "must be 1 to 253 visible ASCII characters without '/'"
_VERSION_TEXT: Final = "must be at most 255 decimal digits without leading zeros, or empty"


def check_cluster(cluster: str) -> None:
    """Refuse a cluster name that is no DNS label."""
    if not _LABEL.fullmatch(cluster):
        text = (
            f"{cluster[:70]!r} is not a DNS label: write 1 to 63 of a-z, 0-9 and '-', "
            "with a letter or digit at both ends"
        )
        raise InvalidRequest.at("cluster", text, bad_value=cluster[:70])


def check_changes(changes: Sequence[Change]) -> None:
    """Refuse changes that cannot be written as one transaction; see Writer.apply().

    What callers name is checked before, where its place in their request is known; so nothing here
    has a path.
    """
    count = sum(change.key.kind is not Kind.PROGRESS for change in changes)
    if count > MAX_CHANGES:
        text = f"{count} changes in one apply; at most {MAX_CHANGES}: send them in pieces"
        raise TooLarge(text, "objects", MAX_CHANGES)
    keys: set[Key] = set()
    size = 0
    for change in changes:
        key = change.key
        if key in keys:
            raise InvalidRequest(
                f"{_named(key)} is changed twice in one apply: send the last state"
            )
        keys.add(key)
        if isinstance(change, Put):
            size += _check_put(change)
        elif violations := wrong_words(key, change.uid, change.up_to_version):
            raise _cannot(key, violations)
    for key in keys:
        # Which of the two would decide about the reservation depends on their order.
        if key.kind is Kind.RESERVATION and Key(Kind.POD, key.namespace, key.name) in keys:
            raise InvalidRequest(
                f"pod {key.namespace}/{key.name} and its reservation are changed in one apply: "
                "send one after the other"
            )
    if size > MAX_APPLY_BYTES:
        text = f"{size} bytes in one apply; at most {MAX_APPLY_BYTES}: send fewer objects at once"
        raise TooLarge(text, "objects", MAX_APPLY_BYTES)


def check_lease(holder: str, lifetime: int) -> None:
    """Refuse an invalid name of a holder, or a lease that is too long."""
    if not _NAME.fullmatch(holder):
        raise InvalidRequest(f"the holder of a lease {_NAME_TEXT}, not {holder[:512]!r}")
    if not 0 <= lifetime <= MAX_LEASE:
        raise InvalidRequest(f"a lease lasts at most an hour, not {lifetime} ms")


def check_precondition(precondition: Unchanged) -> None:
    """Refuse a precondition that could never hold."""
    if precondition.revision.number < 0:
        raise InvalidRequest.at("revision", "its number is never negative")


def wrong_words(key: Key, uid: str = "", version: str = "") -> list[FieldViolation]:
    """Errors of an object's names, uid and version; paths are those of metadata."""
    wrong: list[FieldViolation] = []
    clusterwide = key.kind in CLUSTER_SCOPED
    if clusterwide and key.namespace:
        wrong.append(FieldViolation("namespace", "its kind has none", "Forbidden"))
    elif not clusterwide and not _NAME.fullmatch(key.namespace):
        wrong.append(FieldViolation("namespace", _NAME_TEXT, bad_value=key.namespace[:512]))
    for path, pattern, text, word in (
        ("name", _NAME, _NAME_TEXT, key.name),
        ("uid", _UID, "must be at most 255 visible ASCII characters", uid),
        ("resourceVersion", _VERSION, _VERSION_TEXT, version),
    ):
        if not pattern.fullmatch(word):
            wrong.append(FieldViolation(path, text, bad_value=word[:512]))
    return wrong


def check_size(stored: StoredObject, subject: str = "object") -> None:
    """Refuse an object that is too large to be stored; ``subject`` is the caller's name for it."""
    size = len(stored.payload)
    if size > MAX_OBJECT_BYTES:
        text = f"{_named(stored.key)} has {size} bytes; at most {MAX_OBJECT_BYTES} can be stored"
        raise TooLarge(text, subject, MAX_OBJECT_BYTES)


def _check_put(change: Put) -> int:
    stored = change.object
    if len(stored.digest) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(stored.digest)}")
    if violations := wrong_words(stored.key, stored.uid, stored.resource_version):
        raise _cannot(stored.key, violations)
    if change.lifetime is not None and not 0 <= change.lifetime <= MAX_LIFETIME:
        raise InvalidRequest(
            f"a reservation lasts at most {MAX_LIFETIME} ms (a week), not {change.lifetime}"
        )
    if change.lifetime is not None and stored.key.kind is not Kind.RESERVATION:
        raise ValueError("only reservations have a lifetime")
    if change.ends_reservation and stored.key.kind is not Kind.POD:
        raise ValueError("only pods end reservations")
    check_size(stored)
    return len(stored.payload)


def _cannot(key: Key, violations: Sequence[FieldViolation]) -> InvalidRequest:
    wrong = "; ".join(f"{each.field} {each.description}" for each in violations)
    return InvalidRequest(f"{_named(key)[:600]!r} cannot be stored: {wrong}")


def _named(key: Key) -> str:
    where = f"{key.namespace}/" if key.namespace else ""
    return f"{key.kind.name} {where}{key.name}"
