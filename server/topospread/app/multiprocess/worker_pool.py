"""The supervisor's pool of worker processes."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from topospread.app.multiprocess.messages import Exited, Ready, Request, StartFailed
from topospread.telemetry.merging import merge_expositions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from topospread.app.multiprocess.messages import Message, Readiness, Topic
    from topospread.config.settings import ServerSettings

RESPONSE_SECONDS: Final = 2.0
"""How long a worker may take to answer: far below the 10 s after which Prometheus gives up."""


class WorkerProcess:
    """One worker process.

    Attributes:
        number: from 1; a worker that replaces another has the same.
        process: the operating system's.
        pipe: to it.
        ready_at: when it began to serve, on the monotonic clock; None before that.
        failure: why it could not start, if it sent that.
        metrics: its last exposition.
        exit_code: after its end; negative: the signal that ended it.
    """

    def __init__(self, number: int, settings: ServerSettings) -> None:
        self.number = number
        # A fresh interpreter: nothing of the supervisor's threads and sockets is in it.
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, settings))
        with _signals_blocked():
            self.process.start()
        theirs.close()
        self.exit_code: int | None = None
        self.ready_at: float | None = None
        self.failure: StartFailed | None = None
        self.metrics = b""
        self._pending_request: tuple[int, SimpleQueue[bytes | Readiness]] | None = None

    def receive(self) -> None:
        """Handle the messages that it has sent so far."""
        try:
            while self.pipe.poll():
                self._handle(self.pipe.recv())
        except (EOFError, OSError):
            self.pipe.close()

    def _handle(self, message: Message) -> None:
        if isinstance(message, Ready):
            self.ready_at = time.monotonic()
        elif isinstance(message, StartFailed):
            self.failure = message
        elif isinstance(message, Exited):
            self.metrics = message.metrics
        elif (pending := self._pending_request) is not None and pending[0] == message.number:
            self._pending_request = None
            pending[1].put(message.content)

    def request(self, request: Request) -> SimpleQueue[bytes | Readiness] | None:
        """Send a request; the queue returned gets the response. None: it hangs, or is gone."""
        # One at a time: a worker that does not answer must not fill the pipe.
        if self._pending_request is not None:
            return None
        responses: SimpleQueue[bytes | Readiness] = SimpleQueue()
        self._pending_request = (request.number, responses)
        try:
            self.pipe.send(request)
        except OSError:
            self._pending_request = None
            return None
        return responses


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Processes started inside get no signals until they unblock them, and lose none."""
    # Started by itself, because it lets the signals through again.
    resource_tracker.ensure_running()
    held = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection[Message, Request], settings: ServerSettings) -> None:
    """The target of a worker process; its imports are those of the worker alone."""
    from topospread.app.multiprocess.worker import work

    work(pipe, settings)


class WorkerPool:
    """All workers. One thread starts and receives from them, others may send requests.

    Args:
        settings: of each worker.
        size: how many.
    """

    def __init__(self, settings: ServerSettings, size: int) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._requesting = threading.Lock()
        self._workers_by_number: dict[int, WorkerProcess] = {}
        self._retired = b""
        self._request_numbers = itertools.count(1)
        self.size = size
        self.restarts = 0

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        """The workers that run."""
        with self._lock:
            return list(self._workers_by_number.values())

    @property
    def ready(self) -> int:
        """The number of workers that serve."""
        return sum(worker.ready_at is not None for worker in self.workers)

    def start(self, number: int) -> None:
        """Start a worker."""
        worker = WorkerProcess(number, self._settings)
        with self._lock:
            self._workers_by_number[number] = worker

    def remove(self, worker: WorkerProcess) -> None:
        """Remove a worker that has exited; its counters are kept."""
        worker.receive()
        worker.pipe.close()
        worker.process.join()
        worker.exit_code = worker.process.exitcode
        worker.process.close()
        with self._lock:
            del self._workers_by_number[worker.number]
            self._retired = merge_expositions((), (self._retired, worker.metrics))

    def expositions(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """The metrics of workers that run, and of those that exited or do not answer."""
        with self._requesting:
            with self._lock:
                workers, retired = list(self._workers_by_number.values()), self._retired
            live, silent = [], [retired]
            for worker, response in zip(workers, self._responses(workers, "metrics"), strict=True):
                if isinstance(response, bytes) and response:
                    worker.metrics = response
                    live.append(response)
                else:
                    silent.append(worker.metrics)
            return live, silent

    def readiness(self) -> Readiness:
        """Whether all workers are ready, and if not, the reasons of each."""
        with self._requesting:
            workers = self.workers
            reasons = [
                f"worker {number}: starting"
                for number in range(1, self.size + 1)
                if number not in {worker.number for worker in workers}
            ]
            for worker, response in zip(workers, self._responses(workers, "ready"), strict=True):
                if response is None or isinstance(response, bytes):
                    reasons.append(f"worker {worker.number}: no answer")
                else:
                    reasons += [f"worker {worker.number}: {reason}" for reason in response[1]]
            return not reasons, sorted(reasons)

    def _responses(self, workers: Sequence[WorkerProcess], topic: Topic) -> list[Any]:
        request = Request(next(self._request_numbers), topic)
        pending = [worker.request(request) for worker in workers]
        deadline = time.monotonic() + RESPONSE_SECONDS
        return [None if response is None else _before(deadline, response) for response in pending]


def _before(deadline: float, responses: SimpleQueue[bytes | Readiness]) -> bytes | Readiness | None:
    try:
        return responses.get(timeout=max(0.001, deadline - time.monotonic()))
    except Empty:
        return None
