"""Places reserved for pods: an immutable map whose next version copies only a part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topospread.index.changes import ReservationRow

_PARTS: Final = 256
"""Some ten thousand reservations stand at most; a change then copies a hundred entries."""

_Part = dict[str, "ReservationRow"]
_EMPTY: Final[_Part] = {}


class Reservations:
    """The reservation of each pod; pods are named ``namespace/name``.

    Attributes:
        size: how many there are.
    """

    __slots__ = ("_parts", "size")

    def __init__(self, parts: tuple[_Part, ...] = (_EMPTY,) * _PARTS, size: int = 0) -> None:
        self._parts = parts
        self.size = size

    def __len__(self) -> int:
        """The number of reservations."""
        return self.size

    def __iter__(self) -> Iterator[tuple[str, ReservationRow]]:
        """All of them with their pods, in no order."""
        for part in self._parts:
            yield from part.items()

    def get(self, pod: str) -> ReservationRow | None:
        """The reservation for a pod, whatever its uid."""
        return self._parts[hash(pod) % _PARTS].get(pod)

    def of(self, namespace: str, name: str, uid: str) -> ReservationRow | None:
        """The reservation for the pod with this name, if its uid is equal or unknown."""
        row = self.get(f"{namespace}/{name}")
        return row if row is not None and row.is_for(uid) else None

    def changed(self, rows: Mapping[str, ReservationRow | None]) -> Reservations:
        """The next version; None ends a reservation."""
        parts = list(self._parts)
        copied: set[int] = set()
        size = self.size
        for pod, row in rows.items():
            number = hash(pod) % _PARTS
            if number not in copied:
                copied.add(number)
                parts[number] = dict(parts[number])
            part = parts[number]
            size -= pod in part
            if row is None:
                part.pop(pod, None)
            else:
                part[pod] = row
                size += 1
        return Reservations(tuple(parts), size)


NO_RESERVATIONS: Final = Reservations()
