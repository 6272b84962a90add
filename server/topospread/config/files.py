"""Files that a process reads, and reads again when they change.

PEM files of TLS listeners are checked, and made a context of current practice. gRPC has a TLS
library of its own, whose defaults are the same: TLS 1.2 and 1.3, forward secrecy and authenticated
encryption only.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

LOG = logging.getLogger(__name__)

_T = TypeVar("_T")

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of TLS 1.3 are all good."""


def read_config(path: str) -> str:
    """The text of a configuration file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: it is not UTF-8 text") from error


@dataclass(frozen=True, slots=True)
class Loaded(Generic[_T]):
    """The value in force, and how the last reading of the file went.

    Attributes:
        value: what was read from the newest content that was accepted.
        generation: counts accepted contents that differ, from 1.
        error: why the newest content was refused; empty when it is in force.
    """

    value: _T
    generation: int = 1
    error: str = ""


class FileWatcher(Generic[_T]):
    """Keeps a value read from a file; a broken new file leaves the old value in force.

    Args:
        path: the file, or several files that make one value; empty: nothing is ever read, the value
            is what an empty text gives.
        read: makes the value of the files' texts, or raises ConfigError.
        on_reload: called after each reading that found another content or another error, on the
            thread that read. Not called for the first reading, which the constructor does.
        interval: seconds between two checks of the file.

    Raises:
        ConfigError: the first reading failed; there is no old value to keep.
    """

    def __init__(
        self,
        path: str | Collection[str],
        read: Callable[..., _T],
        *,
        on_reload: Callable[[Loaded[_T]], None] = lambda _: None,
        interval: float = 2.0,
    ) -> None:
        self._paths = tuple(filter(None, [path] if isinstance(path, str) else sorted(path)))
        self._read = read
        self._on_reload = on_reload
        self._interval = interval
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # Before the file is read: a change in between is then found at the next check.
        self._fingerprints = self._read_fingerprints()
        self._texts = self._read_texts()
        self._current = Loaded(read(*self._texts))

    @property
    def current(self) -> Loaded[_T]:
        """The content in force; one consistent object."""
        return self._current

    def start(self) -> None:
        """Begin to watch the file; without one there is nothing to watch."""
        if self._paths and self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="config-watch", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def reload(self) -> bool:
        """Read the file now, changed or not. Returns whether what it holds is in force."""
        with self._lock:
            before = self._current
            self._fingerprints = self._read_fingerprints()
            self._current = self._reloaded(before)
            if self._current is not before:
                self._report(self._current)
            return not self._current.error

    def _reloaded(self, before: Loaded[_T]) -> Loaded[_T]:
        try:
            texts = self._read_texts()
            if texts == self._texts:
                return replace(before, error="") if before.error else before
            value = self._read(*texts)
        except ConfigError as error:
            same = str(error) == before.error
            return before if same else replace(before, error=str(error))
        self._texts = texts
        return Loaded(value, before.generation + 1)

    def _report(self, now: Loaded[_T]) -> None:
        if now.error:
            LOG.error(
                "%s: kept generation %d, the new content is refused: %s",
                ", ".join(self._paths),
                now.generation,
                now.error,
            )
        else:
            LOG.info("%s: generation %d is in force", ", ".join(self._paths), now.generation)
        self._on_reload(now)

    def _watch(self) -> None:
        while not self._stopping.wait(self._interval):
            if self._read_fingerprints() != self._fingerprints:
                self.reload()

    def _read_texts(self) -> tuple[str, ...]:
        return tuple(map(read_config, self._paths)) or ("",)

    def _read_fingerprints(self) -> list[tuple[int, ...]]:
        return [_fingerprint(path) for path in self._paths]


def _fingerprint(path: str) -> tuple[int, ...]:
    """Numbers that change with a file; follows links: Kubernetes swaps a ConfigMap by one."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class PemFiles:
    """The files of a listener.

    Attributes:
        cert: the server's certificate chain.
        key: its private key.
        client_ca: clients must show a certificate signed by one of these; empty: none is asked for.
    """

    cert: str
    key: str
    client_ca: str = ""

    def paths(self) -> tuple[str, ...]:
        """The paths of the files that are configured."""
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path)

    def context(self) -> ssl.SSLContext:
        """A context for a server.

        Raises:
            ConfigError: one of the files cannot be read, or is not what it should be.
        """
        for path in self.paths():
            read_config(path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        # A resumed session would pass by certificates that have changed since it began.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        try:
            # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"--tls-cert, --tls-key: {self.cert} and {self.key} are no PEM certificate and key"
                " that belong together, the key not encrypted"
            ) from error
        if self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"--client-ca: {self.client_ca} has no PEM certificates"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def read(self) -> Pem:
        """Read and check the files.

        Raises:
            ConfigError: one of them cannot be used, or changes while it is read.
        """
        before = self._texts()
        self.context()
        if before != self._texts():
            raise ConfigError(f"{self.cert}: it changes while it is read")
        return Pem(*(text.encode() for text in before))

    def _texts(self) -> list[str]:
        return [read_config(path) if path else "" for path in (self.cert, self.key, self.client_ca)]


@dataclass(frozen=True, slots=True)
class Pem:
    """The PEM texts of a listener; the CAs are empty when clients need no certificate."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: bytes
