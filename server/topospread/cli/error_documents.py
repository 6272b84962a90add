"""Complaints as ``-o json`` has them."""

from __future__ import annotations

from typing import Any

import click

from topospread.cli import structures
from topospread.cli.complaints import (
    BAD_INPUT,
    MAX_LINES,
    CallsFailed,
    Unreachable,
    code_of,
    printable,
)
from topospread_client import (
    DeadlineExceeded,
    InvalidRequest,
    NotSupported,
    TopospreadClientError,
)


def plain(reason: str, message: str) -> dict[str, Any]:
    """An error that is none of a call."""
    return {"reason": reason, "message": printable(message)}


def of(complaint: click.ClickException) -> dict[str, Any]:
    """A complaint of ours or of click's."""
    message = complaint.format_message().rstrip()
    if not isinstance(complaint, CallsFailed):
        reason = "BAD_USAGE" if isinstance(complaint, click.UsageError) else "BAD_INPUT"
        return plain("OUT_OF_REACH" if isinstance(complaint, Unreachable) else reason, message)
    first = complaint.failed[0].error
    made: dict[str, Any] = {}
    if first.code is not None:
        made["code"] = first.code.name
    made |= plain(_reason(first), message)
    if first.metadata:
        made["metadata"] = {key: printable(text) for key, text in first.metadata.items()}
    if first.retry_after is not None:
        made["retryAfter"] = structures.seconds(first.retry_after)
    violations = [
        {
            **(structures.plain(each.subject) if each.subject else {}),
            **structures.plain(violation),
        }
        for each in complaint.failed
        if isinstance(each.error, InvalidRequest)
        for violation in each.error.violations
    ]
    if violations:
        made["violations"] = violations[:MAX_LINES]
    return made


def _reason(error: TopospreadClientError) -> str:
    """What the server gave; else what it would have given, or a word of this program's."""
    if error.reason:
        return error.reason
    if isinstance(error, DeadlineExceeded):
        return "DEADLINE_EXCEEDED"
    if isinstance(error, NotSupported):
        return "METHOD_NOT_SERVED"
    return "BAD_INPUT" if code_of(error) == BAD_INPUT else "OUT_OF_REACH"
