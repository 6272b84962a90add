"""The topology of a master that Sentinels name, used only while most of them name it.

Clients are not informed of a failover: connections to the old master stay open, and it goes on
acknowledging writes for ten seconds and more that are lost when it is demoted. So every store asks
all of its Sentinels five times a second and listens to what they publish. A master is used while
a majority of the Sentinels has answered within the last second (the lease), the newest of their
answers names it, and no replica is being promoted. This is looked at before a call is sent and
again before its answer is believed. A new master is used a lease after it was first named: by then
no client uses the old one, whatever kept the news from it. Decision 0020 has the reasons.
"""

from __future__ import annotations

import logging
import time
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, final

from redis import exceptions

from topospread.store.redis.connections import (
    ServerPool,
    login_options,
    make_connection,
    network_options,
    only_masters,
    pool_options,
)
from topospread.store.redis.failures import MasterUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.store.model import StoreSettings
    from topospread.store.redis.connections import Options, RedisConnection, RedisPool
    from topospread.store.urls import RedisURL

LEASE: Final = 1.0
"""Seconds that the answers of a majority are valid, from the moment they were asked for."""

PERIOD: Final = 0.2
"""Seconds between two questions to one Sentinel: four may be lost before the lease ends."""

HEARSAY: Final = 10.0
"""Seconds that the answer of a Sentinel which fell silent counts against other masters: it may be
the one that carried out a failover, which the others hear of within two seconds."""

_log = logging.getLogger(__name__)

Address = tuple[str, int]

# From the first of these states on a replica may have been made the master; writes that the
# old one is given from then on may not reach it.
_PROMOTING: Final = frozenset((b"select_slave", b"send_slaveof_noone", b"wait_promotion"))

# What a Sentinel publishes when its answer is about to change, or has changed.
_NEWS: Final = (
    "+elected-leader",
    "+failover-state-*",
    "+promoted-slave",
    "+config-update-from",
    "+switch-master",
)

_SILENT: Final = "no Sentinel answers, takes our password and knows a live master of that name"
_FAILOVER: Final = "the Sentinels are changing the master; retry"
_DOWN: Final = "the Sentinels take the master for down; retry when they have chosen another"


class SentinelReply(NamedTuple):
    """An answer of a Sentinel.

    Attributes:
        asked_at: when it was asked, on the monotonic clock.
        epoch: of the configuration that it knows; the greater is the newer.
        master: the address that it names.
        promoting: whether it may have made a replica the master, or is about to.
        down: whether the master does not answer it.
    """

    asked_at: float
    epoch: int
    master: Address
    promoting: bool = False
    down: bool = False


@final
class Majority:
    """The rule by which a master may be used. Not safe for threads.

    Args:
        sentinels: how many there are.
    """

    def __init__(self, sentinels: int) -> None:
        self._sentinels = sentinels
        self._answers: dict[Address, SentinelReply] = {}
        self._master: Address | None = None
        self._usable_from = 0.0

    @property
    def silent(self) -> bool:
        """Whether no Sentinel ever answered."""
        return not self._answers

    def note(self, sentinel: Address, answer: SentinelReply, now: float) -> None:
        """A Sentinel answered."""
        self._answers[sentinel] = answer
        self._follow(now)

    def doubt(self, sentinel: Address) -> None:
        """A Sentinel published news: its last answer stands in the way until its next one."""
        known = self._answers.get(sentinel)
        if known is not None:
            self._answers[sentinel] = known._replace(promoting=True)

    def master(self, now: float) -> Address:
        """The master to use now.

        Raises:
            MasterUnknown: none may be used; the text gives the reason.
        """
        newest = self._follow(now)
        if newest is None or self._master is None:
            raise MasterUnknown(_SILENT)
        heard = [answer for answer in self._answers.values() if answer.asked_at > now - LEASE]
        needed = self._sentinels // 2 + 1
        if len(heard) < needed:
            raise MasterUnknown(
                f"only {len(heard)} of {self._sentinels} Sentinels answer: {needed} are needed to "
                "know that the master is still the master; retry"
            )
        others = (answer for answer in self._answers.values() if answer.epoch >= newest.epoch)
        if now < self._usable_from or any(
            answer.promoting and answer.asked_at > now - HEARSAY for answer in others
        ):
            raise MasterUnknown(_FAILOVER)
        if sum(answer.down for answer in heard) >= needed:
            raise MasterUnknown(_DOWN)
        return self._master

    def _follow(self, now: float) -> SentinelReply | None:
        """The newest answer; when it names another master than before, note since when."""
        heard = [answer for answer in self._answers.values() if answer.asked_at > now - HEARSAY]
        newest = max(heard, key=lambda answer: (answer.epoch, answer.asked_at), default=None)
        # Some may write the one master of an epoch differently: as a name, as an address.
        masters = [each.master for each in heard if newest and each.epoch == newest.epoch]
        if newest is not None and self._master not in masters:
            # At the start, too: the failover may have been a moment ago.
            self._master, self._usable_from = newest.master, now + LEASE
        return newest


