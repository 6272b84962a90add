"""`topospread get --watch`: objects, and then those that change, as kubectl prints them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import click

from topospread.cli import output
from topospread.cli.kinds import path_of
from topospread.cli.render.objects import print_objects
from topospread_client import manifest_from_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.cli.options import ClientOptions
    from topospread.cli.render.objects import Columns
    from topospread_client import Kind, WatchObjectsResponse
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

    _Found: TypeAlias = Sequence[tuple[Kind, ClusterObject]]


def follow(
    found: _Found,
    watch: Iterable[WatchObjectsResponse],
    is_shown: Callable[[Kind, ClusterObject], bool],
    options: ClientOptions,
    columns: Columns,
) -> None:
    """Print objects, and then each that changes until the watch ends; one that goes as it was last.

    Args:
        found: what there is.
        watch: changes since then.
        is_shown: whether an object is one of those that are asked for.
        options: with the form of output.
        columns: of tables.
    """
    known = {path_name(kind, each): each for kind, each in found}
    _print(found, options, columns)
    for answer in watch:
        changed: list[tuple[Kind, ClusterObject]] = []
        for event in answer.events:
            if event.ref is None:
                continue
            kind = event.ref.kind
            name = path_of(kind, event.ref.namespace, event.ref.name)
            before, now = known.pop(name, None), event.object
            if now is not None and is_shown(kind, now):
                known[name] = now
            last = now or before
            if last is not None and (before is not None or name in known):
                changed.append((kind, last))
        _print(changed, options, columns)


def path_name(kind: Kind, each: ClusterObject) -> str:
    """Name of an object as `-o name` prints it."""
    metadata = getattr(each, kind.field).metadata
    return path_of(kind, metadata.namespace, metadata.name)


def _print(found: _Found, options: ClientOptions, columns: Columns) -> None:
    if options.output == "table":
        print_objects(found, columns)
        return
    for kind, each in found:
        if options.output == "name":
            output.echo(path_name(kind, each))
        elif options.output == "json":
            click.echo(json.dumps(manifest_from_object(each)))
        else:
            output.dump([manifest_from_object(each)], "yaml")
