"""Owner references of objects → the one that controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from topospread.kube.objects import OwnerReference

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Owner(Protocol):
    @property
    def controller(self) -> bool: ...


class _WholeOwner(_Owner, Protocol):
    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


_O = TypeVar("_O", bound=_Owner)


def controlling(owners: Iterable[_O]) -> _O | None:
    """The owner that controls an object, as a message has it; None without one."""
    return next((each for each in owners if each.controller), None)


def controller_reference(owners: Iterable[_WholeOwner]) -> OwnerReference | None:
    """The owner that controls an object; None without one."""
    owner = controlling(owners)
    if owner is None:
        return None
    return OwnerReference(owner.api_version, owner.kind, owner.name, owner.uid)
