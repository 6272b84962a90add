"""The resources that a pod takes from its node, and what else it demands of it.

Quantities are read as apimachinery's ``resource.ParseQuantity`` does: decimal numbers with a binary
suffix (Ki … Ei), a decimal one (n, u, m, none, k, M … E) or an exponent (e3, E-2). What is finer
than a billionth is rounded up, and so are amounts when they are asked for in a unit: thousandths
for cpu, whole ones for all others, as the scheduler counts. Pods are added up as ``PodRequests`` of
component-helpers' ``resource`` package does (KEP-753 for sidecars, KEP-2837 for resources of the
whole pod).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.kube.devices import PodResourceClaim
    from topospread.kube.pod_affinity import AffinityTerm

_QUANTITY: Final = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([A-Za-z]*+)([+-]?[0-9]*)")
_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
}
_LARGEST: Final = 2**63 - 1
_FINEST: Final = 10**9
_LONGEST: Final = 64
_EXPONENT: Final = 64


class QuantityError(ValueError):
    """Text that is no quantity."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Fraction:
    """The amount that a quantity stands for.

    Raises:
        QuantityError: the text is none, or far longer than any that is meant.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(f"{text[:_LONGEST]!r} is no quantity")
    sign, whole, part, suffix, exponent = match.groups()
    if not whole and not part:
        raise QuantityError(f"{text!r} has no digits")
    number = Fraction(int(whole or "0"))
    if part:
        number += Fraction(int(part), 10 ** len(part))
    amount = number * _factor(text, suffix, exponent)
    billionths = _ceiling(amount * _FINEST)
    amount = min(Fraction(billionths, _FINEST), Fraction(_LARGEST))
    return -amount if sign == "-" else amount


def whole_units(quantity: Fraction) -> int:
    """``Value()``: rounded up to whole units."""
    return _up(quantity)


def thousandths(quantity: Fraction) -> int:
    """``MilliValue()``: rounded up to thousandths."""
    return _up(quantity * 1000)


def _factor(text: str, suffix: str, exponent: str) -> Fraction:
    if not exponent:
        if suffix in _BINARY:
            return Fraction(_BINARY[suffix])
        if suffix in _DECIMAL:
            return _DECIMAL[suffix]
    elif suffix in ("e", "E") and exponent not in ("+", "-"):
        power = int(exponent)
        if abs(power) <= _EXPONENT:
            return Fraction(10) ** power
    raise QuantityError(f"{text!r} has an unknown suffix")


def _up(amount: Fraction) -> int:
    """Away from zero for what is above it, as upstream scales."""
    return min(_ceiling(amount), _LARGEST) if amount >= 0 else -min(_ceiling(-amount), _LARGEST)


def _ceiling(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)


CPU: Final = "cpu"
MEMORY: Final = "memory"
HUGE_PAGES: Final = "hugepages-"

LARGEST: Final = 1 << 50
"""Units past which more makes no difference, so that sums over the pods of a node stay exact."""

Requests = tuple[tuple[str, int], ...]
"""(resource, amount) sorted by resource: equal requests are equal tuples."""


TCP: Final = "TCP"
ALL_ADDRESSES: Final = "0.0.0.0"


Part = tuple[str | int | bool, ...]
"""What unequal ports or disks conflict over: an entry of one is looked up by that of another."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of a node that a pod takes.

    Attributes:
        ip: of the node; :data:`ALL_ADDRESSES` stands for each.
    """

    port: int
    protocol: str = TCP
    ip: str = ALL_ADDRESSES

    @property
    def parts(self) -> Iterable[Part]:
        """What it takes beside itself: of its number one address, where it does not take all."""
        return () if self.ip == ALL_ADDRESSES else ((self.protocol, self.port),)

    @property
    def conflicting(self) -> Iterable[HostPort | Part]:
        """The ports and parts of which no node has any beside this port."""
        if self.ip == ALL_ADDRESSES:
            return self, (self.protocol, self.port)
        return self, HostPort(self.port, self.protocol)


GCE_PD: Final = "kubernetes.io/gce-pd"
AWS_EBS: Final = "kubernetes.io/aws-ebs"
ISCSI: Final = "kubernetes.io/iscsi"
RBD: Final = "kubernetes.io/rbd"
CINDER: Final = "kubernetes.io/cinder"
VSPHERE: Final = "kubernetes.io/vsphere-volume"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
PORTWORX: Final = "kubernetes.io/portworx-volume"


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that a pod names itself, without a claim.

    Attributes:
        plugin: in-tree plugin.
        handle: its name there: pdName, volumeID, IQN, pool/image, diskURI or volumePath.
        monitors: of RBD, sorted; images of one name are one if they share any.
    """

    plugin: str
    handle: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()

    @property
    def parts(self) -> Iterable[Part]:
        """What it takes beside itself: an image at each of its monitors."""
        if self.plugin != RBD:
            return ()
        return [(RBD, self.handle, each, self.read_only) for each in dict.fromkeys(self.monitors)]

    @property
    def conflicting(self) -> Iterable[Disk | Part]:
        """The disks and parts of which no node has any beside it: ``isVolumeConflict``."""
        if self.plugin not in (AWS_EBS, GCE_PD, ISCSI, RBD):
            return ()
        # But for AWS, all may read at once.
        shared = self.read_only and self.plugin != AWS_EBS
        access = (False,) if shared else (False, True)
        if self.plugin != RBD:
            return [Disk(self.plugin, self.handle, each) for each in access]
        return ((RBD, self.handle, at, each) for at in self.monitors for each in access)


