"""Measuring processes of our own that take turns: each keeps its index, one works at a time."""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from topospread.cli.complaints import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection


class Child:
    """A process that holds a subject and does to it what it is told."""

    def __init__(self, link: Connection[Any, Any]) -> None:
        self._link = link

    def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work(subject, *arguments)`` in the process and return what it returns.

        Args:
            work: a function of a module: the process imports it.
            arguments: what pickles.

        Raises:
            Unreachable: the process ended; what it said is on stderr.
        """
        try:
            self._link.send((work, arguments))
            return self._link.recv()
        except (EOFError, OSError) as cause:
            raise Unreachable("a measuring process of the bench ended early") from cause


@contextmanager
def child(make: Callable[..., Any], *arguments: Any) -> Iterator[Child]:
    """A process with the subject that ``make(*arguments)`` returns, until this is left.

    A subject with a `close` is closed then.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_live, args=(theirs, make, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Child(ours)
    finally:
        ours.close()
        process.join(20.0)
        if process.is_alive():
            process.kill()
            process.join()


def _live(link: Connection[Any, Any], make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    subject = make(*arguments)
    with ExitStack() as closing:
        if hasattr(subject, "close"):
            closing.callback(subject.close)
        while True:
            try:
                work, given = link.recv()
            except EOFError:
                return
            link.send(work(subject, *given))
