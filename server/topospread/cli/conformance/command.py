"""`topospread conformance`: ask a server what a real kube-scheduler was asked, and compare."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import orjson

from topospread.cli import printing
from topospread.cli.complaints import DONE, BadInput
from topospread.cli.conformance import report
from topospread.cli.conformance.cases import Case, Result
from topospread.cli.conformance.clusters import cluster_cases
from topospread.cli.conformance.decisions import decision_case
from topospread.cli.conformance.grounds import throw_away_cluster, throw_away_server
from topospread.cli.conformance.messages import (
    Named,
    files_with_cases,
    fit_counts_result,
    fit_error_case,
)
from topospread.cli.conformance.recordings import Record, Shape, records
from topospread.cli.conformance.refusals import args_case, validation_case
from topospread.cli.options import Options, pass_options, server_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    from topospread.cli.conformance.cases import Cluster
    from topospread_client import Connection

_DIFFERS: Final = 1
_PATH: Final = click.Path(path_type=Path)


@click.command("conformance", short_help="Compare with a recorded kube-scheduler.")
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE...")
@click.option("--store", metavar="URL", help="Store of the throw-away server  [default: memory:]")
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
@pass_options
def command(
    options: Options,
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
        raise click.UsageError("--store is for a throw-away server: give it or --address")
    found = [case for path in files for case in _cases(path, elsewhere) if _asked(case, only)]
    if not found:
        raise BadInput("no such case: check --case" if only else "no case in these files")
    settled = [each for each in found if isinstance(each, Result)]
    cases = [each for each in found if isinstance(each, Case)]
    tally: Counter[bool] = Counter()
    for result in settled:
        _say(result, tally)
    if cases:
        with (
            _terminable(),
            options.connected(),
            _server(options, store) as connection,
            printing.progress("asking") as progress,
        ):
            for result in _run(cases, connection, jobs, options.timeout):
                _say(result, tally)
                progress(tally.total(), len(found))
    click.echo(f"{tally[True]} passed, {tally[False]} failed")
    return _DIFFERS if tally[False] else DONE


def _cases(path: Path, elsewhere: Sequence[Path]) -> Iterator[Case | Result]:
    named = Named([*elsewhere, *files_with_cases(path)])
    for record in records(path):
        yield from _of_record(record, named)


def _of_record(record: Record, named: Named) -> Iterator[Case | Result]:
    match record.shape:
        case Shape.CLUSTER:
            yield from cluster_cases(record)
        case Shape.DECISION:
            yield decision_case(record)
        case Shape.VALIDATION:
            yield validation_case(record)
        case Shape.ARGS:
            yield args_case(record)
        case Shape.FIT_ERROR:
            yield fit_error_case(record, named)
        case Shape.FIT_COUNTS:
            yield fit_counts_result(record)


def _asked(case: Case | Result, only: Sequence[str]) -> bool:
    return not only or case.name in only


def _say(result: Result, tally: Counter[bool]) -> None:
    tally[result.passed] += 1
    for line in report.lines(result):
        click.echo(line)


@contextmanager
def _server(options: Options, store: str | None) -> Iterator[Connection]:
    """The server that was named, or one that lives as long as this command."""
    if options.address:
        yield options.connection()
        return
    with throw_away_server(store or "memory:") as connection:
        yield connection


def _run(
    cases: Sequence[Case], connection: Connection, jobs: int, timeout: float
) -> Iterator[Result]:
    """Run cases, those about one cluster together; a cluster is dropped also when this is left."""
    stopped = threading.Event()

    def ask(cluster: Cluster, about: Sequence[Case]) -> list[Result]:
        if stopped.is_set():
            return []
        with throw_away_cluster(connection, cluster, timeout) as ground:
            return [case.run(ground) for case in about if not stopped.is_set()]

    with ThreadPoolExecutor(jobs, "conformance") as pool:
        try:
            running = [pool.submit(ask, group[0].cluster, group) for group in _by_cluster(cases)]
            for done in as_completed(running):
                yield from done.result()
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _by_cluster(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases about equal clusters, in the order of the first of each."""
    keys: dict[int, bytes] = {}
    groups: dict[bytes, list[Case]] = {}
    for case in cases:
        identity = id(case.cluster)
        if identity not in keys:
            keys[identity] = orjson.dumps(case.cluster, option=orjson.OPT_SORT_KEYS)
        groups.setdefault(keys[identity], []).append(case)
    return list(groups.values())


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does: with throw-away clusters dropped."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise click.Abort

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
