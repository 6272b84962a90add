"""A third store, of dicts and a list: what a backend has to do, without what a database adds.

It is here to show that the contract can be carried out anew, and how little that takes; nothing
ships it. All of it is under one lock, so that each method is one atomic step.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topospread.errors import StoreUnavailable
from topospread.store import checks, rules, values
from topospread.store.model import MAX_ENDED, MAX_LEASE, Key, Kind, Page, StoreSettings, Transaction
from topospread.store.writing import ClusterState, apply, check_identity, check_reaches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.model import (
        Applied,
        Change,
        Head,
        Lease,
        Listed,
        Revision,
        StoredObject,
        Unchanged,
    )
    from topospread.store.writing import Write


@dataclass
class ToyCluster:
    """A cluster, as `writing` looks into it: objects as their stored bytes, and the log."""

    state: ClusterState
    objects: dict[Key, bytes] = field(default_factory=dict)
    log: list[Transaction] = field(default_factory=list)
    scopes: dict[str, int] = field(default_factory=dict)
    tombstones: dict[Key, tuple[int, str]] = field(default_factory=dict)
    expiries: dict[Key, int] = field(default_factory=dict)
    granted: rules.LeaseRow = field(default_factory=rules.LeaseRow)

    def lease(self) -> rules.LeaseRow:
        return self.granted

    def value(self, key: Key) -> bytes | None:
        return self.objects.get(key)

    def tombstone(self, key: Key, expired: int) -> str:
        at, version = self.tombstones.get(key, (0, ""))
        return version if at > expired else ""

    def due(self, now: int) -> Sequence[Key]:
        times = [(at, key) for key, at in self.expiries.items() if at <= now]
        return [key for _, key in sorted(times)[:MAX_ENDED]]

    def touched(self, scope: str) -> int:
        return self.scopes.get(scope, 0)

    def first_after(self, number: int) -> tuple[int, str] | None:
        for each in self.log:
            if each.revision.number > number:
                return each.revision.number, each.previous_tag
        return None

    def write(self, write: Write) -> None:
        for key, value in write.values.items():
            self.expiries.pop(key, None)
            if value is None:
                del self.objects[key]
            else:
                self.objects[key] = value
                self.tombstones.pop(key, None)
        if write.listed is not None:
            kind, upto = write.listed.kind, write.listed.version
            for key, (_, version) in list(self.tombstones.items()):
                if key.kind is kind and values.older(upto, version):
                    del self.tombstones[key]
        self.expiries |= write.due
        for key, version in write.tombstones.items():
            self.tombstones.pop(key, None)
            self.tombstones[key] = (write.now, version)
        while len(self.tombstones) > write.settings.tombstone_limit:
            del self.tombstones[next(iter(self.tombstones))]
        if write.entries:
            made = values.entries(write.entries)
            self.log.append(Transaction(self.state.revision, write.previous_tag, made))
            self.log = [each for each in self.log if each.revision.number > write.trimmed]
            self.scopes |= dict.fromkeys(write.scopes, self.state.number)


class ToyStore:
    """A store in this process' memory; see the contract for what each method does."""

    def __init__(self, settings: StoreSettings | None = None) -> None:
        self.address = "toy:"
        self.warnings: tuple[str, ...] = ()
        self._settings = settings or StoreSettings()
        self._clusters: dict[str, ToyCluster] = {}
        self._changed = threading.Condition(threading.RLock())
        self._woken: set[str] = set()
        self._closed = False

    # ------------------------------ reading

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        del timeout
        with self._changed:
            return self._cluster(cluster).state.head(_now())

    def scan(
        self,
        cluster: str,
        kind: Kind,
        *,
        namespace: str = "",
        after: tuple[str, str] = ("", ""),
        limit: int = 1000,
        max_bytes: int = 4 << 20,
    ) -> Page:
        with self._changed:
            stored = self._cluster(cluster).objects
            keys = sorted(
                key
                for key in stored
                if key.kind is kind and key[1:] > after and namespace in ("", key.namespace)
            )
            objects = (values.unpack(key, stored[key]) for key in keys)
            return rules.page_of(objects, limit, max_bytes)

    def get(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        with self._changed:
            stored = self._cluster(cluster).objects
            return [values.unpack(key, stored[key]) for key in keys if key in stored]

    def clusters(self) -> Sequence[str]:
        with self._changed:
            self._check_open()
            return sorted(name for name, each in self._clusters.items() if each.state.identity)

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        deadline = time.monotonic() + wait
        with self._changed:
            while True:
                found = self._cluster(cluster)
                check_identity(found.state, identity)
                check_reaches(found, after)
                newer = (each for each in found.log if each.revision.number > after.number)
                news = rules.first_of(newer, limit)
                left = deadline - time.monotonic()
                if news or left <= 0 or not limit or cluster in self._woken or self._closed:
                    self._woken.discard(cluster)
                    return news
                self._changed.wait(left)

    def wake(self, cluster: str) -> None:
        with self._changed:
            self._woken.add(cluster)
            self._changed.notify_all()

    # ------------------------------ writing

    def apply(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        precondition: Unchanged | None = None,
        identity: str = "",
        force: bool = False,
        fence: int = 0,
        listed: Listed | None = None,
        timeout: float | None = None,
    ) -> Applied:
        del timeout
        checks.check_changes(changes)
        if precondition is not None:
            checks.check_precondition(precondition)
        with self._changed:
            found = self._cluster(cluster)
            applied = apply(
                found,
                changes,
                precondition=precondition,
                identity=identity,
                force=force,
                fence=fence,
                listed=listed,
                now=_now(),
                settings=self._settings,
            )
            self._clusters[cluster] = found
            self._changed.notify_all()
            return applied

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        with self._changed:
            found = self._cluster(cluster)
            state = found.state
            if identity:
                check_identity(state, identity)
            gone = ToyCluster(ClusterState(cluster))
            gone.granted = rules.LeaseRow(fence=found.granted.fence + 1)
            gone.state.replaced, gone.state.replaced_at = state.replaced, state.replaced_at
            if state.identity:
                gone.state.replaced = rules.with_replaced(
                    state.replaced, state.replaced_at, _now(), state.identity
                )
                gone.state.replaced_at = _now()
            self._clusters[cluster] = gone
            self._changed.notify_all()
            count = sum(key.kind is not Kind.PROGRESS for key in found.objects)
            return count if state.identity else None

    def lease(self, cluster: str, *, timeout: float | None = None) -> Lease:
        del timeout
        with self._changed:
            return self._cluster(cluster).granted.at(_now())

    def acquire(
        self, cluster: str, holder: str, lifetime: int, *, timeout: float | None = None
    ) -> Lease:
        del timeout
        checks.check_lease(holder, lifetime)
        with self._changed:
            found, now = self._cluster(cluster), _now()
            found.granted = rules.granted(found.granted, holder, lifetime, now)
            self._clusters[cluster] = found
            self._forget_leases(now - MAX_LEASE)
            return found.granted.at(now)

    def ping(self) -> None:
        with self._changed:
            self._check_open()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _cluster(self, name: str) -> ToyCluster:
        checks.check_cluster(name)
        self._check_open()
        return self._clusters.get(name) or ToyCluster(ClusterState(name))

    def _forget_leases(self, before: int) -> None:
        """Forget what ended by then of clusters that are not there."""
        for each in self._clusters.values():
            if max(each.granted.fence, each.granted.until) < before and not each.state.identity:
                each.granted = rules.LeaseRow()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")


def _now() -> int:
    return time.time_ns() // 1_000_000
