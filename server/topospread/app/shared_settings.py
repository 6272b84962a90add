"""Compares the settings of servers that share a store, where answers depend on them.

Each server says under which settings it answers by what a store keeps for processes: a lease
(:class:`~topospread.store.api.Leaser`), of no cluster, whose holder is a digest of each of these
settings. Servers with the same settings hold it together. One with others finds it taken, and takes
a second one, by which the first learn of it. There are never more than these two leases, however
many servers come and go.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Final

from topospread.errors import TopospreadError

if TYPE_CHECKING:
    from topospread.codec.scheduler_config import ConfiguredRules
    from topospread.config.settings import ServerSettings
    from topospread.store.api import Store

LOG: Final = logging.getLogger(__name__)

FIRST: Final = "topospread--settings"
SECOND: Final = "topospread--other-settings"
"""In place of a cluster's name: no cluster has that name by accident."""

LIFETIME: Final = 60_000
"""Milliseconds after which a server that is gone is not compared any more."""

PAUSE: Final = 20.0
"""Seconds between two comparisons: a third of the lifetime, so that one may fail."""

SOON: Final = 5.0
"""Seconds to the second comparison after a difference. A change that comes to one worker after the
other, or to one server after the other by a file that all read, is none by then.
"""

TIMEOUT: Final = 1.0
"""Seconds that a comparison may take: no call waits for it."""

LIMITS: Final = (
    "max_constraints",
    "max_selector_terms",
    "max_batch_pods",
    "max_what_if_pods",
    "max_simulated_pods",
    "max_simulated_nodes",
    "max_batch_objects",
    "max_replace_objects",
    "max_replace_bytes",
    "max_request_bytes",
    "max_decision_bytes",
    "max_response_bytes",
    "max_groups",
    "max_clusters",
    "max_cluster_constraints",
)
"""Settings by which one server may refuse what another answers, beside the rules."""

NAMES: Final = (
    "profiles",
    "feature gates",
    *("--" + name.replace("_", "-") for name in LIMITS),
)
"""The names of what is compared, for log lines and GetServerInfo."""

_DIGITS: Final = 8


class SharedSettings:
    """Compares this server's settings with those of others, from start() to stop().

    Args:
        store: that they share.
        settings: of this server.
        rules: its profiles and feature gates.

    Attributes:
        differing: names of settings that another server has otherwise, as of the last comparison.
    """

    def __init__(self, store: Store, settings: ServerSettings, rules: ConfiguredRules) -> None:
        self.differing: tuple[str, ...] = ()
        self._store = store
        self._settings = settings
        self._own = self._announced = _digests(settings, rules)
        self._suspected: tuple[str, ...] = ()
        self._reached = False
        self._stopping = False
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="settings", daemon=True)

    @property
    def digest(self) -> str:
        """A digest of the shared settings; servers with equal ones have the same."""
        return hashlib.sha256(self._own.encode()).hexdigest()[:12]

    def start(self) -> None:
        """Compare from now on, in a thread of its own."""
        self._thread.start()

    def replace(self, rules: ConfiguredRules) -> None:
        """Other rules are in force."""
        self._own = _digests(self._settings, rules)
        self._changed.set()

    def stop(self) -> None:
        """Compare no more, and be compared with no more."""
        self._stopping = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._compare()
                self._reached = True
            except TopospreadError:
                self._reached = False  # store errors are logged where they occur
            self._changed.wait(SOON if self._suspected != self.differing else PAUSE)
            self._changed.clear()
        if self._reached:
            try:
                self._release(self._announced)
            except TopospreadError as error:
                LOG.debug("settings: %s", error)

    def _compare(self) -> None:
        own = self._own
        if own != self._announced:
            self._release(self._announced)
            self._announced = own
        other = self._store.lease(FIRST, own, LIFETIME, timeout=TIMEOUT).holder
        if other == own:
            # Without a lifetime nothing is taken.
            second = self._store.lease(SECOND, own, 0, timeout=TIMEOUT)
            other = second.holder if second.left else own
        else:
            self._store.lease(SECOND, own, LIFETIME, timeout=TIMEOUT)
        self._note(_differing(own, other))

    def _note(self, found: tuple[str, ...]) -> None:
        if found == self._suspected and found != self.differing:
            self.differing = found
            if found:
                LOG.warning(
                    "another server of this store has other settings, and may answer otherwise: %s",
                    ", ".join(found),
                )
            else:
                LOG.info("all servers of this store have the same settings again")
        self._suspected = found

    def _release(self, own: str) -> None:
        for name in (FIRST, SECOND):
            self._store.lease(name, own, 0, timeout=TIMEOUT)


def _digests(settings: ServerSettings, rules: ConfiguredRules) -> str:
    """A digest of the names, which differ between versions of the server, and of each value."""
    limits = (repr(getattr(settings, name)) for name in LIMITS)
    values = (repr(list(rules.profiles.items())), repr(rules.gates), *limits)
    words = (" ".join(NAMES), *values)
    return ".".join(hashlib.sha256(word.encode()).hexdigest()[:_DIGITS] for word in words)


def _differing(own: str, other: str) -> tuple[str, ...]:
    if own == other:
        return ()
    mine, theirs = own.split("."), other.split(".")
    if mine[0] != theirs[0] or len(mine) != len(theirs):
        return ("all, as of another version",)
    found = zip(NAMES, mine[1:], theirs[1:], strict=True)
    return tuple(name for name, one, another in found if one != another)
