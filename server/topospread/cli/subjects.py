"""What a verb asks about, and how it is named to people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topospread_client import ConstraintValidation, PodReference
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod


@dataclass(frozen=True, slots=True)
class Subject:
    """What a question is about, as answers show it.

    Attributes:
        pod: its name; of a workload's pod, the workload's.
        kind: Pod, or that of the workload that makes it.
        source: where the manifest stood; empty for a pod of the state.
    """

    pod: PodReference
    kind: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A pod to judge.

    Attributes:
        replicas: how many a workload makes; None for a pod.
    """

    pod: Pod | PodReference
    subject: Subject
    label: str
    validation: ConstraintValidation
    replicas: int | None = None

    @property
    def title(self) -> str:
        """Where it stood and what it is: the begin of a complaint about it."""
        return f"{self.subject.source}: {self.label}".removeprefix(": ")
