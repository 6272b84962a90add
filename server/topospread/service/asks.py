"""What decision calls ask, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.kube.objects import DEFAULT_NAMESPACE, Pod
from topospread.replica.replicas import NEWEST_AT_HAND, Consistency
from topospread.service.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.service.shapes import ShapedPod
    from topospread.spread.settings import Profile

DEFAULT_CLUSTER: Final = "default"


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod of the state, by name; references are equal if they name the same.

    Attributes:
        uid: that it must have; empty: any.
    """

    name: str
    namespace: str = DEFAULT_NAMESPACE
    uid: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SettingsAsk:
    """By which rules to judge; empty: by the profile of the pod's schedulerName.

    Attributes:
        profile: a profile's name, or arguments given in the request.
        gates: feature gates by upstream's names.
    """

    profile: str | Profile = ""
    gates: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    """A what-if: a pod, or one of the state, on a node; an empty node means the pod's own."""

    pod: Pod | PodRef
    node: str = ""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """A choice of nodes: by name, or by position in a node table."""

    names: Sequence[str] = ()
    indices: Sequence[int] = ()
    node_table: str = ""


NO_SETTINGS: Final = SettingsAsk()


@dataclass(slots=True, eq=False)
class Ask:
    """What all decision calls ask. Not frozen, because that costs time; nobody changes one.

    Attributes:
        subject: the pod, its name in the state, or its shape with its name and uid; None when only
            a cycle is given.
        cycle: of an earlier PreFilter.
        nodes: None: the server's own choice.
        node_table: the table that the caller holds.
        deadline: of the call, on the monotonic clock.
        stages: filled in while the question is worked on.
    """

    deadline: float
    cluster: str = DEFAULT_CLUSTER
    subject: Pod | PodRef | ShapedPod | None = None
    cycle: str = ""
    add_pods: Sequence[Move] = ()
    remove_pods: Sequence[Move] = ()
    nodes: NodeChoice | None = None
    node_table: str = ""
    settings: SettingsAsk = NO_SETTINGS
    consistency: Consistency = NEWEST_AT_HAND
    validate: bool = False
    stages: Stages = field(default_factory=Stages)
