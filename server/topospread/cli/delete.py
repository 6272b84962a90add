"""`topospread delete`: remove objects from a cluster's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import completing, documents, objects, printing, steps
from topospread.cli.complaints import BAD_INPUT, DONE
from topospread.cli.inputs import input_options
from topospread.cli.kinds import kinds_named, path_of
from topospread.cli.options import Options, output_option, pass_options, server_options
from topospread_client.answers import Kind, Outcome, Written
from topospread_client.requests import Reference, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_proto.v1.cluster_state_pb2 import Object

_LEFT_OUT: Final = "kinds that a server does not keep"


@click.command("delete", short_help="Remove objects from the state.")
@click.argument("kind", required=False, shell_complete=completing.kinds)
@click.argument("names", nargs=-1)
@input_options(required=False)
@click.option("--force", is_flag=True, help="Remove also what is newer than the given version.")
@click.option("--ignore-not-found", is_flag=True, help="Absent objects are no mistake.")
@server_options
@output_option
@pass_options
def command(
    options: Options,
    kind: str | None,
    names: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    force: bool,
    ignore_not_found: bool,
) -> int:
    """Remove objects that are named, or that stand in files, from the cluster's state.

    Either KIND NAME... or -f PATH. Objects that are not there make the exit code 2.
    """
    if bool(kind) == bool(paths) or (kind and not names):
        raise click.UsageError("say what to delete: either KIND NAME... or -f PATH")
    if kind:
        references = [
            Reference(each, name, "" if each is Kind.NODE else namespace or "default")
            for each in kinds_named(kind)
            for name in names
        ]
    else:
        found = objects.to_keep(documents.read(paths, recursive=recursive), namespace)
        objects.say_skipped(found.skipped, _LEFT_OUT)
        references = [_reference(made) for _, made in found.kept]
    with options.client() as client, steps.told("deleting", "deleted") as progress:
        written = client.delete(references, force=force, progress=progress)
    return _print(written, options.output, ignore_not_found=ignore_not_found)


def _reference(made: Object) -> Reference:
    kind = kind_of(made)
    if kind is None:
        raise AssertionError("manifests give no empty objects")
    metadata = getattr(made, kind.field).metadata
    return Reference(kind, metadata.name, metadata.namespace)


def _print(written: Written, form: str, *, ignore_not_found: bool) -> int:
    results = [(path_of(r.kind, r.namespace, r.name), r.outcome) for r in written.results]
    missing = [path for path, outcome in results if outcome is Outcome.NOT_FOUND]
    if form in {"json", "yaml"}:
        outcomes = {path: outcome.label for path, outcome in results}
        value = {"revision": written.revision, "traceId": written.trace_id, "results": outcomes}
        printing.structure(value, form)
    else:
        for path, outcome in results:
            printing.say(f"{path} {outcome.label}")
    if form == "table" and results:
        printing.fields([("revision", written.revision), ("trace", written.trace_id)])
    return BAD_INPUT if missing and not ignore_not_found else DONE
