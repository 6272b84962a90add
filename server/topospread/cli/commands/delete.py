"""`topospread delete`: remove objects from a cluster's state, or a cluster as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import manifest_files
from topospread.cli.errors import BAD_INPUT, DONE
from topospread.cli.kinds import STORED, complete_kinds, is_cluster, objects_named
from topospread.cli.manifest_objects import reference_of, storable_objects, warn_skipped
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.render import writes
from topospread.cli.request_options import input_options, validation_option
from topospread_client import ObjectOutcome, ObjectReference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.field_validation import FieldValidation

_SKIPPED_KINDS: Final = "kinds that a server does not keep"


@click.command("delete", short_help="Remove objects or a cluster.")
@click.argument("kind", required=False, metavar="[KIND|KIND/NAME]", shell_complete=complete_kinds)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@validation_option
@click.option("--force", is_flag=True, help="Remove also what is newer than the given version.")
@click.option("--ignore-not-found", is_flag=True, help="Absent objects are no mistake.")
@click.option("--yes", is_flag=True, help="Delete a cluster without asking.")
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    kind: str | None,
    names: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    validation: FieldValidation,
    force: bool,
    ignore_not_found: bool,
    yes: bool,
) -> int:
    """Remove objects that are named, or that stand in files, from the cluster's state.

    Either KIND NAME..., KIND/NAME... or -f PATH. Objects that are not there make the exit code 2.

    `delete cluster NAME`, or cluster/NAME, removes a cluster with everything that is known of it,
    and asks for its name again first.
    """
    word, slash, first = (kind or "").partition("/")
    if is_cluster(word) and (names or slash):
        from topospread.cli.cluster_deletion import delete_cluster

        if paths:
            raise click.UsageError("a cluster is deleted as a whole: leave -f out")
        names = [first, *names] if slash else names
        return delete_cluster(options, names, confirmed=yes, ignore_not_found=ignore_not_found)
    if bool(kind) == bool(paths) or (kind and not names and "/" not in kind):
        raise click.UsageError("say what to delete: either KIND NAME..., KIND/NAME... or -f PATH")
    if kind:
        references = [
            ObjectReference(each.stored_kind, each.name, each.namespace)
            for each in objects_named(kind, names, namespace, STORED)
        ]
    else:
        manifests = manifest_files.read(paths, recursive=recursive)
        found = storable_objects(manifests, validation, namespace)
        warn_skipped(found.skipped, _SKIPPED_KINDS)
        references = [reference_of(each) for _, each in found.objects]
    with options.client() as client, writes.write_progress("deleting", "deleted") as progress:
        deleted = client.delete_objects(references, force=force, progress=progress)
    writes.print_deleted(deleted, options)
    missing = any(each.outcome is ObjectOutcome.NOT_FOUND for each in deleted.results)
    return BAD_INPUT if missing and not ignore_not_found else DONE
