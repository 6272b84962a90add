"""Kinds and names as people type them on the command line, and as they are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.cli.errors import BadInput
from topospread_client import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click

    from topospread_client import PodReference

WORKLOADS: Final = (
    Kind.SERVICE,
    Kind.REPLICATION_CONTROLLER,
    Kind.REPLICA_SET,
    Kind.STATEFUL_SET,
)
_SHORT: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.NODE: ("no",),
    Kind.POD: ("po",),
    Kind.SERVICE: ("svc",),
    Kind.REPLICATION_CONTROLLER: ("rc",),
    Kind.REPLICA_SET: ("rs",),
    Kind.STATEFUL_SET: ("sts",),
}


_PLURALS: Final = (*(f"{kind.label.lower()}s" for kind in _SHORT), "workloads")
_RESERVATIONS: Final = frozenset({"reservation", "reservations"})
_CLUSTERS: Final = frozenset({"cluster", "clusters"})


def complete_kinds(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Completion of a kind: `get` takes reservations and `delete` a cluster, too."""
    known = {"get": (*_PLURALS, "reservations"), "delete": (*_PLURALS[:-1], "cluster")}.get(
        str(context.command.name), _PLURALS[:-1]
    )
    return [each for each in known if each.startswith(typed.lower())]


def is_reservation(word: str) -> bool:
    """Whether a person means reservations, which are no kind of object."""
    return word.lower() in _RESERVATIONS


def is_cluster(word: str) -> bool:
    """Whether a person means a cluster as a whole."""
    return word.lower() in _CLUSTERS


def kinds_named(word: str) -> tuple[Kind, ...]:
    """Kinds of a word such as ``pods``, ``Pod``, ``po`` or ``workloads``.

    Raises:
        BadInput: the word is no kind that a server stores.
    """
    typed = word.lower()
    if typed in {"workload", "workloads"}:
        return WORKLOADS
    for kind, short in _SHORT.items():
        name = kind.label.lower()
        if typed in (name, f"{name}s", *short):
            return (kind,)
    known = ", ".join(f"{kind.label.lower()}s" for kind in _SHORT)
    raise BadInput(f"unknown kind {word!r}: there are {known}; `workloads` means the last four")


def path_of(kind: Kind, namespace: str, name: str) -> str:
    """Name as kubectl prints it, with the namespace where there is one: ``pod/prod/web-0``."""
    parts = (kind.label.lower(), namespace, name) if namespace else (kind.label.lower(), name)
    return "/".join(parts)


def reservation_path(pod: PodReference) -> str:
    """Reservation as `-o name` prints it, by its pod: ``reservation/prod/web-0``."""
    return f"reservation/{pod.full_name}"
