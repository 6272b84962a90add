"""Kinds as people type them on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.cli.complaints import BadInput
from topospread_client import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def kinds_named(word: str) -> tuple[Kind, ...]:
    """The kinds meant by ``pods``, ``Pod``, ``po`` or ``workloads``.

    Raises:
        BadInput: no kind that a server keeps.
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
    """A name as kubectl prints it, with the namespace where there is one: ``pod/prod/web-0``."""
    parts = (kind.label.lower(), namespace, name) if namespace else (kind.label.lower(), name)
    return "/".join(parts)
