"""`topospread watch`: changes of a cluster's state, as they come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.kinds import complete_kinds, is_reservation, kinds_named, path_of
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import all_namespaces_option
from topospread_client import Kind, WatchEventType, manifest_from_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import WatchEvent


@click.command("watch", short_help="Show changes of the state as they come.")
@click.argument("kinds", nargs=-1, metavar="[KIND]...", shell_complete=complete_kinds)
@click.option("--revision", metavar="REVISION", help="Start after this revision.  [now]")
@click.option("--send-initial", is_flag=True, help="Begin with what there is.")
@all_namespaces_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    kinds: Sequence[str],
    revision: str | None,
    send_initial: bool,
    all_namespaces: bool,
) -> int:
    """Show changes of nodes, pods, workloads and reservations until Ctrl-C, a line each.

    With -o json each line is a document with the revision from which a watch may go on; a bookmark
    is one without an object.
    """
    del all_namespaces  # a watch is of all of them
    wanted = [each for word in kinds for each in _named(word)]
    with options.client() as client:
        changes = client.watch_objects(kinds=wanted, revision=revision, send_initial=send_initial)
        for answer in changes:
            for event in answer.events:
                _print(event, answer.revision, options)
    return DONE


def _named(word: str) -> Sequence[Kind]:
    if is_reservation(word):
        return (Kind.RESERVATION,)
    return kinds_named(word)


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
    path = path_of(ref.kind, ref.namespace or "", ref.name)
    output.echo(path if options.output == "name" else f"{documents.words(event.type)} {path}")
