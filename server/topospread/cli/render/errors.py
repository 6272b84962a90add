"""Rendering of errors for ``-o json``."""

from __future__ import annotations

import json
from typing import Any

import click

from topospread.cli import documents
from topospread.cli.errors import (
    BAD_INPUT,
    MAX_LINES,
    CallsFailed,
    Unreachable,
    exit_code_of,
    message_of,
    printable,
)
from topospread_client import (
    DeadlineExceeded,
    InvalidRequest,
    NotSupported,
    TopospreadClientError,
)


def print_error(error: click.ClickException) -> None:
    """Print an error of this command or of click's as a document: the last line on stderr."""
    click.echo(json.dumps(documents.document("Error", error=_error(error))), err=True)


def _error(error: click.ClickException) -> dict[str, Any]:
    message = message_of(error)
    if not isinstance(error, CallsFailed):
        reason = "BAD_USAGE" if isinstance(error, click.UsageError) else "BAD_INPUT"
        return _plain("OUT_OF_REACH" if isinstance(error, Unreachable) else reason, message)
    first = error.failed[0].error
    content: dict[str, Any] = {}
    if first.code is not None:
        content["code"] = first.code.name
    content |= _plain(_reason(first), message)
    if first.metadata:
        content["metadata"] = {key: printable(text) for key, text in first.metadata.items()}
    if first.retry_after is not None:
        content["retryAfter"] = documents.seconds(first.retry_after)
    violations = [
        {
            **(documents.plain(each.subject) if each.subject else {}),
            **documents.plain(violation),
        }
        for each in error.failed
        if isinstance(each.error, InvalidRequest)
        for violation in each.error.violations
    ]
    if violations:
        content["violations"] = violations[:MAX_LINES]
    return content


def _plain(reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "message": "\n".join(map(printable, message.split("\n")))}


def _reason(error: TopospreadClientError) -> str:
    """Reason that the server gave, or would have given; else one of this program's."""
    if error.reason:
        return error.reason
    if isinstance(error, DeadlineExceeded):
        return "DEADLINE_EXCEEDED"
    if isinstance(error, NotSupported):
        return "METHOD_NOT_SERVED"
    return "BAD_INPUT" if exit_code_of(error) == BAD_INPUT else "OUT_OF_REACH"
