"""Modules of calls that few programs make are imported at their first use, not with the client."""

from __future__ import annotations

import importlib
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_F = TypeVar("_F", bound="Callable[..., Any]")


class Operations:
    """Stands for a module of operations that is not imported yet."""

    def __init__(self, module: str) -> None:
        self._module: Final = module

    def __getattr__(self, name: str) -> _Operation:
        return _Operation(self._module, name)


class _Operation:
    def __init__(self, module: str, name: str) -> None:
        self._module: Final = module
        self._name: Final = name

    def load(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)


class _Method:
    """Takes the place of a method until somebody asks for it."""

    def __init__(self, make: Callable[..., Any], operation: _Operation) -> None:
        self._make: Final = make
        self._operation: Final = operation

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._make(self._operation.load())
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def at_first_use(make: _F) -> _F:
    """Let what makes a method of an operation take one that is not imported yet."""

    @wraps(make)
    def making(operation: Any) -> Any:
        return _Method(make, operation) if isinstance(operation, _Operation) else make(operation)

    return making  # type: ignore[return-value] # its one argument may be a stand-in, too
