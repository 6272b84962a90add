"""The reflector of one kind: lists it, then watches it from that resourceVersion on."""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
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
)
from topospread.kubernetes.api_server import REMINDER_SECONDS, NoResponse, Refusal, failure
from topospread.kubernetes.objects import (
    DeletedObject,
    ObservedObject,
    decode_object,
    key_of,
    list_objects,
    version_of,
    why_unread,
)
from topospread.store.model import Kind
from topospread.store.values import VERSION
from topospread.telemetry.families import KindCounters, KindGauges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from topospread.kube.versions import KubernetesVersion
    from topospread.kubernetes.api_server import ApiServer, WatchStream
    from topospread.kubernetes.delta_queue import DeltaQueue
    from topospread.kubernetes.objects import Resource
    from topospread.kubernetes.sink import Sink
    from topospread.store.model import Key

LOG: Final = logging.getLogger(__name__)

WATCH_SECONDS: Final = 240.0
"""After which the API server ends a watch, plus up to as much again, so that not all end at once;
client-go has five to ten minutes. The end of a watch costs one request."""

UNREAD_SECONDS: Final = WATCH_SECONDS
"""Between attempts to list a kind that may not be read, plus up to as much again."""

SILENCE_EXTRA: Final = 30.0
"""Seconds beyond the end of a watch after which a silent connection counts as lost."""

STABLE_AFTER: Final = 5.0
"""Seconds after which a watch counts as a success; one that ends at once is a failure."""

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
"""Seconds between attempts while the API server or the state fails: doubling, with some chance."""

VERSION_WITH: Final = Kind.NODE
"""The kind with whose lists the API server's version is written: nodes are few."""

Reason = Literal["initial", "expired", "state_lost", "upgraded"]


@dataclass(frozen=True, slots=True)
class Feed:
    """From where to where a leader syncs.

    Attributes:
        api: where the cluster is read.
        sink: where it goes.
        fence: of the lease that this is done under.
        excluded_namespaces: namespaces whose objects are not synced.
        on_listed: called after each list that was written.
        on_lost: called when a write was refused because another process holds the lease.
    """

    api: ApiServer
    sink: Sink
    fence: int
    excluded_namespaces: Collection[str]
    on_listed: Callable[[], None]
    on_lost: Callable[[], None]


class Unread(Exception):  # noqa: N818 # it ends nothing
    """A kind that the state may lack cannot be read; the text says why."""


