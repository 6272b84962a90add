"""Apply, Delete and Replace: facts into the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from topospread.errors import InvalidRequest
from topospread.replica.view import Token
from topospread.store.api import (
    MAX_CHANGES,
    Applied,
    Change,
    Key,
    Kind,
    Outcome,
    Put,
    Remove,
    Store,
    StoredObject,
)

WARNINGS_SHOWN: Final = 100

Traced = Callable[[str, int], AbstractContextManager[object]]
"""Wraps a write to the store in a span: (operation, how many changes)."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """An object as a caller gave it, in its stored form.

    Attributes:
        warnings: what was odd about it.
        ends_reservation: it is a pod that needs no reservation any more.
    """

    object: StoredObject
    warnings: tuple[str, ...] = ()
    ends_reservation: bool = False

    @property
    def put(self) -> Put:
        """The change that writes it."""
        return Put(self.object, ends_reservation=self.ends_reservation)


@dataclass(frozen=True, slots=True)
class Written:
    """The result of Apply or Delete: a token that contains the write, and one outcome a change."""

    token: str
    outcomes: tuple[Outcome, ...]


@dataclass(slots=True)
class Replaced:
    """The result of Replace.

    Attributes:
        outcomes: how many objects had each outcome.
        warnings: at most WARNINGS_SHOWN, and how many more there are.
    """

    token: str = ""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)


class Writes:
    """Writes to clusters of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def apply(
        self,
        cluster: str,
        objects: Sequence[Incoming],
        *,
        force: bool,
        timeout: float,
        traced: Traced,
    ) -> Written:
        """Write objects in one atomic step.

        Raises:
            InvalidRequest: more than 500, or one object twice; nothing was written.
            StoreUnavailable: the store did not answer.
        """
        _check_batch([incoming.object.key for incoming in objects])
        changes = [incoming.put for incoming in objects]
        with traced("apply", len(changes)):
            applied = self._store.apply(cluster, changes, force=force, timeout=timeout)
        return Written(self._token(cluster, applied), applied.outcomes)

    def delete(
        self, cluster: str, removals: Sequence[Remove], *, timeout: float, traced: Traced
    ) -> Written:
        """Remove objects in one atomic step; those that are not there are reported.

        Raises:
            As :meth:`apply`.
        """
        _check_batch([removal.key for removal in removals])
        with traced("delete", len(removals)):
            applied = self._store.apply(cluster, removals, timeout=timeout)
        return Written(self._token(cluster, applied), applied.outcomes)

    def replace(
        self,
        cluster: str,
        kind: Kind,
        objects: Iterable[Incoming],
        *,
        resource_version: str,
        force: bool,
        timeout: float,
        traced: Traced,
    ) -> Replaced:
        """Make the stored content of one kind equal a list, in pieces: a diff that converges.

        What the list lacks is deleted only if its stored version is at most the list's, so that an
        object that was created after the list was made survives.

        Raises:
            InvalidRequest: an object of another kind, or twice.
            StoreUnavailable: some pieces may have been written; the same call again converges.
        """
        replaced = Replaced()
        wanted = _of_one_kind(kind, objects)
        for incoming in wanted.values():
            replaced.warnings.extend(incoming.warnings)
        changes: list[Change] = [incoming.put for incoming in wanted.values()]
        up_to = "" if force else resource_version
        surplus = self._surplus(cluster, kind, wanted)
        changes.extend(Remove(key, up_to_version=up_to) for key in surplus)
        # An empty list is written, too, so that a cluster without anything exists afterwards.
        for first in range(0, max(1, len(changes)), MAX_CHANGES):
            piece = changes[first : first + MAX_CHANGES]
            with traced("replace", len(piece)):
                applied = self._store.apply(cluster, piece, force=force, timeout=timeout)
            replaced.outcomes.update(applied.outcomes)
            replaced.token = self._token(cluster, applied)
        _shorten(replaced.warnings)
        return replaced

    def _surplus(self, cluster: str, kind: Kind, wanted: Container[Key]) -> list[Key]:
        return [
            stored.key
            for page in self._store.scan(cluster)
            for stored in page
            if stored.key.kind is kind and stored.key not in wanted
        ]

    def drop(self, cluster: str) -> int:
        """Forget a cluster; returns how many objects it had."""
        return self._store.drop(cluster)

    def _token(self, cluster: str, applied: Applied) -> str:
        return Token(self._store.head(cluster).identity, applied.revision).encode()


def _of_one_kind(kind: Kind, objects: Iterable[Incoming]) -> dict[Key, Incoming]:
    """All objects by key; read to the end before anything is written."""
    wanted: dict[Key, Incoming] = {}
    for incoming in objects:
        key = incoming.object.key
        if key.kind is not kind:
            raise InvalidRequest(
                f"objects: {_named(key)} is of another kind: replace one kind a call"
            )
        if key in wanted:
            raise InvalidRequest(f"objects: {_named(key)} is given twice")
        wanted[key] = incoming
    return wanted


def _check_batch(keys: Sequence[Key]) -> None:
    if len(keys) > MAX_CHANGES:
        raise InvalidRequest(
            f"objects: {len(keys)} in one call, at most {MAX_CHANGES}: split them, or use Replace"
        )
    twice = [key for key, times in Counter(keys).items() if times > 1]
    if twice:
        raise InvalidRequest(f"objects: {_named(twice[0])} is given twice")


def _named(key: Key) -> str:
    where = f"{key.namespace}/" if key.namespace else ""
    return f"{key.kind.name.lower()} {where}{key.name}"


def _shorten(warnings: list[str]) -> None:
    if len(warnings) > WARNINGS_SHOWN:
        more = len(warnings) - WARNINGS_SHOWN
        del warnings[WARNINGS_SHOWN:]
        warnings.append(f"… and {more} more")
