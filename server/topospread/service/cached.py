"""Properties that are worked out once, without a lock.

functools.cached_property of Python 3.11 holds one lock for all instances of a class while it
works one out, so that a short decision would wait for all long ones. Threads that work one out at
once get equal results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801 - as that of functools
        """A method that is called once for each instance, which keeps its result."""

        def __init__(self, work: Any) -> None:
            self._work = work
            self.__doc__ = work.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            made = instance.__dict__[self._name] = self._work(instance)
            return made


__all__ = ["cached_property"]
