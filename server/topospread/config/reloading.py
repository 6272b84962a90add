"""What is read from a file and read again when the file changes."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from topospread.config.loading import read_config
from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[_T]):
    """What is in force, and how the last reading of the file went.

    Attributes:
        value: what was read from the newest content that was accepted.
        generation: counts accepted contents that differ, from 1.
        error: why the newest content was refused; empty when it is in force.
    """

    value: _T
    generation: int = 1
    error: str = ""


class Reloading(Generic[_T]):
    """Keeps a value read from a file; a broken new file leaves the old value in force.

    Args:
        path: the file; empty: nothing is ever read, the value is what an empty text gives.
        read: makes the value of the file's text, or raises ConfigError.
        on_reload: called after each reading that found another content or another error, on the
            thread that read. Not called for the first reading, which the constructor does.
        interval: seconds between two looks at the file.

    Raises:
        ConfigError: the first reading failed; there is no old value to keep.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[str], _T],
        *,
        on_reload: Callable[[Loaded[_T]], None] = lambda _: None,
        interval: float = 2.0,
    ) -> None:
        self._path = path
        self._read = read
        self._on_reload = on_reload
        self._interval = interval
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # Looked at before it is read: a change in between is then found at the next look.
        self._looks = self._look()
        self._text = read_config(path) if path else ""
        self._current = Loaded(read(self._text))

    @property
    def current(self) -> Loaded[_T]:
        """What is in force; one consistent object."""
        return self._current

    def start(self) -> None:
        """Begin to watch the file; without one there is nothing to watch."""
        if self._path and self._thread is None:
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
            self._looks = self._look()
            self._current = self._reloaded(before)
            if self._current is not before:
                self._tell(self._current)
            return not self._current.error

    def _reloaded(self, before: Loaded[_T]) -> Loaded[_T]:
        try:
            text = read_config(self._path) if self._path else ""
            if text == self._text:
                return replace(before, error="") if before.error else before
            value = self._read(text)
        except ConfigError as error:
            same = str(error) == before.error
            return before if same else replace(before, error=str(error))
        self._text = text
        return Loaded(value, before.generation + 1)

    def _tell(self, now: Loaded[_T]) -> None:
        if now.error:
            LOG.error(
                "%s: kept generation %d, the new content is refused: %s",
                *(self._path, now.generation, now.error),
            )
        else:
            LOG.info("%s: generation %d is in force", self._path, now.generation)
        self._on_reload(now)

    def _watch(self) -> None:
        while not self._stopping.wait(self._interval):
            if self._look() != self._looks:
                self.reload()

    def _look(self) -> tuple[int, ...]:
        """What changes with the file; follows links: Kubernetes swaps a ConfigMap by one."""
        try:
            seen = os.stat(self._path)
        except OSError:
            return ()
        return (seen.st_ino, seen.st_size, seen.st_mtime_ns)
