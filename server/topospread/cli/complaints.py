"""What the command line says when something is wrong: what it is, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
    from collections.abc import Sequence

    from topospread.cli.subjects import Question, Subject

DONE: Final = 0
NO_NODE_FITS: Final = 1
BAD_INPUT: Final = 2
OUT_OF_REACH: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143

MAX_LINES: Final = 20
"""Complaints of one kind that are printed; the rest is counted."""

MAX_CHARACTERS: Final = 4096
"""Of one complaint; as many as a server says."""

# Control characters, those that turn the direction of text, ends of lines, halves of pairs.
_HIDDEN: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNPRINTABLE: Final = re.compile(rf"[\x00-\x1f{_HIDDEN}]")
UNPRINTABLE_IN_LINES: Final = re.compile(rf"[\x00-\x09\x0b-\x1f{_HIDDEN}]")

_SYSTEMS_WORDS: Final = re.compile(r"(?:connect|getsockopt)[^:]{0,100}: ([^:()]{1,100}) \(")

_CALLERS_FAULT: Final = (
    BadConnection,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    PermissionDenied,
    NotSupported,
    PreconditionFailed,
    RevisionUnavailable,
)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a verb that writes as Ctrl-C does."""


class BadInput(click.ClickException):
    """Input that cannot be used. Several findings become several lines."""

    def __init__(self, *findings: str) -> None:
        super().__init__("\n".join(_at_most(findings)))


class Unreachable(click.ClickException):
    """Something that this command needs is out of reach."""

    code = OUT_OF_REACH


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that did not succeed.

    Attributes:
        error: of the call.
        title: what it was about, for people; empty for the command as a whole.
        subject: the same for programs.
    """

    error: TopospreadClientError
    title: str = ""
    subject: Subject | None = None


class CallsFailed(click.ClickException):
    """Calls that did not succeed, each about one thing.

    Args:
        failed: at least one.
        address: that was called.
    """

    def __init__(self, failed: Sequence[Failed], address: str = "") -> None:
        self.failed = failed
        self.code = max(code_of(each.error) for each in failed)
        # The title says which pod it is: its own paths are those of its file.
        told = [
            f"{each.title}: {text.removeprefix('pod.object.')}" if each.title else text
            for each in failed
            for text in explained(each.error, address)
        ]
        super().__init__("\n".join(told))


class Refusals:
    """What a server refused of several pods that it was asked about."""

    def __init__(self) -> None:
        self._failed: list[Failed] = []

    def add(self, question: Question, error: TopospreadClientError) -> None:
        """One more."""
        self._failed.append(Failed(error, question.title, question.subject))

    def end(self) -> None:
        """Complain, when something was refused.

        Raises:
            CallsFailed: with all of them.
        """
        if self._failed:
            raise CallsFailed(self._failed)


def of(failed: click.ClickException | TopospreadClientError) -> click.ClickException:
    """What there is to complain about."""
    return failed if isinstance(failed, click.ClickException) else CallsFailed([Failed(failed)])


def line(complaint: click.ClickException) -> str:
    """A complaint of ours or of click's, ready to print."""
    text = complaint.format_message().rstrip()
    if isinstance(complaint, click.UsageError):
        path = complaint.ctx.command_path if complaint.ctx else "topospread"
        text = f"{text.rstrip('.')} (see `{path} --help`)"
    return prefixed(text)


def explained(error: TopospreadClientError, address: str = "") -> Sequence[str]:
    """An error of a call: one line, or one for each violation."""
    at = f" at {address}" if address else ""
    if isinstance(error, InvalidRequest) and error.violations:
        return _at_most([violation.text for violation in error.violations])
    if isinstance(error, Unavailable) and not error.reached:
        reason = _network_reason(str(error))
        advice = "start one with `topospread serve`, or name another with --address"
        return [f"no server answers{at} ({reason}): {advice}"]
    if isinstance(error, Unavailable):
        return [f"the server{at} cannot answer now: {error}"]
    if isinstance(error, DeadlineExceeded):
        return [f"the server{at} did not answer in time: try again, or give more with --timeout"]
    if isinstance(error, ServerFault):
        trace = f" (trace {error.traceparent.split('-')[1]})" if error.traceparent else ""
        return [f"the server{at} failed: {error}{trace}: its log says more"]
    if isinstance(error, NotSupported):
        return [f"the server{at} does not have this call: is it an older version?"]
    return [str(error)]


def code_of(error: TopospreadClientError) -> int:
    """The exit code for an error of a call."""
    return BAD_INPUT if isinstance(error, _CALLERS_FAULT) else OUT_OF_REACH


def prefixed(text: str) -> str:
    """Lines as this command says them on stderr."""
    return "\n".join(f"topospread: {printable(part)}" for part in text.split("\n"))


def printable(text: str) -> str:
    """Text out of an input, which must neither fill a terminal nor move its cursor."""
    short = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], short)


def _at_most(findings: Sequence[str]) -> Sequence[str]:
    if len(findings) <= MAX_LINES:
        return findings
    return [*findings[:MAX_LINES], f"… and {len(findings) - MAX_LINES} more"]


def _network_reason(text: str) -> str:
    """The system's own words out of gRPC's chain of errors, for example ``Connection refused``."""
    found = _SYSTEMS_WORDS.search(text)
    if found:
        return found.group(1).strip()
    return text.rsplit(": ", 1)[-1].strip(" ()[]{}") or "unreachable"