class Reflector:
    """Keeps one kind of the state as it is in the cluster; see :meth:`run`.

    Lists go to the sink, the changes of watches to the queue. A kind that the state may lack and
    that may not be read is left out, and asked for again now and then.

    Attributes:
        listed: set when the kind was listed once, or is one to do without and could not be.
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
        self._contact_at = time.monotonic()
        self._failures = 0
        self._logged = ("", 0.0)

    # ------------------------------ life

    def run(self) -> None:
        """List and watch until stopped; failures are retried."""
        while not self._stopping.is_set():
            try:
                self._look_for_upgrade()
                if (reason := self._list_because) is not None:
                    self._list(reason)
                self._watch()
            except RevisionUnavailable as gone:
                LOG.info("%s: listing again: %s", self.resource.name, gone)
                self._list_because = "expired"
                self._pause()
            except IdentityChanged as changed:
                LOG.warning("%s: listing again: %s", self.resource.name, changed)
                self._list_because = "state_lost"
                self._pause()
            except Fenced:
                self._feed.on_lost()
                return
            except Unread as unread:
                self._go_on_without(str(unread))
            except TopospreadError as error:
                if self._stopping.is_set():
                    return
                self._counters.failures.add_one()
                self._log_failure(error)
                if self.resource.is_optional:
                    self._settle()
                self._pause()

    def _go_on_without(self, reason: str) -> None:
        """Note that the kind is not read, and wait for as long as a watch lasts."""
        resource = self.resource
        try:
            self._feed.sink.note_unknown(resource.kind, reason, fence=self._feed.fence)
        except Fenced:
            self._feed.on_lost()
            self._stopping.set()
            return
        except TopospreadError as error:
            self._log_failure(error)
            self._pause()
            return
        if self.unread != reason:
            LOG.warning("%s: %s: the state is synced without", resource.name, reason)
        self._list_because, self.unread, self._known = "expired", reason, {}
        self._settle()
        self._awaited.wait(UNREAD_SECONDS * random.uniform(1.0, 2.0))
        self._awaited.clear()

    def _settle(self) -> None:
        self.listed.set()
        self._feed.on_listed()

    @contextmanager
    def _refused(self, verb: str) -> Iterator[None]:
        """Turn the refusal of a kind that the state may lack into Unread."""
        try:
            yield
        except Refusal as refusal:
            reason = why_unread(self.resource, refusal, verb)
            if not reason or not self.resource.is_optional:
                raise
            raise Unread(reason) from refusal

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
        since = 0.0 if watching else time.monotonic() - self._contact_at
        return KindGauges(
            kind=self.resource.name,
            watching=watching,
            lag_seconds=max(since, self._queue.age(self.resource.kind)),
            objects=len(self._known),
            counters=self._counters,
        )

    def _log_failure(self, error: TopospreadError) -> None:
        """One line for each thing that goes wrong, and a reminder while it does not change."""
        if isinstance(error, NoResponse) and (error.logged or not self._failures):
            # The outage has its one line; a watch that broke off once is nothing to look at.
            LOG.debug("%s: %s", self.resource.name, error)
            return
        text, now = str(error), time.monotonic()
        last, at = self._logged
        if self._failures and text == last and now - at < REMINDER_SECONDS:
            return
        self._logged = (text, now)
        LOG.warning("%s: %s", self.resource.name, error)

    def _pause(self) -> None:
        seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 10))
        self._failures += 1
        self._stopping.wait(seconds * random.uniform(0.5, 1.0))

    def _end_stream(self) -> None:
        if (stream := self._stream) is not None:
            stream.close()

    # ------------------------------ list

    def _look_for_upgrade(self) -> None:
        """Have the kind listed, and the version with it, when the API server has another one.

        An upgrade ends watches, which a few minutes do as well.
        """
        if self.resource.kind is not VERSION_WITH:
            return
        version = self._feed.api.kubernetes_version()
        if version is not None and version != self._kubernetes_version:
            if self._list_because is None:
                LOG.info("the API server is of Kubernetes %s now", version)
                self._list_because = "upgraded"
            self._kubernetes_version = version

    def _list(self, reason: Reason) -> None:
        # Asked for anew while it is under way, it is done once more.
        self._list_because = None
        try:
            with self._refused("list"):
                objects, version = self._all()
            self._queue.drop(self.resource.kind)
            newer = self._replace(objects, version, force=False)
            if newer:
                # A list is the newest there is: what is newer comes from before a restored backup.
                LOG.warning(
                    "%s: the state is newer than the cluster (%d): taking the cluster's",
                    self.resource.name,
                    newer,
                )
                self._replace(objects, version, force=True)
        except BaseException:
            self._list_because = reason
            raise
        self._counters.lists[reason].add_one()
        self._known = {one.key: one.content_hash for one in objects}
        self._version = version
        self._contact_at = time.monotonic()
        self.unread = ""
        self._settle()
        LOG.info("%s: %d listed", self.resource.name, len(objects))

    def _replace(self, objects: Sequence[ObservedObject], version: str, *, force: bool) -> int:
        if self._stopping.is_set():
            raise ClusterUnavailable("stopping")
        return self._feed.sink.replace(
            self.resource.kind,
            objects,
            version,
            force=force,
            fence=self._feed.fence,
            kubernetes_version=self._kubernetes_version,
        )

    def _all(self) -> tuple[list[ObservedObject], str]:
        return list_objects(
            self._feed.api,
            self.resource.path,
            self._query,
            self._decode,
            lambda objects, remaining: not self._stopping.is_set(),
        )

    # ------------------------------ watch

    def _watch(self) -> None:
        seconds = WATCH_SECONDS * random.uniform(1.0, 2.0)
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(int(seconds)),
        }
        began = time.monotonic()
        with self._refused("watch"):
            stream = self._feed.api.watch(self.resource.path, query, seconds + SILENCE_EXTRA)
        self._stream = stream
        silent = True
        try:
            # Stopped just before there was a stream to end.
            if self._stopping.is_set() or self._list_because is not None:
                stream.close()
            for line in stream:
                silent = False
                self._take_in(line)
                self._failures = 0
        finally:
            self._contact_at = time.monotonic()
            self._stream = None
        if self._contact_at - began > STABLE_AFTER:
            self._failures = 0
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
            if VERSION.fullmatch(version):
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
