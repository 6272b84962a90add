"""`topospread watch`: changes of a cluster's state, as they come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.kinds import (
    RESERVATION,
    STORED,
    ObjectName,
    complete_kinds,
    is_reservation,
    kinds_named,
    parse_name,
    path_of,
)
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import all_namespaces_option, check_all_namespaces
from topospread_client import Kind, WatchEventType, manifest_from_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import WatchEvent


@click.command("watch", short_help="Show changes of the state as they come.")
@click.argument("wanted", nargs=-1, metavar="[KIND|KIND/NAME]...", shell_complete=complete_kinds)
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace; with names: default.")
@click.option("--revision", metavar="REVISION", help="Start after this revision.  [now]")
@click.option("--send-initial", is_flag=True, help="Begin with what there is.")
@all_namespaces_option
@server_options
@output_option
@pass_options
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
    check_all_namespaces(all_namespaces=all_namespaces, namespace=namespace)
    whole, named = _wanted(wanted, namespace)
    kinds = list({*whole, *(each.stored_kind for each in named)})

    def shown(event: WatchEvent) -> bool:
        ref = event.ref
        if ref is None or ObjectName(ref.kind.label, ref.namespace or None, ref.name) in named:
            return True
        if named and ref.kind not in whole:
            return False
        return not (namespace and ref.namespace) or ref.namespace == namespace

    with options.client() as client:
        changes = client.watch_objects(kinds=kinds, revision=revision, send_initial=send_initial)
        for answer in changes:
            for event in filter(shown, answer.events):
                _print(event, answer.revision, options)
    return DONE


def _wanted(words: Sequence[str], namespace: str | None) -> tuple[set[Kind], set[ObjectName]]:
    """Kinds that are watched as a whole, and objects that are watched of other kinds."""
    names = [word for word in words if "/" in word]
    named = {parse_name(word, namespace, (*STORED, RESERVATION)) for word in names}
    whole: set[Kind] = set()
    for word in words:
        if "/" not in word:
            whole.update((Kind.RESERVATION,) if is_reservation(word) else kinds_named(word))
    return whole, named


def _print(event: WatchEvent, revision: str, options: ClientOptions) -> None:
    if options.output in {"json", "yaml"}:
        content = event.object and manifest_from_object(event.object)
        document = documents.document(
            "WatchEvent",
            cluster=options.cluster,
            revision=revision,
            type=event.type,
            ref=event.ref,
            object=content,
        )
        if options.output == "json":
            click.echo(json.dumps(document))
        else:
            output.dump([document], "yaml")
        return
    if event.type is WatchEventType.BOOKMARK or event.ref is None:
        return
    ref = event.ref
    path = path_of(ref.kind, ref.namespace, ref.name)
    output.echo(path if options.output == "name" else f"{documents.words(event.type)} {path}")
