"""Writes in steps: shows how far they are, and says what was written when they end too early."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from topospread.cli import printing
from topospread.cli.complaints import BAD_INPUT, Terminated, code_of
from topospread_client import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def told(
    doing: str, done_to_them: str, *, unit: str = "objects"
) -> Iterator[Callable[[int, int], None]]:
    """Progress for what writes; an early end is said with how much was written and how to go on.

    Args:
        doing: for example ``applying``, beside the bar.
        done_to_them: for example ``written``.
        unit: what is counted.
    """
    done, total = 0, 0

    def count(now: int, of: int) -> None:
        nonlocal done, total
        done, total = now, of
        show(now, of)

    with _terminated():
        try:
            with printing.progress(doing) as show:
                yield count
        except KeyboardInterrupt:
            # Another Ctrl-C must not take the words away.
            with _deaf():
                printing.note(_early(done, total, done_to_them, unit, sure=False))
            raise
        except TopospreadClientError as error:
            if done:
                sure = code_of(error) == BAD_INPUT
                printing.note(_early(done, total, done_to_them, unit, sure=sure))
            raise


def _early(done: int, total: int, done_to_them: str, unit: str, *, sure: bool) -> str:
    if not total:
        first = f"of the first {unit} it is not known whether they are {done_to_them}"
        return f"{first}, no others are: the same command does the rest"
    said = f"{done} of {total} {unit} are {done_to_them}"
    if sure:
        return f"{said}, the others are not: put right what is wrong and repeat the command"
    unknown = "of those that were just sent it is not known, the others are not"
    return f"{said}, {unknown}: the same command does the rest"


@contextmanager
def _terminated() -> Iterator[None]:
    """Let SIGTERM end what is under way by an exception."""
    ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # by whoever started this
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: Any) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _deaf() -> Iterator[None]:
    """Neither Ctrl-C nor SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, signal.SIG_IGN) for each in both]
    try:
        yield
    finally:
        for each, handler in zip(both, before, strict=True):
            signal.signal(each, handler)
