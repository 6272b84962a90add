"""`topospread apply`: write objects to a cluster's state."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.input_files import STDIN
from topospread.cli.kinds import NODE, NUMBERS, OBJECTS, POD, ObjectName, object_name
from topospread.cli.manifest_objects import storable_objects, warn_not_stored
from topospread.cli.options import ClientOptions, server_verb
from topospread.cli.render import writes
from topospread.cli.request_options import input_options, validation_option
from topospread.kube.versions import oldest_version
from topospread.wording import counted
from topospread_client import TopospreadClientError
from topospread_proto.v1.cluster_state_service_pb2 import (
    OBJECT_OUTCOME_IGNORED_STALE,
    GetClusterRequest,
)
from topospread_proto.v1.common_pb2 import Consistency

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.cli.manifest_documents import Manifest
    from topospread.cli.manifest_objects import FieldValidation
    from topospread.cli.options import ApiCaller
    from topospread_proto.v1.cluster_state_service_pb2 import (
        ClusterObject,
        ReplaceObjectsResponse,
    )


@click.command("apply", short_help="Write objects to the state.")
@input_options(required=True)
@validation_option
@click.option("--force", is_flag=True, help="Write also what is older than the stored version.")
@click.option(
    "--replace",
    is_flag=True,
    help="Make the input the full content of each kind in it: what it lacks is removed.",
)
@server_verb
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
    directories, and - for standard input. Volumes, claims, storage classes, CSI objects and
    namespaces are written, too. Other kinds are counted and named as skipped.

    With --replace, input that may have been cut is refused: a page of a longer list, a file that
    ends within a line, and what comes through a pipe and does not show its own end, as one value of
    JSON, a List of kubectl or a last line `...` do. Without it nothing is removed; of a List that
    looks like a dump of all nodes or pods it is said how many others the state has.
    """
    try:
        # A bar would be drawn over what a person types.
        typed = STDIN in paths and sys.stdin.isatty()
        with nullcontext() if typed else output.progress("reading"):
            lists: set[str] = set()
            manifests = manifest_files.read(paths, recursive=recursive, whole=replace, lists=lists)
            found, skipped = storable_objects(manifests, validation, namespace)
            del manifests
    except KeyboardInterrupt:
        output.warn("nothing is written: the input was still being read")
        raise
    warn_not_stored(skipped)
    empty = lists.intersection(OBJECTS) if replace else set()
    if not found and not empty:
        output.warn("nothing to apply")
        return DONE
    objects = [each for _, each in found]
    if replace:
        full = {**dict.fromkeys(empty, ()), **_full_lists(found)}
        replaced = _replace(options, full, force=force)
        writes.print_replaced(replaced, options, objects)
        return DONE
    with options.server_client() as client:
        with writes.write_progress("applying", "written") as progress:
            applied = client.apply_objects(objects, force=force, progress=progress)
        lacking = _not_in_dump(client, found, applied.meta.revision)
    writes.print_applied(applied, options, skipped, lacking)
    _warn_of_others(lacking)
    stale = sum(each.outcome == OBJECT_OUTCOME_IGNORED_STALE for each in applied.results)
    if stale:
        output.warn(f"{stale} older than what is stored: --force writes them all the same")
    return DONE


def _replace(
    options: ClientOptions, lists: Mapping[str, Sequence[ClusterObject]], *, force: bool
) -> dict[str, ReplaceObjectsResponse]:
    responses: dict[str, ReplaceObjectsResponse] = {}
    replacing = writes.write_progress("replacing", "replaced", unit="kinds")
    # A store that lost its history is whole again when these were listed: never without the pods.
    kinds = [NUMBERS[kind] for kind in {NODE, POD, *lists}]
    with options.server_client() as client, replacing as progress:
        for kind in sorted(lists, key=NUMBERS.__getitem__):
            version = _oldest_kubelet(lists[kind]) if kind == NODE else ""
            responses[kind] = client.replace_objects(
                NUMBERS[kind], lists[kind], force=force, kinds=kinds, kubernetes_version=version
            )
            progress(len(responses), len(lists))
    return responses


def _oldest_kubelet(nodes: Iterable[ClusterObject]) -> str:
    """The version that the cluster is judged by, as with `--from`; empty where no node says its."""
    oldest = oldest_version(each.node.status.node_info.kubelet_version for each in nodes)
    return "" if oldest is None else str(oldest)


def _full_lists(
    found: Iterable[tuple[Manifest, ClusterObject]],
) -> dict[str, list[ClusterObject]]:
    """The objects of each kind, each once."""
    lists: dict[str, list[ClusterObject]] = {}
    first: dict[ObjectName, Manifest] = {}
    twice: list[str] = []
    for manifest, each in found:
        named = object_name(each)
        before = first.setdefault(named, manifest)
        if before is not manifest:
            twice.append(f"{manifest.title}: is in {before.source}, too")
        lists.setdefault(named.kind, []).append(each)
    if twice:
        raise BadInput(*twice, advice="with --replace, give each object once")
    return lists


def _not_in_dump(
    client: ApiCaller, written: Iterable[tuple[Manifest, ClusterObject]], revision: str
) -> dict[str, int]:
    """Number of nodes and of pods of the state that are not among the objects that were written.

    Only where these look like a dump of all of them. The state's are counted, not listed; there is
    no number where the server does not tell.
    """
    dumps = _dumps(written)
    if not dumps:
        return {}
    try:
        newest = GetClusterRequest(consistency=Consistency(at_least_as_fresh=revision))
        cluster = client.call("GetCluster", newest).cluster
    except TopospreadClientError:
        return {}  # all is written, and the caller may be one who cannot read
    counts = {NODE: cluster.node_count, POD: cluster.pod_count}
    lacking = {kind: counts[kind] - number for kind, number in dumps.items()}
    return {kind: number for kind, number in lacking.items() if number > 0}


def _dumps(written: Iterable[tuple[Manifest, ClusterObject]]) -> dict[str, int]:
    """Number of nodes and of pods, where the input looks like a dump of all of them.

    Items of a List do, as kubectl prints it: several nodes, or pods of more than one namespace. A
    file of some objects and the dump of one namespace do not.
    """
    names: dict[str, set[ObjectName]] = {NODE: set(), POD: set()}
    for manifest, each in written:
        named = object_name(each)
        if named.kind not in names:
            continue
        if not manifest.is_listed:
            del names[named.kind]
            continue
        names[named.kind].add(named)
    if len({pod.namespace for pod in names.get(POD, ())}) < 2:
        names.pop(POD, None)
    return {kind: len(each) for kind, each in names.items() if len(each) > 1}


def _warn_of_others(lacking: Mapping[str, int]) -> None:
    """Say on stderr what the state has beside the input, and how it would go."""
    if lacking:
        kinds = [counted(number, kind.lower()) for kind, number in lacking.items()]
        output.warn(
            f"the state has {' and '.join(kinds)} that this input lacks: if it is all that there "
            "is, --replace removes them"
        )
