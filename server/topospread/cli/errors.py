"""Errors of the command line, their exit codes, and the lines on stderr that describe them."""

from __future__ import annotations

import re
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from topospread_client import (
    BadConnection,
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    RevisionUnavailable,
    ServerFault,
    TopospreadClientError,
    Unauthenticated,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_proto.v1.common_pb2 import PodReference

DONE: Final = 0
NO_NODE_FITS: Final = 1
BAD_INPUT: Final = 2
OUT_OF_REACH: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143

MAX_LINES: Final = 20
"""Messages of one kind that are printed; the rest is counted."""

MAX_CHARACTERS: Final = 4096
"""Length at which a message is cut; servers cut theirs at the same."""

# Control characters, those that turn the direction of text, ends of lines, halves of pairs.
_HIDDEN: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNPRINTABLE: Final = re.compile(rf"[\x00-\x1f{_HIDDEN}]")
UNPRINTABLE_IN_LINES: Final = re.compile(rf"[\x00-\x09\x0b-\x1f{_HIDDEN}]")

_GRPC_PORT: Final = "7946 unless the server was told otherwise; 7947 is for metrics and health"
_MISTAKES: Final = {
    "TLS_NOT_SERVED": (
        "does not speak TLS: leave out --tls and --tls-…, or name a server with TLS"
    ),
    "SERVER_CERTIFICATE_NOT_TRUSTED": (
        "has a certificate that is not trusted{why}: name the CA that issued it with --tls-ca"
    ),
    "SERVER_CERTIFICATE_FOR_OTHER_NAME": (
        "has a certificate for another name: if it is the right server, give --tls-server-name"
    ),
    "NOT_GRPC": f"speaks HTTP/1, and not gRPC: name the port for gRPC ({_GRPC_PORT})",
}
"""What is wrong with the options where a connection failed, by the client's reason."""

_NOT_VERIFIED: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([\w -]+)")

_CLOSED: Final = "CONNECTION_CLOSED"
_CLOSED_HINT: Final = (
    "one that speaks TLS needs --tls-ca, one that asks for client certificates --tls-cert and "
    "--tls-key"
)

_UNKNOWN_OUTCOME: Final = "; whether the call was carried out is not known"
"""How the client's errors go on of a write that a server may have received."""

_SYSTEM_ERROR: Final = re.compile(r"(?:connect|getsockopt)[^:]{0,100}: ([^:()]{1,100}) \(")

_CALLER_ERRORS: Final = (
    BadConnection,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    PermissionDenied,
    NotSupported,
    PreconditionFailed,
    RevisionUnavailable,
)


_OF_POD: Final = "pod.object."
"""Begins the paths of fields of a request's pod."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command that writes as Ctrl-C does."""


@contextmanager
def raising_sigterm() -> Iterator[None]:
    """Raise Terminated at SIGTERM, unless this process was started with it ignored."""
    ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
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


class BadInput(click.ClickException):
    """Input that cannot be used: messages become lines, and many are cut; advice stands behind."""

    def __init__(self, *messages: str, advice: str = "") -> None:
        super().__init__("\n".join([*at_most(messages), *filter(None, [advice])]))


class Unreachable(click.ClickException):
    """Something that this command needs is out of reach."""

    code = OUT_OF_REACH


@dataclass(frozen=True, slots=True)
class Subject:
    """The pod that an answer or an error is about, or the workload that makes it.

    `source` is where the manifest stood; empty for a pod of the state.
    """

    pod: PodReference
    kind: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that did not succeed, and what it was about: for people, and for programs.

    `path` is that of the pod in its manifest.
    """

    error: TopospreadClientError
    title: str = ""
    subject: Subject | None = None
    path: str = ""

    def line(self, text: str) -> str:
        """A message about it; the title names the pod, so that paths begin at its manifest."""
        below = text.removeprefix(_OF_POD)
        if self.path and below != text:
            below = f"{self.path}.{below}"
        return f"{self.title}: {below}" if self.title else text


class CallsFailed(click.ClickException):
    """Calls that did not succeed, each about one thing; at least one."""

    def __init__(self, failed: Sequence[FailedCall], address: str = "") -> None:
        self.failed = failed
        self.code = max(exit_code_of(each.error) for each in failed)
        lines = [each.line(text) for each in failed for text in messages_of(each.error, address)]
        super().__init__("\n".join(lines))


def raise_failed(failed: Sequence[FailedCall]) -> None:
    """Raise the calls that did not succeed, if there are any."""
    if failed:
        raise CallsFailed(failed)


def as_click_exception(
    error: click.ClickException | TopospreadClientError | UnicodeEncodeError,
) -> click.ClickException:
    """An error of a command as click raises it: with a message and an exit code."""
    if isinstance(error, UnicodeEncodeError):
        return BadInput(f"{error.object!r} is not UTF-8, as names and texts must be")
    return error if isinstance(error, click.ClickException) else CallsFailed([FailedCall(error)])


def message_of(error: click.ClickException) -> str:
    """Message of an error of this command or of click's."""
    text = error.format_message().rstrip()
    # click writes choices on lines of their own, with tabs.
    return " ".join(text.split()) if isinstance(error, click.MissingParameter) else text


def error_line(error: click.ClickException) -> str:
    """The lines on stderr for an error of this command or of click's."""
    text = message_of(error)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "topospread"
        text = f"{text.rstrip('.')} (see `{path} --help`)"
    return "\n".join(f"topospread: {printable(part)}" for part in text.split("\n"))


def messages_of(error: TopospreadClientError, address: str = "") -> Sequence[str]:
    """Messages for an error of a call: one, or one for each violation."""
    at = f" at {address}" if address else ""
    if isinstance(error, InvalidRequest) and error.violations:
        return at_most([violation.text for violation in error.violations])
    if isinstance(error, Unavailable) and not error.reached:
        text, unknown, more = str(error).partition(_UNKNOWN_OUTCOME)
        if error.reason in _MISTAKES:
            found = _NOT_VERIFIED.search(text)
            mistake = _MISTAKES[error.reason].format(why=f" ({found[1]})" if found else "")
            return [f"the server{at} {mistake}{unknown}{more}"]
        closed = error.reason == _CLOSED
        reason = "the connection is closed" if closed else _network_reason(text)
        advice = _CLOSED_HINT if closed else _without_server()
        return [f"no server answers{at} ({reason}): {advice}{unknown}{more}"]
    if isinstance(error, Unavailable):
        return [f"the server{at} cannot answer now: {error}"]
    if isinstance(error, DeadlineExceeded):
        return [f"the server{at} did not answer in time: try again, or give more with --timeout"]
    if isinstance(error, ServerFault):
        trace = f" (trace {error.traceparent.split('-')[1]})" if error.traceparent else ""
        return [f"the server{at} failed: {error}{trace}: its log says more"]
    if isinstance(error, Unauthenticated):
        return [f"{error}: name a token with --token-file or TOPOSPREAD_TOKEN"]
    if isinstance(error, NotSupported):
        return [f"the server{at} does not have this call: it is another one, or an older version"]
    return [str(error)]


def exit_code_of(error: TopospreadClientError) -> int:
    """Exit code for an error of a call."""
    mistaken = isinstance(error, _CALLER_ERRORS) or error.reason in _MISTAKES
    return BAD_INPUT if mistaken else OUT_OF_REACH


def printable(text: str) -> str:
    """Text of an input, cut and escaped: it neither fills a terminal nor moves its cursor."""
    short = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], short)


def at_most(messages: Sequence[str]) -> Sequence[str]:
    """The first messages, and how many more there are."""
    if len(messages) <= MAX_LINES:
        return messages
    return [*messages[:MAX_LINES], f"… and {len(messages) - MAX_LINES} more"]


def _without_server() -> str:
    context = click.get_current_context(silent=True)
    options = context.command.params if context else ()
    if any("--from" in option.opts for option in options):
        return (
            "start one with `topospread serve`, name another with --address, or read the cluster "
            "itself with --from kubeconfig"
        )
    return "start one with `topospread serve`, or name another with --address"


def _network_reason(text: str) -> str:
    """The system's error message out of gRPC's chain of errors: ``Connection refused``."""
    found = _SYSTEM_ERROR.search(text)
    if found:
        return found.group(1).strip()
    last = text.rsplit(": ", 1)[-1].strip(" ()[]{}")
    return last if last not in {"", "OK"} else "unreachable"
