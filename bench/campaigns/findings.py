"""What a campaign of many inputs found."""

from __future__ import annotations

import resource
import time
from collections import Counter
from dataclasses import dataclass, field

from bench.campaigns.campaign import MIB, Outcome


@dataclass
class Findings:
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
    began: float = field(default_factory=time.monotonic)

    def add(self, other: Findings) -> None:
        """Take in another campaign."""
        self.sent += other.sent
        self.codes += other.codes
        self.faults += other.faults
        self.grown += other.grown

    def outcome(self) -> Outcome:
        """Its figures; every fault is a broken promise."""
        figures = {
            "inputs": self.sent,
            "seconds": round(time.monotonic() - self.began, 1),
            "findings": len(self.faults),
            "MiB grown in the second half": self.grown // MIB,
            **dict(self.codes.most_common()),
        }
        return Outcome(figures, self.faults)


def resident() -> int:
    """Bytes of memory that this process has, as the kernel counts."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
