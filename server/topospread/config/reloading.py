"""What is read from files and read again when one of them changes."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from topospread.config.loading import read_config
from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

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
        path: the file, or several files that make one value; empty: nothing is ever read, the value
            is what an empty text gives.
        read: makes the value of the files' texts, or raises ConfigError.
        on_reload: called after each reading that found another content or another error, on the
            thread that read. Not called for the first reading, which the constructor does.
        interval: seconds between two looks at the file.

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
        # Looked at before it is read: a change in between is then found at the next look.
        self._looks = self._look()
        self._texts = self._read_texts()
        self._current = Loaded(read(*self._texts))

    @property
    def current(self) -> Loaded[_T]:
        """What is in force; one consistent object."""
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
            self._looks = self._look()
            self._current = self._reloaded(before)
            if self._current is not before:
                self._tell(self._current)
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

    def _tell(self, now: Loaded[_T]) -> None:
        if now.error:
            LOG.error(
                "%s: kept generation %d, the new content is refused: %s",
                *(", ".join(self._paths), now.generation, now.error),
            )
        else:
            LOG.info("%s: generation %d is in force", ", ".join(self._paths), now.generation)
        self._on_reload(now)

    def _watch(self) -> None:
        while not self._stopping.wait(self._interval):
            if self._look() != self._looks:
                self.reload()

    def _read_texts(self) -> tuple[str, ...]:
        return tuple(map(read_config, self._paths)) or ("",)

    def _look(self) -> list[tuple[int, ...]]:
        """What changes with the files; follows links: Kubernetes swaps a ConfigMap by one."""
        return [_seen(path) for path in self._paths]


def _seen(path: str) -> tuple[int, ...]:
    try:
        seen = os.stat(path)
    except OSError:
        return ()
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns)
