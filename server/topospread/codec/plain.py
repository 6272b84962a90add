"""Reads objects as YAML and JSON give them, strictly: a wrong type is noted with its path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from topospread.config.documents import closest, suggestion

INT32: Final = range(-(2**31), 2**31)


class PlainObject:
    """A mapping from an untrusted document; absent and null fields read as empty.

    Args:
        fields: the mapping.
        path: where it stands, for example ``profiles[0]``; empty for a document itself.
        problems: what is wrong is appended here.
    """

    def __init__(self, fields: Mapping[str, object], path: str, problems: list[str]) -> None:
        self._fields = fields
        self._path = path
        self._problems = problems

    def at(self, key: str) -> str:
        """The path of a field."""
        return f"{self._path}.{key}" if self._path else key

    def get(self, key: str) -> object:
        """A field as it is; None when it is absent."""
        return self._fields.get(key)

    def text(self, key: str) -> str:
        """A text."""
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self._wrong(key, "a text")
        return ""

    def optional_text(self, key: str) -> str | None:
        """A text that may be absent, which is not the same as empty."""
        return None if self.get(key) is None else self.text(key)

    def int32(self, key: str) -> int:
        """A whole number."""
        value = self.get(key)
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and value in INT32:
            return value
        self._wrong(key, "a whole number of 32 bits")
        return 0

    def optional_int32(self, key: str) -> int | None:
        """A whole number that may be absent, which is not the same as 0."""
        return None if self.get(key) is None else self.int32(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self._wrong(key, "a list of texts")
        return ()

    def switches(self, key: str) -> Mapping[str, bool]:
        """Names that are true or false."""
        value = self.get(key)
        if value is None:
            return {}
        if isinstance(value, dict) and all(isinstance(on, bool) for on in value.values()):
            return {str(name): on for name, on in value.items()}
        self._wrong(key, "a mapping of names to true or false")
        return {}

    def child(self, key: str) -> PlainObject | None:
        """An object below this one."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return PlainObject(value, self.at(key), self._problems)
        self._wrong(key, "a mapping")
        return None

    def children(self, key: str) -> list[PlainObject]:
        """A list of objects below this one."""
        value = self.get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
            return [
                PlainObject(one, f"{self.at(key)}[{position}]", self._problems)
                for position, one in enumerate(value)
            ]
        self._wrong(key, "a list of mappings")
        return []

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Note each field that is not among the known ones."""
        known = tuple(known)
        for key in self._fields:
            if key not in known:
                self._problems.append(f"{self.at(key)}: unknown field{suggestion(str(key), known)}")

    def refuse_slips(self, known: Iterable[str]) -> None:
        """Note each field that is not known but written much like a known one."""
        known = tuple(known)
        for key in self._fields:
            if key not in known and (close := closest(str(key), known, cutoff=0.8)):
                self._problems.append(f"{self.at(key)}: unknown field; did you mean {close}?")

    def _wrong(self, key: str, expected: str) -> None:
        self._problems.append(f"{self.at(key)}: {self.get(key)!r} is not {expected}")