@final
class SentinelMonitor:
    """The topology of a master that Sentinels name.

    Returns when it is known which master that is, or that it cannot be known now.
    """

    def __init__(self, url: RedisURL, settings: StoreSettings) -> None:
        self._options = login_options(url.username, url.password, settings)
        self._options |= network_options(url.tls) | pool_options(settings)
        # Sentinels may name a server that is not promoted yet.
        self._options |= {"db": url.database, "redis_connect_func": only_masters}
        self._service = url.service
        self._majority = Majority(len(set(url.hosts)))
        self._lock = Condition()
        self._pool: ServerPool | None = None
        self._pool_address: Address | None = None
        self._closed = False
        self._unheard = set(url.hosts)
        options = login_options(url.sentinel_username, url.sentinel_password, settings)
        options |= network_options(url.tls) | {"socket_timeout": settings.connect_timeout}
        for address in set(url.hosts):
            Thread(
                target=self._listen,
                args=(address, options | {"host": address[0], "port": address[1]}),
                name=f"sentinel-{address[0]}:{address[1]}",
                daemon=True,
            ).start()
        with self._lock:
            self._lock.wait_for(self._begun, settings.timeout)

    def pool(self, cluster: str) -> ServerPool:
        del cluster
        return self._master_pool()

    def masters(self) -> Sequence[Callable[[], ServerPool]]:
        return (self._master_pool,)

    def confirm(self, pool: RedisPool) -> None:
        if pool is not self._master_pool():
            raise MasterUnknown(_FAILOVER)

    def invalidate(self, pool: RedisPool | None = None) -> None:
        """See RedisTopology: the Sentinels are asked all the time."""

    def close(self) -> None:
        """See RedisTopology; the threads end by themselves within a second."""
        with self._lock:
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.close()

    def _begun(self) -> bool:
        """Whether waiting longer is of no use: a master is known, or no Sentinel answers."""
        try:
            self._majority.master(time.monotonic())
        except MasterUnknown:
            return not self._unheard and self._majority.silent
        return True

    def _master_pool(self) -> ServerPool:
        """Connections to the master that may be used now."""
        with self._lock:
            if self._closed:
                raise MasterUnknown("the store is closed")
            address = self._majority.master(time.monotonic())
            left = None
            if self._pool is None or self._pool_address != address:
                left, self._pool_address = self._pool, address
                self._pool = ServerPool(**self._options, host=address[0], port=address[1])
            found = self._pool
        if left is not None:
            left.close()
        return found

    def _listen(self, address: Address, options: Options) -> None:
        """The thread of one Sentinel: ask it, listen until it is time to ask again."""
        odd = False
        line, news = make_connection(options), make_connection(options)
        while not self._closed:
            try:
                self._ask(address, line)
                self._heard(address)
                if not news.is_connected:
                    news.send_command("PSUBSCRIBE", *_NEWS)
                self._await_news(address, news)
            except Exception as error:  # noqa: BLE001 # This Sentinel must be asked again in any case.
                if not isinstance(error, (exceptions.RedisError, OSError)) and not odd:
                    odd = True
                    _log.warning("a Sentinel's answer cannot be read: %r", error)
                line.disconnect()
                news.disconnect()
                self._heard(address)
                time.sleep(PERIOD)
        line.disconnect()
        news.disconnect()

    def _heard(self, sentinel: Address) -> None:
        """Wake threads that wait for the first answers."""
        with self._lock:
            self._unheard.discard(sentinel)
            self._lock.notify_all()

    def _ask(self, sentinel: Address, line: RedisConnection) -> None:
        asked_at = time.monotonic()
        line.send_packed_command(
            line.pack_commands(
                [
                    ("SENTINEL", "MASTER", self._service),
                    ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service),
                ]
            )
        )
        known, named = line.read_response(), line.read_response()
        if not known or not named:
            return
        fields = dict(zip(known[::2], known[1::2], strict=False))
        answer = SentinelReply(
            asked_at,
            int(fields[b"config-epoch"]),
            (named[0].decode(), int(named[1])),
            promoting=fields.get(b"failover-state") in _PROMOTING,
            down=b"s_down" in fields[b"flags"].split(b","),
        )
        with self._lock:
            self._majority.note(sentinel, answer, time.monotonic())

    def _await_news(self, sentinel: Address, news: RedisConnection) -> None:
        """Until the Sentinel publishes something about the master, or for PERIOD."""
        if not news.can_read(PERIOD):
            return
        while news.can_read(0):
            message = news.read_response()
            if message[0] == b"pmessage" and self._service.encode() in message[3].split():
                with self._lock:
                    self._majority.doubt(sentinel)
