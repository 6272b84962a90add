"""The reflector of one kind: lists it, then watches it from that resourceVersion on.

It does so until contact with the API server is lost, or it is time to list again; see
:mod:`topospread.kubernetes.contact`.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from topospread.errors import (
    ClusterUnavailable,
    Fenced,
    IdentityChanged,
    InvalidRequest,
    LimitExceeded,
    RevisionUnavailable,
    TopospreadError,
    Unavailable,
)
from topospread.kubernetes.api_server import NoResponse, failure
from topospread.kubernetes.attempts import FailedAttempts
from topospread.kubernetes.contact import WATCH_SECONDS, Contact
from topospread.kubernetes.objects import (
    DeletedObject,
    ObservedObject,
    decode_object,
    key_of,
    list_objects,
    version_of,
)
from topospread.store.model import Kind
from topospread.store.values import VERSION, older
from topospread.telemetry.families import KindCounters, KindGauges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.versions import KubernetesVersion
    from topospread.kubernetes.api_server import WatchStream
    from topospread.kubernetes.delta_queue import DeltaQueue
    from topospread.kubernetes.feed import Feed
    from topospread.kubernetes.objects import Resource
    from topospread.store.model import Key

LOG: Final = logging.getLogger(__name__)

UNREAD_SECONDS: Final = WATCH_SECONDS
"""Between attempts to list a kind that may not be read, plus up to as much again."""

SILENCE_EXTRA: Final = 30.0
"""Seconds beyond the end of a watch after which a silent connection counts as lost."""

STABLE_AFTER: Final = 5.0
"""Seconds after which a watch counts as a success; one that ends at once is a failure."""

VERSION_WITH: Final = Kind.NODE
"""The kind with whose lists the API server's version is written: nodes are few."""

EARLY: Final = 1.0
"""Seconds before its time at which the end of a watch is no regular one."""

Reason = Literal["initial", "renewed", "lost", "expired", "state_lost"]


