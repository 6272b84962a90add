"""Rendering of writes: progress, what was written before an early end, and the results."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from topospread.cli import documents, output
from topospread.cli.errors import BAD_INPUT, MAX_LINES, exit_code_of, raising_sigterm
from topospread.cli.kinds import LABELS, NUMBERS, object_name, path_of
from topospread.cli.output import Column
from topospread_client import TopospreadClientError
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.cli.options import ClientOptions

    _Written: TypeAlias = pb.ApplyObjectsResponse | pb.DeleteObjectsResponse

_OUTCOMES: Final = (
    pb.OBJECT_OUTCOME_CREATED,
    pb.OBJECT_OUTCOME_UPDATED,
    pb.OBJECT_OUTCOME_UNCHANGED,
    pb.OBJECT_OUTCOME_IGNORED_STALE,
)
_KIND: Final = Column("KIND", lambda kind: kind)
_REPLACED: Final = (
    Column("KIND", lambda item: item[0]),
    Column("#CREATED", lambda item: item[1].created_count),
    Column("#UPDATED", lambda item: item[1].updated_count),
    Column("#UNCHANGED", lambda item: item[1].unchanged_count),
    Column("#IGNORED STALE", lambda item: item[1].ignored_stale_count),
    Column("#DELETED", lambda item: item[1].deleted_count),
)


@contextmanager
def write_progress(
    doing: str, done_word: str, *, unit: str = "objects"
) -> Iterator[Callable[[int, int], None]]:
    """Progress of a write in steps; an early end prints how much was written and how to go on."""
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
    response: pb.ApplyObjectsResponse,
    options: ClientOptions,
    skipped: Mapping[str, int],
    not_in_input: Mapping[str, int],
) -> None:
    """Print the results of `apply`, and their warnings.

    Beside them, the number of objects of each kind that is not stored, and of the state's other
    objects, of kinds of which the input looks whole.
    """
    counted = Counter((LABELS[each.kind], each.outcome) for each in response.results)
    present = {kind for kind, _ in counted}

    def column(outcome: pb.ObjectOutcome.ValueType) -> Column:
        heading = documents.words(documents.value_name(pb.ObjectOutcome, outcome)).upper()
        return Column(f"#{heading}", lambda kind: counted[kind, outcome])

    def table() -> None:
        columns = (_KIND, *map(column, _OUTCOMES))
        output.print_items(columns, (kind for kind in NUMBERS if kind in present))
        _print_state(response)

    _show_results(
        response,
        options,
        table,
        map(_path, response.results),
        skipped=_kinds(skipped),
        not_in_input=_kinds(not_in_input),
    )
    _warn(response.results)


def _print_state(response: _Written) -> None:
    revision = ("revision", response.meta.revision)
    output.fields([revision, ("trace", documents.trace_id(response))])


def _kinds(counts: Mapping[str, int]) -> list[dict[str, object]]:
    return [{"kind": kind, "count": count} for kind, count in counts.items()]


def print_deleted(response: pb.DeleteObjectsResponse, options: ClientOptions) -> None:
    """Print the results of `delete`."""

    def table() -> None:
        for each in response.results:
            output.echo(_outcome_text(each))
        if response.results:
            _print_state(response)

    gone = [each for each in response.results if each.outcome == pb.OBJECT_OUTCOME_DELETED]
    _show_results(response, options, table, map(_path, gone))
    if options.output == "name":
        for each in response.results:
            if each.outcome != pb.OBJECT_OUTCOME_DELETED:
                output.warn(_outcome_text(each))


def _outcome_text(result: pb.ObjectResult) -> str:
    outcome = documents.value_name(pb.ObjectOutcome, result.outcome)
    return f"{_path(result)} {documents.words(outcome)}"


def print_replaced(
    responses: Mapping[str, pb.ReplaceObjectsResponse],
    options: ClientOptions,
    objects: Iterable[pb.ClusterObject],
) -> None:
    """Print the results of `apply --replace` by kind, and their warnings."""
    *_, last = responses.values()

    def table() -> None:
        output.print_items(_REPLACED, responses.items())
        output.fields([("revision", last.meta.revision)])

    documents.present(
        options.output,
        "ReplacementList",
        table,
        (object_name(each).path for each in objects),
        cluster=options.cluster,
        items=(documents.joined({"kind": kind}, each) for kind, each in responses.items()),
    )
    for kind, response in responses.items():
        for warning in response.warnings:
            output.warn(f"warning: {kind}: {warning}")


def _warn(results: Sequence[pb.ObjectResult]) -> None:
    lines = [
        f"warning: {_path(result)}: {warning}" for result in results for warning in result.warnings
    ]
    for line in lines[:MAX_LINES]:
        output.warn(line)
    if len(lines) > MAX_LINES:
        output.warn(f"… and {len(lines) - MAX_LINES} more warnings")


def _show_results(
    response: _Written,
    options: ClientOptions,
    table: Callable[[], None],
    names: Iterable[str],
    **more: object,
) -> None:
    answer = {**documents.plain(response), "items": response.results}
    del answer["results"]
    documents.present(
        options.output,
        "ObjectResultList",
        table,
        names,
        cluster=options.cluster,
        **more,
        answer=answer,
    )


def _path(result: pb.ObjectResult) -> str:
    return path_of(result.kind, result.namespace, result.name)
