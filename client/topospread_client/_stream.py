"""StreamEvaluatePods for the blocking client."""

from __future__ import annotations

import threading
from collections import deque
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, cast

import grpc

from topospread_client import _decisions as decisions
from topospread_client._arguments import several
from topospread_client._operations import lazy_method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from topospread_client._answers import EvaluatePodResponse
    from topospread_client._operations import ClientSession, Operation
    from topospread_client._requests import PodSource
    from topospread_client._status import GrpcFailure
    from topospread_client._stream_session import Outcome, PendingEvaluation, StreamSession

_P = ParamSpec("_P")


@lazy_method("{}")
def _evaluating(
    operation: Callable[Concatenate[ClientSession, _P], Operation[EvaluatePodResponse]],
) -> Callable[Concatenate[EvaluateStream, _P], EvaluatePodResponse]:
    """Method that evaluates a pod."""

    @wraps(operation)
    def method(self: EvaluateStream, /, *args: _P.args, **kwargs: _P.kwargs) -> EvaluatePodResponse:
        return self._evaluate(operation(self._session, *args, **kwargs))

    return method


@lazy_method("Iterator[Outcome]", about="pods: Iterable[PodSource]")
def _evaluating_all(
    operation: Callable[Concatenate[ClientSession, PodSource, _P], Operation[EvaluatePodResponse]],
) -> Callable[Concatenate[EvaluateStream, Iterable[PodSource], _P], Iterator[Outcome]]:
    """Method that evaluates many pods."""

    def method(
        self: EvaluateStream, pods: Iterable[PodSource], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Iterator[Outcome]:
        """Evaluate many pods, several at a time, and yield the outcomes in the pods' order.

        Each pod is judged on its own at the newest state at its turn: none sees the others placed.
        Pods are read as far ahead as the stream's window; leaving the iteration early drops those
        under way. The other arguments of `evaluate_pod` hold for all pods; `timeout` is the time to
        wait for each response.

        Yields:
            For each pod its evaluation, or the error that `evaluate_pod` would have raised.
        """
        return self._evaluate_all(
            operation(self._session, pod, *args, **kwargs) for pod in several(pods, "pods")
        )

    return method


class EvaluateStream:
    """Evaluate pods over one long-lived call, which is cheaper than a call for each pod.

    ::

        with client.stream_evaluate_pods() as stream:
            evaluation = stream.evaluate_pod(pod, top_k=1)
            for outcome in stream.evaluate_pods(pods):
                ...

    An evaluation that fails ends only itself. When the server goes away, the next one is called,
    and pending evaluations are retried there for as long as `evaluate_pod` is. Each evaluation has
    a trace of its own, which its response names.

    Threads may share a stream, though one for each thread is quicker. The server uses a thread for
    each stream, too.
    """

    def __init__(self, session: ClientSession, stream_session: StreamSession, window: int) -> None:
        self._session = session
        self._stream_session = stream_session
        self._window = window
        self._closed = threading.Event()
        stream_session.on_close = self._closed.set

    def __del__(self) -> None:
        # Its reader would wait for ever.
        if hasattr(self, "_stream_session"):
            self._stream_session.close()

    evaluate_pod = _evaluating(decisions.evaluate_pod)
    evaluate_pods = _evaluating_all(decisions.evaluate_pod)

    def close(self) -> None:
        """End the stream; evaluations under way fail."""
        self._stream_session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _evaluate(self, operation: Operation[EvaluatePodResponse]) -> EvaluatePodResponse:
        """Run one evaluation and wait for its response."""
        done = _locked()
        evaluation = self._stream_session.start(operation, done.release)
        self._ensure_reader()
        self._wait(evaluation, done)
        return evaluation.result()

    def _evaluate_all(
        self, operations: Iterable[Operation[EvaluatePodResponse]]
    ) -> Iterator[Outcome]:
        """Run several evaluations, as many at once as the window is wide."""
        pending: deque[tuple[PendingEvaluation, threading.Lock]] = deque()
        try:
            for operation in operations:
                done = _locked()
                pending.append((self._stream_session.try_start(operation, done.release), done))
                self._ensure_reader()
                if len(pending) == self._window:
                    yield self._outcome(pending)
            while pending:
                yield self._outcome(pending)
        finally:
            self._stream_session.discard(evaluation for evaluation, _ in pending)

    def _outcome(self, pending: deque[tuple[PendingEvaluation, threading.Lock]]) -> Outcome:
        self._wait(*pending[0])
        outcome = pending.popleft()[0].outcome
        assert outcome is not None, "the evaluation is done"
        return outcome

    def _wait(self, evaluation: PendingEvaluation, done: threading.Lock) -> None:
        """Wait for the outcome on a plain lock, which an interrupt leaves consistent."""
        try:
            timeout = min(evaluation.timeout, threading.TIMEOUT_MAX)
            if evaluation.outcome is None and not done.acquire(timeout=timeout):
                self._stream_session.time_out(evaluation)
        except BaseException:
            self._stream_session.discard((evaluation,))
            raise

    def _ensure_reader(self) -> None:
        """Start a thread that reads, unless one does.

        The caller's thread does not read: a KeyboardInterrupt within gRPC's code would leave gRPC's
        locks held, and the next user of them, such as the end of the process, would wait for ever.
        """
        if self._stream_session.needs_reader():
            arguments = (self._stream_session, self._closed)
            try:
                threading.Thread(target=_read, args=arguments, name="reader", daemon=True).start()
            except RuntimeError as error:
                # The interpreter ends, or the process has all the threads that it may have.
                self._stream_session.close(f"there is no thread to read the answers: {error}")


def _locked() -> threading.Lock:
    done = threading.Lock()
    done.acquire()
    return done


def _read(stream_session: StreamSession, closed: threading.Event) -> None:
    """Read responses until nothing is pending."""
    if not stream_session.claim_reader():
        return
    try:
        _read_calls(stream_session, closed)
    except BaseException as error:
        # Without a reader, evaluations would wait in vain.
        stream_session.close(f"the stream cannot be read any more: {error!r}: open another one")
        raise


def _read_calls(stream_session: StreamSession, closed: threading.Event) -> None:
    while (call := stream_session.next_call()) is not None:
        if isinstance(call, float):
            closed.wait(call)
            continue
        try:
            for message in call.rpc:
                stream_session.on_response(call, message)
        except grpc.RpcError as failed:
            stream_session.on_end(call, cast("GrpcFailure", failed))
        else:
            stream_session.on_end(call, None)
