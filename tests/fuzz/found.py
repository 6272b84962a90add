"""What a campaign comes to, and how it is told."""

from __future__ import annotations

import resource
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

SHOWN: Final = 20
"""Findings that are printed, each up to so many characters:"""

CHARACTERS: Final = 3000


@dataclass
class Found:
    """What a campaign came to.

    Attributes:
        sent: inputs that were tried.
        codes: how they ended.
        faults: what must not be, with what caused it.
        grown: bytes that the process grew by in the second half.
    """

    sent: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    grown: int = 0

    def add(self, other: Found) -> None:
        """Take in another campaign."""
        self.sent += other.sent
        self.codes += other.codes
        self.faults += other.faults
        self.grown += other.grown

    def report(self, name: str, seconds: float) -> str:
        """The figures in a few lines."""
        lines = [
            f"{name}: {self.sent} in {seconds:.0f} s, {len(self.faults)} findings",
            "  " + ", ".join(f"{code} {count}" for code, count in self.codes.most_common()),
            *self._growth(),
            *(fault[:CHARACTERS] for fault in self.faults[:SHOWN]),
        ]
        return "\n".join(lines) + "\n"

    def _growth(self) -> list[str]:
        """Of campaigns whose server is in this process."""
        if not self.grown:
            return []
        return [f"  memory grew by {self.grown / 2**20:.0f} MiB in the second half"]


def resident() -> int:
    """Bytes of memory that this process has, as the kernel counts."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
