"""Rendering of writes: progress, what was written before an early end, and the results."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from topospread.cli import documents, output
from topospread.cli.errors import BAD_INPUT, MAX_LINES, exit_code_of, raising_sigterm
from topospread.cli.kinds import path_of
from topospread.cli.manifest_objects import reference_of
from topospread_client import Kind, ObjectOutcome, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.cli.options import ClientOptions
    from topospread_client import (
        ApplyObjectsResponse,
        DeleteObjectsResponse,
        ObjectResult,
        ReplaceObjectsResponse,
    )
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_OUTCOMES: Final = (
    ObjectOutcome.CREATED,
    ObjectOutcome.UPDATED,
    ObjectOutcome.UNCHANGED,
    ObjectOutcome.IGNORED_STALE,
)
_COUNTS: Final = (
    "created_count",
    "updated_count",
    "unchanged_count",
    "ignored_stale_count",
    "deleted_count",
)


@contextmanager
def write_progress(
    doing: str, done_word: str, *, unit: str = "objects"
) -> Iterator[Callable[[int, int], None]]:
    """Progress of a write in steps; an early end prints how much was written and how to go on.

    Args:
        doing: for example ``applying``, beside the bar.
        done_word: for example ``written``.
        unit: of the counts.
    """
    done, total = 0, 0

    def count(now: int, of: int) -> None:
        nonlocal done, total
        done, total = now, of
        show(now, of)

    with raising_sigterm():
        try:
            with output.progress(doing) as show:
                yield count
        except KeyboardInterrupt:
            # Another Ctrl-C must not suppress the message.
            with _signals_ignored():
                output.warn(_early_end(done, total, done_word, unit, certain=False))
            raise
        except TopospreadClientError as error:
            if done:
                certain = exit_code_of(error) == BAD_INPUT
                output.warn(_early_end(done, total, done_word, unit, certain=certain))
            raise


def _early_end(done: int, total: int, done_word: str, unit: str, *, certain: bool) -> str:
    if not total:
        first = f"of the first {unit} it is not known whether they are {done_word}"
        return f"{first}, no others are: the same command does the rest"
    text = f"{done} of {total} {unit} are {done_word}"
    if certain:
        return f"{text}, the others are not: put right what is wrong and repeat the command"
    unknown = "of those that were just sent it is not known, the others are not"
    return f"{text}, {unknown}: the same command does the rest"


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM."""
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


def print_applied(
    response: ApplyObjectsResponse,
    options: ClientOptions,
    skipped: Mapping[str, int],
    not_in_input: Mapping[Kind, int],
) -> None:
    """Print the results of `apply`, and their warnings.

    Args:
        response: of the server.
        options: form of output and cluster.
        skipped: number of objects of each kind that is not stored.
        not_in_input: number of the state's other objects, of kinds of which the input looks whole.
    """
    if options.output == "table":
        counted = Counter((result.kind, result.outcome) for result in response.results)
        present = {kind for kind, _ in counted}
        rows = [
            [kind.label, *(counted[kind, outcome] for outcome in _OUTCOMES)]
            for kind in Kind
            if kind in present
        ]
        columns = [f"#{documents.words(outcome).upper()}" for outcome in _OUTCOMES]
        output.table(["KIND", *columns], rows)
        output.fields([("revision", response.revision), ("trace", response.trace_id)])
    elif options.output == "name":
        for result in response.results:
            output.echo(_path(result))
    else:
        _dump_results(response, options, skipped=_kinds(skipped), not_in_input=_kinds(not_in_input))
    _warn(response.results)


def _kinds(counts: Mapping[str, int] | Mapping[Kind, int]) -> list[dict[str, object]]:
    return [{"kind": kind, "count": count} for kind, count in counts.items()]


def print_deleted(response: DeleteObjectsResponse, options: ClientOptions) -> None:
    """Print the results of `delete`."""
    if options.output in {"json", "yaml"}:
        _dump_results(response, options)
        return
    for each in response.results:
        line = f"{_path(each)} {documents.words(each.outcome)}"
        if options.output == "table":
            output.echo(line)
        elif each.outcome is ObjectOutcome.DELETED:
            output.echo(_path(each))
        else:
            output.warn(line)
    if options.output == "table" and response.results:
        output.fields([("revision", response.revision), ("trace", response.trace_id)])


def print_replaced(
    responses: Mapping[Kind, ReplaceObjectsResponse],
    options: ClientOptions,
    objects: Iterable[ClusterObject],
) -> None:
    """Print the results of `apply --replace`, and their warnings.

    Args:
        responses: of the server, by kind.
        options: form of output and cluster.
        objects: of the input.
    """
    revision = responses[list(responses)[-1]].revision
    if options.output == "table":
        columns = [f"#{documents.words(name.removesuffix('_count')).upper()}" for name in _COUNTS]
        rows = [
            [kind.label, *(getattr(response, name) for name in _COUNTS)]
            for kind, response in responses.items()
        ]
        output.table(["KIND", *columns], rows)
        output.fields([("revision", revision)])
    elif options.output == "name":
        for each in objects:
            named = reference_of(each)
            output.echo(path_of(named.kind, named.namespace, named.name))
    else:
        items = [
            {"kind": kind, **documents.plain(response)} for kind, response in responses.items()
        ]
        documents.show("ReplacementList", options.output, cluster=options.cluster, items=items)
    for kind, response in responses.items():
        for warning in response.warnings:
            output.warn(f"warning: {kind.label}: {warning}")


def _warn(results: Sequence[ObjectResult]) -> None:
    lines = [
        f"warning: {_path(result)}: {warning}" for result in results for warning in result.warnings
    ]
    for line in lines[:MAX_LINES]:
        output.warn(line)
    if len(lines) > MAX_LINES:
        output.warn(f"… and {len(lines) - MAX_LINES} more warnings")


def _dump_results(
    response: ApplyObjectsResponse | DeleteObjectsResponse, options: ClientOptions, **more: object
) -> None:
    answer = documents.plain(response)
    items = answer.pop("results")
    documents.show(
        "ObjectResultList", options.output, cluster=options.cluster, **more, **answer, items=items
    )


def _path(result: ObjectResult) -> str:
    return path_of(result.kind, result.namespace, result.name)
