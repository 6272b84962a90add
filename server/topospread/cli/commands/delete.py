"""`topospread delete`: remove objects from a cluster's state, or a cluster as a whole."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, manifest_files, output
from topospread.cli.errors import BAD_INPUT, DONE, BadInput
from topospread.cli.kinds import STORED, complete_kinds, is_cluster, object_name, objects_named
from topospread.cli.manifest_objects import storable_objects, warn_skipped
from topospread.cli.options import ClientOptions, server_verb
from topospread.cli.render import writes
from topospread.cli.request_options import input_options, validation_option
from topospread.wording import counted
from topospread_client import NotFound
from topospread_proto.v1.cluster_state_service_pb2 import (
    OBJECT_OUTCOME_NOT_FOUND,
    DeleteClusterRequest,
    ObjectReference,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.manifest_objects import FieldValidation
    from topospread.cli.options import ClientOptions


_SKIPPED_KINDS: Final = "kinds that a server does not keep"


@click.command("delete", short_help="Remove objects or a cluster.")
@click.argument("kind", required=False, metavar="[KIND|KIND/NAME]", shell_complete=complete_kinds)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@validation_option
@click.option("--force", is_flag=True, help="Remove also what is newer than the given version.")
@click.option("--ignore-not-found", is_flag=True, help="Absent objects are no mistake.")
@click.option("--yes", is_flag=True, help="Delete a cluster without asking.")
@server_verb
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
        if paths:
            raise click.UsageError("a cluster is deleted as a whole: leave -f out")
        names = [first, *names] if slash else names
        return _delete_cluster(options, names, confirmed=yes, ignore_not_found=ignore_not_found)
    if bool(kind) == bool(paths) or (kind and not names and "/" not in kind):
        raise click.UsageError("say what to delete: either KIND NAME..., KIND/NAME... or -f PATH")
    if kind:
        wanted = objects_named(kind, names, namespace, STORED)
    else:
        manifests = manifest_files.read(paths, recursive=recursive)
        found, skipped = storable_objects(manifests, validation, namespace)
        warn_skipped(skipped, _SKIPPED_KINDS)
        wanted = [object_name(each) for _, each in found]
    references = [
        ObjectReference(kind=each.number, namespace=each.namespace or "", name=each.name)
        for each in wanted
    ]
    with (
        options.server_client() as client,
        writes.write_progress("deleting", "deleted") as progress,
    ):
        deleted = client.delete_objects(references, force=force, progress=progress)
    writes.print_deleted(deleted, options)
    missing = any(each.outcome == OBJECT_OUTCOME_NOT_FOUND for each in deleted.results)
    return BAD_INPUT if missing and not ignore_not_found else DONE


def _delete_cluster(
    options: ClientOptions, names: Sequence[str], *, confirmed: bool, ignore_not_found: bool
) -> int:
    if len(names) != 1:
        raise click.UsageError("a cluster is deleted as a whole: name one at a time")
    (name,) = names
    if not confirmed:
        _ask(name)
    with options.client() as client:
        try:
            deleted = client.call("DeleteCluster", DeleteClusterRequest(cluster=name))
        except NotFound:
            if ignore_not_found:
                output.warn(f"cluster {name} is not there")
                return DONE
            raise
    path = f"cluster/{name}"
    documents.present(
        options.output,
        "ClusterDeletion",
        lambda: output.echo(f"{path} deleted, with {counted(deleted.object_count, 'object')}"),
        [path],
        cluster=name,
        answer=deleted,
    )
    return DONE


def _ask(name: str) -> None:
    if not sys.stdin.isatty():
        raise BadInput(
            f"cluster {name} would be deleted with all its objects and reservations: "
            "say --yes if that is meant"
        )
    question = f"Cluster {name} is deleted with all its objects and reservations. Type its name"
    if click.prompt(question, default="", show_default=False, err=True) != name:
        raise BadInput(f"that is not its name: cluster {name} is left as it is")
