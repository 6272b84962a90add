"""`python -m tests.conformance`: compare a server's answers with those of a real kube-scheduler."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import orjson

from tests.conformance.comparisons import (
    args_case,
    cluster_cases,
    decision_case,
    fit_counts_result,
    fit_error_case,
    validation_case,
)
from tests.conformance.recordings import (
    CaseResult,
    Record,
    RecordedCase,
    RecordedDecisions,
    RecordKind,
    files_with_cases,
    records,
    report_lines,
)
from tests.conformance.temporary import temporary_cluster, temporary_server
from topospread.cli import output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.main import CONTEXT_SETTINGS, run
from topospread.cli.options import (
    ClientOptions,
    naming_address,
    pass_given_options,
    server_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    from topospread_client import Connection


_DIFFERS: Final = 1
_PATH: Final = click.Path(path_type=Path)


@click.command("conformance", context_settings=CONTEXT_SETTINGS)
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE...")
@click.option("--store", metavar="URL", help="Store of the temporary server  [default: memory:]")
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Clusters at once."
)
@click.option("--case", "only", multiple=True, metavar="NAME", help="Only the case of this name.")
@click.option(
    "--cases",
    "elsewhere",
    multiple=True,
    type=_PATH,
    metavar="FILE",
    help="Recording that holds the cases which FILE names; those near FILE are found.",
)
@server_options
@pass_given_options
def command(
    options: ClientOptions,
    files: Sequence[Path],
    store: str | None,
    jobs: int,
    only: Sequence[str],
    elsewhere: Sequence[Path],
) -> int:
    """Ask a server what was recorded of a real kube-scheduler, and print what differs.

    FILE, plain or gzip, holds decisions, a large cluster with incoming pods, validations of pods or
    of plugin arguments, or messages on pods that fit nowhere. Everything goes through gRPC, in
    clusters named conf-RANDOM that are deleted afterwards: on a server of its own, or on the one
    that --address names.
    """
    if store and options.address:
        raise click.UsageError("--store is for a temporary server: give it or --address")
    found = [case for path in files for case in _cases(path, elsewhere) if _selected(case, only)]
    if not found:
        raise BadInput("no such case: check --case" if only else "no case in these files")
    cases = [each for each in found if isinstance(each, RecordedCase)]
    passed: Counter[bool] = Counter()
    for result in found:
        if isinstance(result, CaseResult):
            _report(result, passed)
    if cases:
        with (
            _terminable(),
            _server(options, store) as connection,
            naming_address(connection.address),
            output.progress("asking") as progress,
        ):
            for result in _run(cases, connection, jobs, options.timeout):
                _report(result, passed)
                progress(passed.total(), len(found))
    click.echo(f"{passed[True]} passed, {passed[False]} failed")
    return _DIFFERS if passed[False] else DONE


def _cases(path: Path, elsewhere: Sequence[Path]) -> Iterator[RecordedCase | CaseResult]:
    decisions = RecordedDecisions([*elsewhere, *files_with_cases(path)])
    for record in records(path):
        yield from _of_record(record, decisions)


def _of_record(record: Record, decisions: RecordedDecisions) -> Iterator[RecordedCase | CaseResult]:
    match record.kind:
        case RecordKind.CLUSTER:
            yield from cluster_cases(record)
        case RecordKind.DECISION:
            yield decision_case(record)
        case RecordKind.VALIDATION:
            yield validation_case(record)
        case RecordKind.ARGS:
            yield args_case(record)
        case RecordKind.FIT_ERROR:
            yield fit_error_case(record, decisions)
        case RecordKind.FIT_COUNTS:
            yield fit_counts_result(record)


def _selected(case: RecordedCase | CaseResult, only: Sequence[str]) -> bool:
    return not only or case.name in only


def _report(result: CaseResult, passed: Counter[bool]) -> None:
    passed[result.passed] += 1
    for line in report_lines(result):
        click.echo(line)


@contextmanager
def _server(options: ClientOptions, store: str | None) -> Iterator[Connection]:
    """The server at --address, or a temporary one."""
    if options.address:
        yield options.connection()
        return
    with temporary_server(store or "memory:") as connection:
        yield connection


def _run(
    cases: Sequence[RecordedCase], connection: Connection, jobs: int, timeout: float
) -> Iterator[CaseResult]:
    """Run cases, those about one cluster together; clusters are deleted also on the way out."""
    stopped = threading.Event()

    def ask(about: Sequence[RecordedCase]) -> list[CaseResult]:
        if stopped.is_set():
            return []
        with temporary_cluster(connection, about[0].cluster, timeout) as loaded:
            return [case.run(loaded) for case in about if not stopped.is_set()]

    with ThreadPoolExecutor(jobs, "conformance") as pool:
        try:
            # Not as_completed(): interrupted, it may keep the locks of futures, and pools wait.
            for results in pool.map(ask, _by_cluster(cases)):
                yield from results
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _by_cluster(cases: Iterable[RecordedCase]) -> list[list[RecordedCase]]:
    """Cases about equal clusters, in the order of the first of each."""
    keys: dict[int, bytes] = {}
    groups: dict[bytes, list[RecordedCase]] = {}
    for case in cases:
        identity = id(case.cluster)
        if identity not in keys:
            keys[identity] = orjson.dumps(case.cluster, option=orjson.OPT_SORT_KEYS)
        groups.setdefault(keys[identity], []).append(case)
    return list(groups.values())


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does: with temporary clusters deleted."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise click.Abort

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(run(command=command, name="python -m tests.conformance"))
