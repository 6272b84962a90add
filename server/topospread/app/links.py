"""What a supervisor and its workers say to each other over a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Topic = Literal["metrics", "ready"]


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker serves."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker could not start.

    Attributes:
        text: what is wrong and what to do, for a person.
        out_of_reach: it is the store; otherwise it is the settings.
    """

    text: str
    out_of_reach: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has served its last call.

    Attributes:
        metrics: everything it counted.
    """

    metrics: bytes


@dataclass(frozen=True, slots=True)
class Question:
    """The supervisor asks; the number comes back with the answer."""

    number: int
    topic: Topic


Readiness = tuple[bool, Sequence[str]]
"""Whether calls are welcome, and if not, why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To the question with this number."""

    number: int
    content: bytes | Readiness


Message = Ready | Failed | Ended | Answer
"""What a worker says."""
