"""Devices, their classes, and claims to them (dynamic resource allocation), as frozen values.

What is simple is read: so many devices, or all, of a class whose selectors compare the driver.
Anything else is named in ``special``, in words for an answer, and decides nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from topospread.kube.objects import NodeRequirements

ALL_DEVICES: Final = "All"
EXACT_COUNT: Final = "ExactCount"
"""Allocation modes."""

OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""What extended resources begin with that stand for devices of the class whose name follows."""

_STRING: Final = r"""(?:"([^"'\\]*)"|'([^"'\\]*)')"""
_DRIVER: Final = re.compile(rf"\s*device\.driver\s*==\s*{_STRING}\s*")


def selected_driver(expression: str) -> str | None:
    """The driver that an expression asks for; None where it asks for anything else."""
    found = _DRIVER.fullmatch(expression)
    return None if found is None else found.group(1) or found.group(2) or ""


class DeviceId(NamedTuple):
    """Names a device of a cluster."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """resource/v1 DeviceClass.

    Attributes:
        drivers: of which a device must have each; mostly one.
        extended_resource: the resource of containers that stands for one device; empty for none.
        special: what else decides; empty where nothing does.
    """

    name: str
    drivers: frozenset[str] = frozenset()
    extended_resource: str = ""
    special: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim.

    Attributes:
        classes: (name of the request or alternative, its class); all must exist.
        count: of devices; None for all.
        drivers: as of a class.
    """

    classes: tuple[tuple[str, str], ...]
    count: int | None = 1
    drivers: frozenset[str] = frozenset()
    special: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a claim has.

    Attributes:
        devices: that no other claim gets.
        affinity: the nodes that reach them; None for all.
        special: what else decides whether it is available; empty where nothing does.
    """

    devices: tuple[DeviceId, ...] = ()
    affinity: NodeRequirements | None = None
    special: str = ""


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """resource/v1 ResourceClaim.

    Attributes:
        controller_uid: of the controlling owner: the pod that it was made for.
        special: what it asks for beside its requests; empty where nothing is.
    """

    namespace: str
    name: str
    controller_uid: str = ""
    terminating: bool = False
    requests: tuple[DeviceRequest, ...] = ()
    special: str = ""
    allocation: Allocation | None = None


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """resource/v1 ResourceSlice; it is on a node, on those that a selector matches, or on all.

    Attributes:
        size: slices of the pool's generation.
        devices: their names.
        special: what else decides which of them are free; empty where nothing does.
    """

    name: str
    driver: str
    pool: str
    generation: int = 0
    size: int = 1
    node_name: str = ""
    affinity: NodeRequirements | None = None
    all_nodes: bool = False
    devices: tuple[str, ...] = ()
    special: str = ""


class PodResourceClaim(NamedTuple):
    """An entry of a pod's spec.resourceClaims.

    Attributes:
        claim: of the pod's namespace; None where it is not made yet.
        generated: it is made for the pod, and has to be its own.
        unsupported: it names neither a claim nor a template.
    """

    name: str
    claim: str | None = None
    generated: bool = False
    unsupported: bool = False


DeviceValue = ResourceClaim | DeviceClass | ResourceSlice
"""An object of resource/v1; the class's name is its kind."""
