"""`topospread delete`: remove objects from a cluster's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import completing, documents, objects, printing, steps, structures
from topospread.cli.complaints import BAD_INPUT, DONE
from topospread.cli.inputs import input_options
from topospread.cli.kinds import kinds_named, path_of
from topospread.cli.options import Options, output_option, pass_options, server_options
from topospread_client import Kind, ObjectOutcome, ObjectReference, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import ApplyObjectsResponse, DeleteObjectsResponse, ObjectResult
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

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
            ObjectReference(each, name, None if each is Kind.NODE else namespace)
            for each in kinds_named(kind)
            for name in names
        ]
    else:
        found = objects.to_keep(documents.read(paths, recursive=recursive), namespace)
        objects.say_skipped(found.skipped, _LEFT_OUT)
        references = [_reference(made) for _, made in found.kept]
    with options.client() as client, steps.told("deleting", "deleted") as progress:
        written = client.delete_objects(references, force=force, progress=progress)
    return _print(written, options, ignore_not_found=ignore_not_found)


def _reference(made: ClusterObject) -> ObjectReference:
    kind = kind_of(made)
    if kind is None:
        raise AssertionError("manifests give no empty objects")
    metadata = getattr(made, kind.field).metadata
    return ObjectReference(kind, metadata.name, metadata.namespace)


def _print(written: DeleteObjectsResponse, options: Options, *, ignore_not_found: bool) -> int:
    form = options.output
    if form in {"json", "yaml"}:
        show_results(written, options)
    else:
        for each in written.results:
            printing.say(f"{path_of_result(each)} {structures.words(each.outcome)}")
    if form == "table" and written.results:
        printing.fields([("revision", written.revision), ("trace", written.trace_id)])
    missing = any(each.outcome is ObjectOutcome.NOT_FOUND for each in written.results)
    return BAD_INPUT if missing and not ignore_not_found else DONE


def show_results(
    written: ApplyObjectsResponse | DeleteObjectsResponse, options: Options, **more: object
) -> None:
    """Print what became of each object of a write."""
    answer = structures.plain(written)
    items = answer.pop("results")
    structures.show(
        "ObjectResultList", options.output, cluster=options.cluster, **more, **answer, items=items
    )


def path_of_result(result: ObjectResult) -> str:
    """The object of a result, as kubectl prints it."""
    return path_of(result.kind, result.namespace, result.name)
