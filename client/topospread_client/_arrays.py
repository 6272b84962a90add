"""Long answers as arrays: NumPy's where it is installed, the standard library's otherwise."""

from __future__ import annotations

from array import array
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TYPECODES: Final = {"int32": "i", "int64": "q"}


class IntArray(Protocol):
    """What NumPy's and the standard library's arrays of integers have in common."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def tolist(self) -> list[int]:
        """The elements as Python's own integers."""


def int_array(values: Sequence[int], dtype: str) -> IntArray:
    """Copy the values of a message's field.

    Args:
        values: a repeated field.
        dtype: ``int32`` or ``int64``.
    """
    from_iterable = _numpy_fromiter()
    if from_iterable is None:
        return array(_TYPECODES[dtype], values)
    made: IntArray = from_iterable(values, dtype=dtype, count=len(values))
    return made


@cache
def _numpy_fromiter() -> Callable[..., Any] | None:
    try:
        import numpy as np
    except ImportError:
        return None
    return np.fromiter
