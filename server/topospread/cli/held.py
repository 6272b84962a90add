"""What `topospread get reservations` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.cli import printing
from topospread.cli.complaints import DONE, BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.options import Options
    from topospread_client.places import Reservation

WORDS: Final = frozenset({"reservation", "reservations"})
_COLUMNS: Final = ["NAMESPACE", "NAME", "NODE", "EXPIRES", "UID", "LABELS"]


def show(
    options: Options, names: Sequence[str], namespace: str | None, selector: str | None
) -> int:
    """Print the places that are held.

    Raises:
        BadInput: a selector; or a name of which nothing is held.
    """
    if selector:
        raise BadInput("reservations are not selected by labels: give names, or --namespace")
    with options.client() as client:
        where = namespace or ("default" if names else "")
        found = client.reservations(namespace=where).reservations
    if names:
        by_name = {each.name: each for each in found}
        if missing := [name for name in names if name not in by_name]:
            raise BadInput(f"nothing is held for pod {where}/{missing[0]}")
        found = tuple(by_name[name] for name in names)
    if options.output == "name":
        for each in found:
            printing.say(path_of(each.namespace, each.name))
    elif options.output != "table":
        items = [_structure(each) for each in found]
        printing.structure({"cluster": options.cluster, "items": items}, options.output)
    elif not found:
        printing.note("no reservations found")
    else:
        printing.table(_COLUMNS, (_row(each) for each in found))
    return DONE


def path_of(namespace: str, name: str) -> str:
    """A reservation as `-o name` prints it: by its pod, ``reservation/prod/web-0``."""
    return f"reservation/{namespace}/{name}"


def _row(held: Reservation) -> list[object]:
    labels = ",".join(f"{key}={value}" for key, value in sorted(held.labels.items()))
    expires = held.expires_at.isoformat(timespec="seconds") if held.expires_at else ""
    return [held.namespace, held.name, held.node, expires, held.uid, labels]


def _structure(held: Reservation) -> dict[str, object]:
    return {
        "namespace": held.namespace,
        "name": held.name,
        "uid": held.uid,
        "node": held.node,
        "labels": dict(held.labels),
        "expiresAt": held.expires_at.isoformat() if held.expires_at else None,
    }
