"""`topospread watch`: changes of a cluster's state, as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.kinds import (
    LABELS,
    NUMBERS,
    RESERVATION,
    STORED,
    ObjectName,
    complete_kinds,
    is_reservation,
    labels_named,
    parse_name,
)
from topospread.cli.options import ClientOptions, server_verb
from topospread.cli.request_options import all_namespaces_option
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("watch", short_help="Show changes of the state as they come.")
@click.argument("wanted", nargs=-1, metavar="[KIND|KIND/NAME]...", shell_complete=complete_kinds)
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace; with names: default.")
@click.option("--revision", metavar="REVISION", help="Start after this revision.  [now]")
@click.option("--send-initial", is_flag=True, help="Begin with what there is.")
@all_namespaces_option
@server_verb
def command(
    options: ClientOptions,
    wanted: Sequence[str],
    namespace: str | None,
    revision: str | None,
    send_initial: bool,
    all_namespaces: bool,
) -> int:
    """Show changes of nodes, pods, workloads and reservations until Ctrl-C, a line each.

    With -o json each line is a document with the revision from which a watch may go on; a bookmark
    is one without an object. After KIND/NAME or KIND/NAMESPACE/NAME, only that object's changes.
    """
    whole, named = _wanted(wanted, namespace)
    kinds = {NUMBERS[kind] for kind in (*whole, *(each.kind for each in named))}

    def shown(event: pb.WatchEvent) -> bool:
        name = _name(event)
        if name is None or name in named:
            return True
        if named and name.kind not in whole:
            return False
        return not (namespace and name.namespace) or name.namespace == namespace

    request = pb.WatchObjectsRequest(
        kinds=kinds, revision=revision or "", send_initial=send_initial
    )
    for answer in options.watch("WatchObjects", request):
        for event in filter(shown, answer.events):
            _print(event, answer.meta.revision, options)
    return DONE


def _wanted(words: Sequence[str], namespace: str | None) -> tuple[set[str], set[ObjectName]]:
    names = [word for word in words if "/" in word]
    named = {parse_name(word, namespace, (*STORED, RESERVATION)) for word in names}
    whole: set[str] = set()
    for word in words:
        if "/" not in word:
            whole.update((RESERVATION,) if is_reservation(word) else labels_named(word))
    return whole, named


def _name(event: pb.WatchEvent) -> ObjectName | None:
    if not event.HasField("ref"):
        return None
    return ObjectName(
        LABELS.get(event.ref.kind, str(event.ref.kind)), event.ref.namespace or None, event.ref.name
    )


def _print(event: pb.WatchEvent, revision: str, options: ClientOptions) -> None:
    name = _name(event)
    if options.output in {"json", "yaml"}:
        document = documents.document(
            "WatchEvent", cluster=options.cluster, revision=revision, answer=event
        )
        output.dump_line(document, options.output)
    elif name is not None:
        change = documents.words(documents.value_name(pb.WatchEventType, event.type))
        output.echo(name.path if options.output == "name" else f"{change} {name.path}")
