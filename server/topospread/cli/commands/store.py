"""`topospread store`: back a store up, restore and check it, and accept what it holds."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, BadInput, Unreachable
from topospread.cli.options import (
    ClientOptions,
    complete_files,
    output_option,
    pass_given_options,
    pass_options,
    server_options,
)
from topospread.errors import StoreUnavailable, TopospreadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.app.store_backup import ClusterRestoration
    from topospread.app.store_check import ClusterCheck, StoreCheck
    from topospread.store.api import MaintainedStore

_C = TypeVar("_C", bound="Callable[..., Any]")

NOT_SOUND: Final = 1

_NO_CLUSTER: Final = (
    "the store holds no cluster. A copy of a running server's file lacks what is still in its "
    "-wal: `topospread store backup` saves all of it"
)


@click.group("store", short_help="Back up, restore and check a store.")
def command() -> None:
    """Back up, restore and check a store, and decide what a server cannot decide by itself.

    `accept` asks a server; the others open the store itself, whether servers run on it or not.
    """


def store_options(command: _C) -> _C:
    """Add ``address`` and ``clusters``: which store, and which clusters of it."""
    command = click.option(
        "--cluster",
        "clusters",
        multiple=True,
        metavar="NAME",
        help="Only this cluster; may be given several times.  [default: all]",
    )(command)
    command = click.option("--config", metavar="FILE", help="The servers' configuration file.")(
        command
    )
    return click.option(
        "--store",
        "address",
        metavar="URL",
        help="The store, as `serve` has it: TOPOSPREAD_STORE and a configuration file count, too.",
    )(command)


@command.command("backup")
@click.argument("file", shell_complete=complete_files)
@store_options
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@output_option
@pass_given_options
def backup(
    options: ClientOptions,
    file: str,
    address: str | None,
    config: str | None,
    clusters: tuple[str, ...],
    overwrite: bool,
) -> int:
    """Write clusters into FILE, each as it is at one moment.

    Servers go on meanwhile. The file fits any kind of store. It has objects and reservations, not
    the change log, leases and tokens of callers. What cannot be read is left out and makes the exit
    code 1.
    """
    from topospread.app.store_backup import back_up

    if file == "-":
        raise BadInput("a backup is read again once it is written: name a file, not -")
    with _opened(address, config, must_exist=True) as store, _naming(file, "written"):
        saved = back_up(store, Path(file), _distinct(clusters), overwrite=overwrite)
        where = store.address
    if options.output in {"json", "yaml"}:
        documents.show("StoreBackup", options.output, store=where, file=file, clusters=saved)
    elif options.output == "name":
        output.echo(file)
    else:
        rows = [[each.name, each.object_count, each.revision] for each in saved]
        output.table(["CLUSTER", "#OBJECTS", "REVISION"], rows)
    for each in saved:
        for name in each.unreadable:
            output.warn(f"cluster {each.name}: {name} cannot be read and is not in the backup")
    if not saved:
        output.warn(f"the backup is empty: {_NO_CLUSTER}")
    return NOT_SOUND if any(each.unreadable for each in saved) else DONE


@command.command("restore")
@click.argument("file", shell_complete=complete_files)
@store_options
@click.option("--replace", is_flag=True, help="Give up clusters that are there for FILE's.")
@output_option
@pass_given_options
def restore(
    options: ClientOptions,
    file: str,
    address: str | None,
    config: str | None,
    clusters: tuple[str, ...],
    replace: bool,
) -> int:
    """Make the clusters of a backup anew, each in one step.

    FILE is read to its end first: nothing is written from one that was cut or altered. A restored
    cluster is a new history: servers that run on the store load it, and callers' revisions, cycles
    and page tokens from before are refused. Reservations that have ended since are left out.
    """
    from topospread.app.store_backup import Backup

    done: list[ClusterRestoration] = []
    with ExitStack() as opened:
        source = opened.enter_context(_input(file))
        # Before the store, which is made where there is none.
        with _store_errors():
            saved = Backup(source, file, _distinct(clusters))
        store = opened.enter_context(_opened(address, config))
        try:
            saved.restore_into(store, done.append, replace=replace)
        except (TopospreadError, KeyboardInterrupt):
            if done:
                _early_end([each.name for each in done], [each.name for each in saved.clusters])
            raise
        where = store.address
    if options.output in {"json", "yaml"}:
        documents.show("StoreRestoration", options.output, store=where, file=file, clusters=done)
    elif options.output == "name":
        for each in done:
            output.echo(f"cluster/{each.name}")
    else:
        rows = [[each.name, each.object_count, each.revision] for each in done]
        output.table(["CLUSTER", "#OBJECTS", "REVISION"], rows)
    return DONE


@command.command("check")
@store_options
@output_option
@pass_given_options
def check(
    options: ClientOptions, address: str | None, config: str | None, clusters: tuple[str, ...]
) -> int:
    """Read all that servers would read, and compare it with the change log.

    Servers go on meanwhile. Problems make the exit code 1.
    """
    from topospread.app.store_check import check_store

    with _opened(address, config, must_exist=True) as store:
        found = check_store(store, _distinct(clusters))
    if options.output in {"json", "yaml"}:
        documents.show("StoreCheck", options.output, answer=found)
    elif options.output == "name":
        for each in found.clusters:
            output.echo(f"cluster/{each.name}")
    else:
        _print_check(found)
    return DONE if found.sound else NOT_SOUND


@command.command("accept")
@click.option(
    "--store-identity",
    required=True,
    metavar="ID",
    help="Of the store that is accepted: `topospread status -o json` tells it.",
)
@server_options
@output_option
@pass_options
def accept(options: ClientOptions, store_identity: str) -> int:
    """Take what the store holds now of a cluster as the truth.

    A server that finds its store emptied, restored from elsewhere or exchanged keeps what it knew
    and refuses writes (`status`: store changed), until this is said or every kind was replaced by a
    full list. It holds for all servers of the store. What they knew before is forgotten.
    """
    with options.client() as client:
        accepted = client.accept_store(options.cluster, store_identity)
    if options.output in {"json", "yaml"}:
        documents.show("StoreAcceptance", options.output, cluster=options.cluster, answer=accepted)
    elif options.output == "name":
        click.echo(options.cluster)
    else:
        output.fields([("cluster", options.cluster), ("revision", accepted.revision)])
    return DONE


@contextmanager
def _opened(
    address: str | None, config: str | None, *, must_exist: bool = False
) -> Iterator[MaintainedStore]:
    """The store that `serve` would open; its errors as those of the command line."""
    from topospread.app.stores import check_exists, open_store
    from topospread.config.loading import load_settings

    with _store_errors():
        settings = load_settings({"store": address, "config": config}, os.environ)
        if must_exist:
            check_exists(settings.store, os.environ)
        with closing(open_store(settings.store, os.environ, settings.wait_replicas)) as store:
            yield store


@contextmanager
def _store_errors() -> Iterator[None]:
    """Errors of a store, and of backups, as those of the command line."""
    try:
        yield
    except StoreUnavailable as error:
        raise Unreachable(str(error)) from error
    except TopospreadError as error:
        raise BadInput(*str(error).splitlines()) from error


@contextmanager
def _input(file: str) -> Iterator[Any]:
    with _naming(file, "read"), Path(file).open("rb") as source:
        yield source


@contextmanager
def _naming(file: str, done: str) -> Iterator[None]:
    """Errors of the system as those of a file that is written or read."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{file}: cannot be {done}: {error.strerror}") from error


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _early_end(done: Sequence[str], wanted: Sequence[str]) -> None:
    left = " ".join(f"--cluster {name}" for name in wanted if name not in done)
    output.warn(f"restored: {', '.join(done)}; the others are as they were: go on with {left}")


def _print_check(found: StoreCheck) -> None:
    output.fields([("store", found.store), ("format", found.format_version)])
    columns = ["CLUSTER", "STATE", "#NODES", "#PODS", "#WORKLOADS", "#RESERVATIONS", "#LOG"]
    if found.clusters:
        output.table(columns, map(_row, found.clusters))
    else:
        output.warn(_NO_CLUSTER)
    for problem in found.problems:
        output.warn(problem)
    for each in found.clusters:
        for problem in each.problems:
            output.warn(f"cluster {each.name}: {problem}")


def _row(each: ClusterCheck) -> list[object]:
    state = f"{len(each.problems)} problems" if each.problems else "ok"
    counts = (each.node_count, each.pod_count, each.workload_count, each.reservation_count)
    return [each.name, state, *counts, each.transaction_count]
