"""Messages between a supervisor and its workers, over a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Topic = Literal["metrics", "ready"]


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker serves calls."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A worker could not start.

    Attributes:
        text: what is wrong and what to do, for a person.
        store_unavailable: because of the store; otherwise because of the settings.
    """

    text: str
    store_unavailable: bool


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker has served its last call.

    Attributes:
        metrics: its last exposition.
    """

    metrics: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the supervisor; the response has its number."""

    number: int
    topic: Topic


Readiness = tuple[bool, Sequence[str]]
"""Whether calls should come here, and if not, the reasons."""


@dataclass(frozen=True, slots=True)
class Response:
    """The response to the request with this number."""

    number: int
    content: bytes | Readiness


Message = Ready | StartFailed | Exited | Response
"""A message of a worker."""
