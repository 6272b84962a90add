"""The workers as their supervisor sees them: started, asked, missed."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from topospread.app.links import Ended, Failed, Question, Ready
from topospread.telemetry.merging import merge_expositions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from topospread.app.links import Message, Readiness, Topic
    from topospread.config.settings import ServerSettings

ANSWER_SECONDS: Final = 2.0
"""How long a worker may take to answer: far below the 10 s after which Prometheus gives up."""


class Member:
    """One worker process.

    Attributes:
        number: from 1; a worker that replaces another has the same.
        process: of the operating system.
        link: to it.
        ready_at: when it began to serve, on the monotonic clock; None before that.
        failure: why it could not start, when it said so.
        metrics: its last word, or last answer.
        exit_code: after its end; negative: the signal that ended it.
    """

    def __init__(self, number: int, settings: ServerSettings) -> None:
        self.number = number
        # A fresh interpreter: nothing of the supervisor's threads and sockets is in it.
        context = get_context("spawn")
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, settings))
        with _signals_held_back():
            self.process.start()
        theirs.close()
        self.exit_code: int | None = None
        self.ready_at: float | None = None
        self.failure: Failed | None = None
        self.metrics = b""
        self._asked: tuple[int, SimpleQueue[bytes | Readiness]] | None = None

    def hear(self) -> None:
        """Take in what it has said so far."""
        try:
            while self.link.poll():
                self._take_in(self.link.recv())
        except (EOFError, OSError):
            self.link.close()

    def _take_in(self, message: Message) -> None:
        if isinstance(message, Ready):
            self.ready_at = time.monotonic()
        elif isinstance(message, Failed):
            self.failure = message
        elif isinstance(message, Ended):
            self.metrics = message.metrics
        elif (asked := self._asked) is not None and asked[0] == message.number:
            self._asked = None
            asked[1].put(message.content)

    def ask(self, question: Question) -> SimpleQueue[bytes | Readiness] | None:
        """Ask; the answer will be in what is returned. None: it hangs, or is gone."""
        # One question at a time: a worker that does not answer must not fill the pipe.
        if self._asked is not None:
            return None
        answers: SimpleQueue[bytes | Readiness] = SimpleQueue()
        self._asked = (question.number, answers)
        try:
            self.link.send(question)
        except OSError:
            self._asked = None
            return None
        return answers


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """What is started meanwhile gets no signals until it asks for them, nor loses one."""
    # Started by itself, because it lets the signals through again.
    resource_tracker.ensure_running()
    held = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(link: Connection[Message, Question], settings: ServerSettings) -> None:
    """What a worker process does; only there is it imported."""
    from topospread.app.worker import work

    work(link, settings)


class Crew:
    """All workers. One thread starts and hears them, others may ask.

    Args:
        settings: of each worker.
        size: how many.
    """

    def __init__(self, settings: ServerSettings, size: int) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._members: dict[int, Member] = {}
        self._retired = b""
        self._questions = itertools.count(1)
        self.size = size
        self.restarts = 0

    @property
    def members(self) -> Sequence[Member]:
        """Those that run."""
        with self._lock:
            return list(self._members.values())

    @property
    def ready(self) -> int:
        """How many serve."""
        return sum(member.ready_at is not None for member in self.members)

    def start(self, number: int) -> None:
        """Start a worker."""
        member = Member(number, self._settings)
        with self._lock:
            self._members[number] = member

    def lose(self, member: Member) -> None:
        """A worker has ended: what it counted is kept."""
        member.hear()
        member.link.close()
        member.process.join()
        member.exit_code = member.process.exitcode
        member.process.close()
        with self._lock:
            del self._members[member.number]
            self._retired = merge_expositions((), (self._retired, member.metrics))

    def expositions(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """The metrics of those that run, and of those that ended or do not answer."""
        with self._asking:
            with self._lock:
                members, retired = list(self._members.values()), self._retired
            live, silent = [], [retired]
            for member, answer in zip(members, self._answers(members, "metrics"), strict=True):
                if isinstance(answer, bytes) and answer:
                    member.metrics = answer
                    live.append(answer)
                else:
                    silent.append(member.metrics)
            return live, silent

    def readiness(self) -> Readiness:
        """Whether all workers are ready, and if not, what is said of which."""
        with self._asking:
            members = self.members
            reasons = [
                f"worker {number}: starting"
                for number in range(1, self.size + 1)
                if number not in {member.number for member in members}
            ]
            for member, answer in zip(members, self._answers(members, "ready"), strict=True):
                if answer is None or isinstance(answer, bytes):
                    reasons.append(f"worker {member.number}: no answer")
                else:
                    reasons += [f"worker {member.number}: {reason}" for reason in answer[1]]
            return not reasons, sorted(reasons)

    def _answers(self, members: Sequence[Member], topic: Topic) -> list[Any]:
        question = Question(next(self._questions), topic)
        asked = [member.ask(question) for member in members]
        deadline = time.monotonic() + ANSWER_SECONDS
        return [None if answer is None else _before(deadline, answer) for answer in asked]


def _before(deadline: float, answers: SimpleQueue[bytes | Readiness]) -> bytes | Readiness | None:
    try:
        return answers.get(timeout=max(0.001, deadline - time.monotonic()))
    except Empty:
        return None
