"""`topospread release`: end what is held for pods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import BAD_INPUT, DONE
from topospread.cli.kinds import pod_name, reservation_path
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import PodReference, ReleaseReservationResponse


@click.command("release", short_help="End what is held for pods.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-n", "--namespace", metavar="NAME", help="Of names that say none.  [default]")
@click.option("--uid", metavar="UID", help="Only what is held for the pod with this uid.")
@click.option("--ignore-not-found", is_flag=True, help="That nothing was held is no mistake.")
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    names: Sequence[str],
    namespace: str | None,
    uid: str | None,
    ignore_not_found: bool,
) -> int:
    """End the reservations of pods, so that what `place` held for them counts no more.

    NAME is also NAMESPACE/NAME, pod/NAMESPACE/NAME, or what `get reservations -o name` prints. Pods
    of which nothing was held make the exit code 2.
    """
    pods = list(dict.fromkeys(pod_name(text, namespace) for text in names))
    if uid and len(pods) > 1:
        raise click.UsageError("--uid is of one pod: name only that")
    released: list[tuple[PodReference, ReleaseReservationResponse]] = []
    with options.client() as client, output.progress("releasing") as progress:
        for done, named in enumerate(pods, start=1):
            pod = replace(named, uid=uid)
            released.append((pod, client.release_reservation(pod)))
            progress(done, len(pods))
    _show(released, options)
    missing = not all(each.released for _, each in released)
    return BAD_INPUT if missing and not ignore_not_found else DONE


def _show(
    released: Sequence[tuple[PodReference, ReleaseReservationResponse]], options: ClientOptions
) -> None:
    if options.output in {"json", "yaml"}:
        items = [{"pod": documents.plain(pod), **documents.plain(each)} for pod, each in released]
        documents.show("ReleaseList", options.output, cluster=options.cluster, items=items)
        return
    for pod, each in released:
        path = reservation_path(pod)
        if each.released:
            click.echo(path if options.output == "name" else f"{path} released")
        else:
            output.warn(f"{path}: nothing is held")
