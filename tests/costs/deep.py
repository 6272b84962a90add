"""What things hold, counted through everything that they refer to."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_DATA = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def deep_size(roots: Iterable[object], beside: Iterable[object] = ()) -> int:
    """Bytes of objects with all that they refer to, each once.

    Args:
        roots: where to begin.
        beside: what is there anyway, with all that it refers to.
    """
    seen: dict[int, object] = {}
    _walk(beside, seen)
    return _walk(roots, seen)


def _walk(roots: Iterable[object], seen: dict[int, object]) -> int:
    total = 0
    left: list[Any] = list(roots)
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, _NOT_DATA):
            continue
        seen[id(each)] = each
        total += sys.getsizeof(each)
        if isinstance(each, np.ndarray):
            if each.base is not None:
                left.append(each.base)
            continue
        if isinstance(each, dict):
            left += each  # the collector passes over keys that are strings
        left += gc.get_referents(each)
    return total