class Reflector:
    """Keeps one kind of the state as it is in the cluster; see :meth:`run`.

    Lists go to the sink, the changes of watches to the queue. A kind that the state may lack and
    that may not be read is left out, and asked for again now and then. While it is refused for a
    short time it stays as it is known.

    Attributes:
        listed: set when the kind was listed once, or is one to do without and could not be when
            the others could.
        unread: why it is not read; empty where it is.
    """

    def __init__(
        self, resource: Resource, feed: Feed, queue: DeltaQueue, counters: KindCounters
    ) -> None:
        self.resource = resource
        self.listed = threading.Event()
        self.unread = ""
        self._feed = feed
        self._queue = queue
        self._counters = counters
        self._query = resource.query(feed.excluded_namespaces)
        self._stopping = threading.Event()
        self._awaited = threading.Event()
        self._stream: WatchStream | None = None
        # Content hashes of the objects that are in the state or on their way there.
        self._known: dict[Key, int] = {}
        self._version = ""
        self._kubernetes_version: KubernetesVersion | None = None
        self._list_because: Reason | None = "initial"
        self._contact = Contact()
        self._retracted = False
        self._was_read = False
        self._verb = "list"
        self._attempts = FailedAttempts(resource)

    # ------------------------------ life

    def run(self) -> None:
        """List and watch until stopped; failures are retried."""
        while not self._stopping.is_set():
            permitted = self._feed.needed_are_read()
            try:
                self._retract()
                if (reason := self._why_to_list()) is not None:
                    self._list(reason)
                self._watch()
            except RevisionUnavailable as gone:
                LOG.info("%s: listing again: %s", self.resource.name, gone)
                self._contact.lose()
                self._list_because = "expired"
                self._pause()
            except IdentityChanged as changed:
                LOG.warning("%s: listing again: %s", self.resource.name, changed)
                self._contact.lose()
                self._list_because = "state_lost"
                self._pause()
            except Fenced:
                self._feed.on_lost()
                return
            except TopospreadError as error:
                if self._stopping.is_set():
                    return
                self._contact.lose()
                if not self._goes_without(error, permitted=permitted):
                    self._counters.failures.add_one()
                    self._attempts.log(error)
                    self._pause()

    def _why_to_list(self) -> Reason | None:
        if self._list_because is not None or not self._contact.list_is_due:
            return self._list_because
        return "renewed" if self._contact.lost_at is None else "lost"

    def _retract(self) -> None:
        """Take back how far the kind was read, once, when contact is lost: see sink.retract()."""
        if self._contact.lost_at is None or self._retracted:
            return
        self._queue.unread(self.resource.kind)
        # What the state does not take now, it is told before the next attempt.
        with suppress(Unavailable, IdentityChanged):
            self._was_read |= self._feed.sink.retract(self.resource.kind, fence=self._feed.fence)
            self._retracted = True

    def _goes_without(self, error: TopospreadError, *, permitted: bool) -> bool:
        """See whether to go on without a kind that could not be read; if so, note it and wait.

        Args:
            error: of the attempt to read it.
            permitted: the kinds that are needed were read before the attempt. An API server that
                is starting refuses these as well.
        """
        if not self.resource.is_optional:
            return False
        if not permitted:
            self._attempts.permitted()
            return False
        reason, lasts = self._attempts.refused(error, self._verb)
        if reason and (lasts or not self._was_read):
            return self._leave_out(reason, lasts)
        if not reason:
            self._settle()
        return False

    def _leave_out(self, reason: str, lasts: bool) -> bool:
        """Note that the kind is not read, and wait: long when that lasts."""
        try:
            if self.unread != reason:
                self._feed.sink.note_unknown(self.resource.kind, reason, fence=self._feed.fence)
                LOG.warning("%s: %s: the state is synced without", self.resource.name, reason)
        except Fenced:
            self._feed.on_lost()
            self._stopping.set()
            return True
        except TopospreadError as failed:
            self._attempts.log(failed)
            return False
        self._list_because, self.unread, self._known = "expired", reason, {}
        self._settle()
        if lasts:
            self._wait(UNREAD_SECONDS * random.uniform(1.0, 2.0))
        else:
            self._pause()
        return True

    def _settle(self) -> None:
        """Count as listed, once: others need not wait."""
        if not self.listed.is_set():
            self.listed.set()
            self._feed.on_listed()

    @property
    def is_read(self) -> bool:
        """Whether the state has all that the API server has of it, as far as can be told."""
        return self._contact.lost_at is None

    def retry(self) -> None:
        """Try again at once, if others wait for it: the kinds that are needed are there."""
        if not self.listed.is_set():
            self._awaited.set()

    def list_again(self) -> None:
        """List anew: the state was lost or refused."""
        self._list_because = "state_lost"
        self._awaited.set()
        self._end_stream()

    def stop(self) -> None:
        """Make run() return soon."""
        self._stopping.set()
        self._awaited.set()
        self._end_stream()

    def gauges(self) -> KindGauges:
        """The state of this kind's sync."""
        watching = self._stream is not None
        lag = self._contact.lag(watching=watching)
        return KindGauges(
            kind=self.resource.name,
            watching=watching,
            lag_seconds=max(lag, self._queue.age(self.resource.kind)),
            objects=len(self._known),
            counters=self._counters,
        )

    def _pause(self) -> None:
        self._wait(self._attempts.next_pause())

    def _wait(self, seconds: float) -> None:
        self._awaited.wait(seconds)
        self._awaited.clear()

    def _end_stream(self) -> None:
        if (stream := self._stream) is not None:
            stream.close()

    # ------------------------------ list

    def _list(self, reason: Reason) -> None:
        # Asked for anew while it is under way, it is done once more.
        self._list_because, self._verb = None, "list"
        try:
            if self.resource.kind is VERSION_WITH:
                self._kubernetes_version = self._feed.api.kubernetes_version()
            objects, version = self._all()
            self._queue.drop(self.resource.kind)
            self._replace(objects, version)
        except BaseException:
            self._list_because = reason
            raise
        if older(version, self._version):
            LOG.warning(
                "%s: the API server is at version %s after %s: its history is another one",
                self.resource.name,
                version,
                self._version,
            )
        self._counters.lists[reason].add_one()
        self._known = {one.key: one.content_hash for one in objects}
        self._version = version
        self._contact.listed(len(objects))
        self._retracted, self._was_read, self.unread = False, True, ""
        self.listed.set()
        self._feed.on_listed()
        log = LOG.info if reason == "initial" else LOG.debug
        log("%s: %d listed", self.resource.name, len(objects))

    def _replace(self, objects: Sequence[ObservedObject], version: str) -> None:
        if self._stopping.is_set():
            raise ClusterUnavailable("stopping")
        self._feed.sink.replace(
            self.resource.kind,
            objects,
            version,
            fence=self._feed.fence,
            kubernetes_version=self._kubernetes_version,
        )

    def _all(self) -> tuple[list[ObservedObject], str]:
        with self._feed.lists:
            return list_objects(
                self._feed.api,
                self.resource.path,
                self._query,
                self._decode,
                lambda objects, remaining: not self._stopping.is_set(),
            )

    # ------------------------------ watch

    def _watch(self) -> None:
        seconds = self._contact.next_watch()
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        began, self._verb = time.monotonic(), "watch"
        stream = self._feed.api.watch(self.resource.path, query, seconds + SILENCE_EXTRA)
        self._stream, silent = stream, True
        self._attempts.permitted()
        try:
            # Stopped just before there was a stream to end.
            if self._stopping.is_set() or self._list_because is not None:
                stream.close()
            for line in stream:
                silent = False
                self._take_in(line)
                self._attempts.succeeded()
        finally:
            self._contact.watched()
            self._stream = None
        lasted = time.monotonic() - began
        regular = lasted >= seconds - EARLY
        if not regular:
            # As an API server ends watches that is going away, or whose own connection broke.
            self._contact.lose()
        if regular or lasted > STABLE_AFTER:
            self._attempts.succeeded()
        elif silent and self._list_because is None and not self._stopping.is_set():
            raise NoResponse(f"{self.resource.path}: the watch ended at once")

    def _take_in(self, line: bytes) -> None:
        try:
            event = orjson.loads(line)
            kind, manifest = event["type"], event["object"]
            version = version_of(manifest)
        except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
            raise ClusterUnavailable(f"{self.resource.path}: a line that is no event") from error
        if kind == "ERROR":
            code = manifest.get("code")
            raise failure(
                self.resource.path,
                code if isinstance(code, int) else 0,
                str(manifest.get("message", "")),
            )
        if (counter := self._counters.events.get(str(kind).lower())) is not None:
            counter.add_one()
        for change in self._changes(kind, manifest, version):
            self._queue.add(change)
        if version:
            self._version = version
            # Of another history, maybe, until the kind is listed.
            if self._contact.lost_at is None and VERSION.fullmatch(version):
                self._queue.read(self.resource.kind, version)

    def _changes(
        self, kind: str, manifest: dict[str, Any], version: str
    ) -> Iterator[ObservedObject | DeletedObject]:
        """The change that an event means, if it means one."""
        if kind in ("ADDED", "MODIFIED"):
            decoded = self._decode(manifest)
            if decoded is None:
                return
            if self._known.get(decoded.key) == decoded.content_hash:
                self._counters.changes["skipped"].add_one()
                return
            self._known[decoded.key] = decoded.content_hash
            yield decoded
        elif kind == "DELETED":
            key = key_of(self.resource, manifest)
            if not self._is_excluded(key):
                self._known.pop(key, None)
                yield DeletedObject(key, version)

    def _decode(self, manifest: Any) -> ObservedObject | None:
        """Decode an object; None for one that is excluded or cannot be read."""
        try:
            decoded = decode_object(self.resource, manifest)
        except (InvalidRequest, LimitExceeded) as error:
            self._counters.changes["refused"].add_one()
            LOG.warning("%s left out: %s", self.resource.name, error)
            return None
        return None if self._is_excluded(decoded.key) else decoded

    def _is_excluded(self, key: Key) -> bool:
        excluded = self._feed.excluded_namespaces
        return self.resource.may_exclude and key.namespace in excluded