@dataclass(frozen=True, slots=True)
class PodVolume:
    """A volume of a pod that scheduling looks at.

    Attributes:
        claim: name of a PersistentVolumeClaim in the pod's namespace; empty for none, and where
            each pod has its own: see `from_template`.
        ephemeral: its claim is made for the pod; see :func:`claim_name`.
        disk: None where it has a claim.
        read_only: as mounted.
    """

    name: str
    claim: str = ""
    ephemeral: bool = False
    disk: Disk | None = None
    read_only: bool = False

    @property
    def from_template(self) -> bool:
        """Whether its workload makes the claim for the pod, as a StatefulSet does.

        The volume has the template's name; no name in a class of pods of the state.
        """
        return not (self.claim or self.ephemeral or self.disk)


def claim_name(volume: PodVolume, pod: str) -> str:
    """The claim of a volume of the pod with this name; empty for none."""
    if volume.ephemeral:
        return f"{pod}-{volume.name}"
    if volume.from_template and volume.name and pod:
        return f"{volume.name}-{pod}"
    return volume.claim


@dataclass(frozen=True, slots=True)
class Demand:
    """A pod's demand of its node.

    Attributes:
        requests: what it takes.
        node_name: spec.nodeName.
        ports: of containers and sidecars, each once.
        volumes: those with a claim or a disk.
        affinity: required terms of inter-pod affinity.
        anti_affinity: required ones of anti-affinity.
        priority_class: that of a pod to be made, where its priority is not known.
        preempts: others of lower priority may be evicted for it.
        needed_features: that its node must declare, sorted (KEP-5328).
        gated: scheduling gates hold it.
        resource_claims: to devices.
        has_terms: it has required inter-pod affinity or anti-affinity.
    """

    requests: Requests = ()
    node_name: str = ""
    ports: tuple[HostPort, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    priority: int = 0
    priority_class: str = ""
    preempts: bool = True
    needed_features: tuple[str, ...] = ()
    gated: bool = False
    resource_claims: tuple[PodResourceClaim, ...] = ()
    has_terms: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        """Look at the terms once: decisions ask of each pod whether there are any."""
        object.__setattr__(self, "has_terms", bool(self.affinity or self.anti_affinity))

    @property
    def nbytes(self) -> int:
        """Bytes, about, of what it demands."""
        size = sum([170 + len(name) for name, _ in self.requests])
        size += 200 * len(self.ports) + 500 * len(self.volumes)
        size += 250 * len(self.resource_claims)
        return size + sum([each.nbytes for each in (*self.affinity, *self.anti_affinity)])


NO_DEMAND: Final = Demand()


@dataclass(frozen=True, slots=True)
class Holds:
    """What a pod holds of its node beside amounts; pods that hold the same share one object.

    Attributes:
        ports: each once.
        disks: that it names itself, each once.
        claims: namespace/name of its claims, ephemeral ones among them.
        terms: its required anti-affinity: which pods it keeps away from its domains.
    """

    ports: tuple[HostPort, ...] = ()
    disks: tuple[Disk, ...] = ()
    claims: tuple[str, ...] = ()
    terms: tuple[AffinityTerm, ...] = ()
    priority: int = 0


NOTHING_HELD: Final = Holds()


def holds_of(demand: Demand, namespace: str, pod: str) -> Holds | None:
    """What a pod with this demand holds where it runs; None for nothing."""
    claims = [name for each in demand.volumes if (name := claim_name(each, pod))]
    held = Holds(
        demand.ports,
        tuple(dict.fromkeys(each.disk for each in demand.volumes if each.disk is not None)),
        tuple([f"{namespace}/{name}" for name in dict.fromkeys(claims)]),
        demand.anti_affinity,
        demand.priority,
    )
    return None if held == NOTHING_HELD else held


@dataclass(frozen=True, slots=True)
class Container:
    """Requests of one container; a sidecar is an init container that goes on running."""

    requests: Mapping[str, Fraction]
    sidecar: bool = False


def in_units(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Amounts in the scheduler's units, none above LARGEST."""
    return {
        name: min(thousandths(amount) if name == CPU else whole_units(amount), LARGEST)
        for name, amount in amounts.items()
    }


def amount_text(name: str, amount: int) -> str:
    """An amount in the scheduler's units as people write it: 500m of cpu, 2Gi of memory."""
    if name == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    shift = max((n for n in range(7) if amount and not amount % 1024**n), default=0)
    return f"{amount >> 10 * shift}{('', *_BINARY)[shift]}"


def pod_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    overhead: Mapping[str, Fraction] | None = None,
    whole_pod: Mapping[str, Fraction] | None = None,
) -> Requests:
    """The requests of a pod, in the scheduler's units.

    The larger of what its containers with the sidecars take together, and what any step of its
    initialization takes with the sidecars begun before it; for the resources that the pod has
    requests of its own for, those instead; and its overhead.
    """
    running = _sum(each.requests for each in containers)
    begun: dict[str, Fraction] = {}
    beginning: dict[str, Fraction] = {}
    for each in init_containers:
        # What a step does not name is as large as it was when a sidecar last changed it.
        for name, amount in each.requests.items():
            step = begun[name] + amount if name in begun else amount
            if each.sidecar:
                running[name] = running[name] + amount if name in running else amount
                begun[name] = step
            beginning[name] = max(beginning[name], step) if name in beginning else step
    total = _largest(running, beginning)
    for name, amount in (whole_pod or {}).items():
        if name in (CPU, MEMORY) or name.startswith(HUGE_PAGES):
            total[name] = amount
    units = in_units(_sum((total, overhead or {})))
    return tuple(sorted((name, amount) for name, amount in units.items() if amount))


def _sum(parts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _largest(left: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> dict[str, Fraction]:
    names = dict.fromkeys((*left, *right))
    return {
        name: max(amounts)
        for name in names
        if (amounts := [side[name] for side in (left, right) if name in side])
    }
