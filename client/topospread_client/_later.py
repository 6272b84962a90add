"""Methods that are made of operations when somebody first asks for them.

Most programs use few of a client's methods. Modules of operations that few programs use are then
not imported with the client.
"""

from __future__ import annotations

import importlib
import inspect
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

    def __init__(self, make: Callable[[Any], Any], operation: Any) -> None:
        self._make: Final = make
        self._operation: Final = operation

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        operation = self._operation
        if isinstance(operation, _Operation):
            operation = operation.load()
        method = self._make(operation)
        method.__name__ = self._name
        method.__qualname__ = f"{self._owner.__qualname__}.{self._name}"
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def at_first_use(answer: str, *, about: str = "") -> Callable[[_F], _F]:
    """Let what makes a method of an operation do so when somebody first asks for the method.

    Args:
        answer: what the method returns, with {} for what the operation does.
        about: what it takes first, where that is not what the operation takes.
    """

    def decorate(make: _F) -> _F:
        def made(operation: Any) -> Any:
            method = make(operation)
            signature = _signature(operation, answer, about)
            method.__signature__ = signature
            method.__annotations__ = {
                each.name: each.annotation for each in signature.parameters.values() if each.kind
            } | {"return": signature.return_annotation}
            return method

        @wraps(make)
        def making(operation: Any) -> Any:
            return _Method(made, operation)

        return making  # type: ignore[return-value] # in whose place it stands

    return decorate


def _signature(operation: Callable[..., Any], answer: str, about: str) -> inspect.Signature:
    """An operation's, as a method has it: `self` in place of what operations share."""
    signature = inspect.signature(operation)
    _, *taken = signature.parameters.values()
    if about:
        name, _, annotation = about.partition(": ")
        taken[0] = taken[0].replace(
            name=name, annotation=annotation, kind=inspect.Parameter.POSITIONAL_ONLY
        )
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    _, _, answered = str(signature.return_annotation).partition("[")
    return inspect.Signature(
        [own, *taken], return_annotation=answer.format(answered.removesuffix("]"))
    )
