"""`topospread apply`: write objects to a cluster's state."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.manifest_objects import reference_of, storable_objects, warn_skipped
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.render import unlisted, writes
from topospread.cli.request_options import input_options, validation_option
from topospread_client import Kind, ObjectOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.cli.field_validation import FieldValidation
    from topospread.cli.manifest_files import Manifest
    from topospread_client import ObjectReference, ReplaceObjectsResponse
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_SKIPPED_KINDS: Final = "kinds that spreading does not look at"


@click.command("apply", short_help="Write objects to the state.")
@input_options(required=True)
@validation_option
@click.option("--force", is_flag=True, help="Write also what is older than the stored version.")
@click.option(
    "--replace",
    is_flag=True,
    help="Make the input the full content of each kind in it: what it lacks is removed.",
)
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    validation: FieldValidation,
    force: bool,
    replace: bool,
) -> int:
    """Write nodes, pods and workloads from files to the cluster's state.

    Reads YAML and JSON as kubectl prints them or people write them: several documents, List kinds,
    directories, and - for standard input. Other kinds are counted and named as skipped.

    With --replace, input that may have been cut is refused: a page of a longer list, a file that
    ends within a line, and what comes through a pipe and does not show its own end, as one value of
    JSON, a List of kubectl or a last line `...` do. Without it nothing is removed; of a List that
    looks like a dump of all nodes or pods it is said how many others the state has.
    """
    try:
        # A bar would be drawn over what a person types.
        typed = manifest_files.STDIN in paths and sys.stdin.isatty()
        with nullcontext() if typed else output.progress("reading"):
            manifests = manifest_files.read(paths, recursive=recursive, whole=replace)
            found = storable_objects(manifests, validation, namespace)
            del manifests
    except KeyboardInterrupt:
        output.warn("nothing is written: the input was still being read")
        raise
    warn_skipped(found.skipped, _SKIPPED_KINDS)
    if not found.objects:
        output.warn("nothing to apply")
        return DONE
    objects = [each for _, each in found.objects]
    if replace:
        replaced = _replace(options, _full_lists(found.objects), force=force)
        writes.print_replaced(replaced, options, objects)
        return DONE
    with options.client() as client:
        with writes.write_progress("applying", "written") as progress:
            applied = client.apply_objects(objects, force=force, progress=progress)
        lacking = unlisted.not_in_dump(client, found.objects, applied.revision)
    writes.print_applied(applied, options, found.skipped, lacking)
    unlisted.warn(lacking)
    stale = applied.counts().get(ObjectOutcome.IGNORED_STALE, 0)
    if stale:
        output.warn(f"{stale} older than what is stored: --force writes them all the same")
    return DONE


def _replace(
    options: ClientOptions, lists: Mapping[Kind, Sequence[ClusterObject]], *, force: bool
) -> dict[Kind, ReplaceObjectsResponse]:
    responses: dict[Kind, ReplaceObjectsResponse] = {}
    replacing = writes.write_progress("replacing", "replaced", unit="kinds")
    with options.client() as client, replacing as progress:
        for kind in sorted(lists, key=list(Kind).index):
            responses[kind] = client.replace_objects(kind, lists[kind], force=force)
            progress(len(responses), len(lists))
    return responses


def _full_lists(
    found: Iterable[tuple[Manifest, ClusterObject]],
) -> dict[Kind, list[ClusterObject]]:
    """The objects of each kind, each once.

    Raises:
        BadInput: with those that are given twice, before a kind is replaced.
    """
    lists: dict[Kind, list[ClusterObject]] = {}
    first: dict[ObjectReference, Manifest] = {}
    twice: list[str] = []
    for manifest, each in found:
        named = reference_of(each)
        before = first.setdefault(named, manifest)
        if before is not manifest:
            twice.append(f"{manifest.title}: is in {before.source}, too")
        lists.setdefault(named.kind, []).append(each)
    if twice:
        raise BadInput(*twice, advice="with --replace, give each object once")
    return lists
