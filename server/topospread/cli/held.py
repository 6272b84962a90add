"""What `topospread get reservations` shows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import printing, structures
from topospread.cli.complaints import DONE
from topospread.cli.paging import pages
from topospread_client import PodReference, selector_from_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.options import Options
    from topospread_client import Reservation

WORDS: Final = frozenset({"reservation", "reservations"})
_COLUMNS: Final = ["NAMESPACE", "NAME", "NODE", "EXPIRES", "UID", "LABELS"]


def show(
    options: Options, names: Sequence[str], namespace: str | None, selector: str | None
) -> int:
    """Print the places that are held."""
    if names and selector:
        raise click.UsageError("give names or --selector, not both")
    with options.client() as client:
        if names:
            told = [client.get_reservation(PodReference(name, namespace)) for name in names]
            found, revision = [each.reservation for each in told], told[0].revision
        else:
            labels = selector_from_query(selector, "--selector") if selector else None
            ask = partial(client.list_reservations_page, namespace=namespace, label_selector=labels)
            listed = list(pages(ask))
            found = [each for page in listed for each in page.reservations]
            revision = listed[0].revision
    if options.output == "name":
        for each in found:
            printing.say(path_of(each.pod))
    elif options.output != "table":
        structures.show(
            "ReservationList",
            options.output,
            cluster=options.cluster,
            revision=revision,
            items=found,
        )
    elif not found:
        printing.note("no reservations found")
    else:
        printing.table(_COLUMNS, map(_row, found))
    return DONE


def path_of(pod: PodReference) -> str:
    """A reservation as `-o name` prints it: by its pod, ``reservation/prod/web-0``."""
    return f"reservation/{pod.full_name}"


def _row(held: Reservation) -> list[object]:
    labels = ",".join(f"{key}={value}" for key, value in sorted(held.labels.items()))
    expires = structures.moment(held.expire_time) if held.expire_time else ""
    return [held.pod.namespace, held.pod.name, held.node, expires, held.pod.uid, labels]
