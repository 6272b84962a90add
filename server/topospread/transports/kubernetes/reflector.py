"""One kind: listed once, then watched from there on, for as long as the API server remembers."""

from __future__ import annotations

import logging
import random
import threading
import time
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
from topospread.store.progress import VERSION
from topospread.telemetry.feeding import KindGauges, KindTallies
from topospread.transports.kubernetes.api_server import REMINDER_SECONDS, NoAnswer, failure
from topospread.transports.kubernetes.facts import (
    Absence,
    Fact,
    key_of,
    read_fact,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from topospread.store.api import Key
    from topospread.transports.kubernetes.api_server import ApiServer, Lines
    from topospread.transports.kubernetes.pending import Pending
    from topospread.transports.kubernetes.resources import Resource
    from topospread.transports.kubernetes.sinks import Sink

LOG: Final = logging.getLogger(__name__)

PAGE: Final = 500
"""Objects in a page: what client-go asks for."""

WATCH_SECONDS: Final = 240.0
"""After which the API server ends a watch, plus up to as much again, so that not all end at once;
client-go has five to ten minutes. The end of a watch costs one request."""

SILENCE_EXTRA: Final = 30.0
"""Seconds beyond the end of a watch after which a silent connection counts as lost."""

LASTING: Final = 5.0
"""Seconds after which a watch counts as a success; one that ends at once is a failure."""

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
"""Seconds between attempts while the API server or the state fails: doubling, with some chance."""

Reason = Literal["first", "expired", "asked"]


class Reflector:
    """Keeps one kind of the state as it is in the cluster; see :meth:`run`.

    Args:
        resource: the kind.
        api: where it is read.
        sink: where lists go.
        fence: of the lease that this is done under.
        pending: where the changes of watches go.
        excluded_namespaces: namespaces whose objects are not fed.
        tallies: counts what happens.
        tell: called after each list that went into the state.
        lost: called when a list was refused because another holds the lease.
    """

    def __init__(
        self,
        resource: Resource,
        api: ApiServer,
        sink: Sink,
        fence: int,
        pending: Pending,
        excluded_namespaces: Collection[str],
        tallies: KindTallies,
        tell: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self.resource = resource
        self.listed = threading.Event()
        self._api = api
        self._sink = sink
        self._fence = fence
        self._pending = pending
        self._excluded_namespaces = frozenset(excluded_namespaces)
        self._tallies = tallies
        self._tell = tell
        self._lost = lost
        self._query = resource.query(excluded_namespaces)
        self._told = threading.Event()
        self._stream: Lines | None = None
        # What is known to be in the state or on its way there, by a mark of what is kept.
        self._known: dict[Key, int] = {}
        self._version = ""
        self._list_because: Reason | None = "first"
        self._contact = time.monotonic()
        self._failures = 0
        self._logged = ("", 0.0)

    # ------------------------------ life

    def run(self) -> None:
        """List and watch until told to stop; whatever fails is tried again."""
        while not self._told.is_set():
            try:
                if (reason := self._list_because) is not None:
                    self._list(reason)
                self._watch()
            except RevisionUnavailable as gone:
                LOG.info("%s: listing again: %s", self.resource.name, gone)
                self._list_because = "expired"
                self._pause()
            except IdentityChanged as lost:
                LOG.warning("%s: listing again: %s", self.resource.name, lost)
                self._list_because = "asked"
                self._pause()
            except Fenced:
                self._lost()
                return
            except TopospreadError as error:
                if self._told.is_set():
                    return
                self._tallies.failures.add_one()
                self._log_failure(error)
                self._pause()

    def list_again(self) -> None:
        """The state was lost or refused: list all anew."""
        self._list_because = "asked"
        self._end_stream()

    def stop(self) -> None:
        """Make run() return soon."""
        self._told.set()
        self._end_stream()

    def gauges(self) -> KindGauges:
        """How it goes."""
        watching = self._stream is not None
        since = 0.0 if watching else time.monotonic() - self._contact
        return KindGauges(
            kind=self.resource.name,
            watching=watching,
            lag_seconds=max(since, self._pending.age(self.resource.kind)),
            objects=len(self._known),
            tallies=self._tallies,
        )

    def _log_failure(self, error: TopospreadError) -> None:
        """One line for each thing that goes wrong, and a reminder while it does not change."""
        if isinstance(error, NoAnswer) and (error.logged or not self._failures):
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
        self._told.wait(seconds * random.uniform(0.5, 1.0))

    def _end_stream(self) -> None:
        if (stream := self._stream) is not None:
            stream.close()

    # ------------------------------ list

    def _list(self, reason: Reason) -> None:
        # Asked for anew while it is under way, it is done once more.
        self._list_because = None
        try:
            facts, version = self._all()
            self._pending.drop(self.resource.kind)
            newer = self._replace(facts, version, force=False)
            if newer:
                # A list is the newest there is: what is newer comes from before a restored backup.
                LOG.warning(
                    "%s: the state is newer than the cluster (%d): taking the cluster's",
                    *(self.resource.name, newer),
                )
                self._replace(facts, version, force=True)
        except BaseException:
            self._list_because = reason
            raise
        self._tallies.lists[reason].add_one()
        self._known = {fact.key: fact.mark for fact in facts}
        self._version = version
        self._contact = time.monotonic()
        self.listed.set()
        self._tell()
        LOG.info("%s: %d listed", self.resource.name, len(facts))

    def _replace(self, facts: Sequence[Fact], version: str, *, force: bool) -> int:
        if self._told.is_set():
            raise ClusterUnavailable("stopping")
        return self._sink.replace(
            self.resource.kind, facts, version, force=force, fence=self._fence
        )

    def _all(self) -> tuple[list[Fact], str]:
        """All objects and the version that they were listed at."""
        found: dict[Key, Fact] = {}
        query = {**self._query, "limit": str(PAGE)}
        while not self._told.is_set():
            try:
                page = self._api.list_page(self.resource.path, query)
            except RevisionUnavailable:
                if "limit" not in query or "continue" not in query:
                    raise
                # The list takes longer than old versions are kept: all at once, as client-go does.
                found.clear()
                query = dict(self._query)
                continue
            for manifest in page.get("items") or ():
                if (fact := self._fact(manifest)) is not None:
                    found[fact.key] = fact
            token = page["metadata"].get("continue")
            if not token:
                return list(found.values()), version_of(page)
            query["continue"] = token
        raise ClusterUnavailable("stopping")

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
        stream = self._api.watch(self.resource.path, query, seconds + SILENCE_EXTRA)
        self._stream = stream
        told_nothing = True
        try:
            # Told just before there was a stream to end.
            if self._told.is_set() or self._list_because is not None:
                stream.close()
            for line in stream:
                told_nothing = False
                self._take_in(line)
                self._failures = 0
        finally:
            self._contact = time.monotonic()
            self._stream = None
        if self._contact - began > LASTING:
            self._failures = 0
        elif told_nothing and self._list_because is None and not self._told.is_set():
            raise NoAnswer(f"{self.resource.path}: the watch ended at once")

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
        if (tally := self._tallies.events.get(str(kind).lower())) is not None:
            tally.add_one()
        for change in self._changes(kind, manifest, version):
            self._pending.add(change)
        if version:
            self._version = version
            if VERSION.fullmatch(version):
                self._pending.read(self.resource.kind, version)

    def _changes(
        self, kind: str, manifest: dict[str, Any], version: str
    ) -> Iterator[Fact | Absence]:
        """The change that an event means, if it means one."""
        if kind in ("ADDED", "MODIFIED"):
            fact = self._fact(manifest)
            if fact is None:
                return
            if self._known.get(fact.key) == fact.mark:
                self._tallies.changes["skipped"].add_one()
                return
            self._known[fact.key] = fact.mark
            yield fact
        elif kind == "DELETED":
            key = key_of(self.resource, manifest)
            if key.namespace not in self._excluded_namespaces:
                self._known.pop(key, None)
                yield Absence(key, version)

    def _fact(self, manifest: Any) -> Fact | None:
        """An object to feed; None for one that is left out or cannot be read."""
        try:
            fact = read_fact(self.resource, manifest)
        except (InvalidRequest, LimitExceeded) as error:
            self._tallies.changes["refused"].add_one()
            LOG.warning("%s left out: %s", self.resource.name, error)
            return None
        return None if fact.key.namespace in self._excluded_namespaces else fact
