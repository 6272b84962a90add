"""DynamicResources: nodes that reach the devices of the pod's claims, or have enough free ones.

Claims that have devices are looked at by their nodes. Of others the simple ones are: so many
devices, or all, of a class, where class and request compare the driver and nothing else. Where a
claim is not simple, devices refuse nothing, and a gap names it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.devices import devices_of
from topospread.kube.devices import DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice
from topospread.service.fit.question import PreFiltered, Refusals, Rule, refusing
from topospread.spread.verdicts import Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.objects import DriverDevices
    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools

NAME: Final = "DynamicResources"
UNAVAILABLE: Final = "resourceclaim not available on the node"
NOT_ENOUGH: Final = "cannot allocate all claims"

CLAIMS_OF_NO_POD: Final = "resource claims (claims that are made with the pod)"
DEVICE_TAINTS: Final = "device taints"
"""DeviceTaintRules are not read: they may keep claims from devices that are free."""

EXTENDED_RESOURCES: Final = "resource claims (extended resources of device classes)"

MAX_DEVICES: Final = 32
"""Devices that a claim may have."""

MAX_DRIVERS: Final = 32
"""Drivers that are looked at for one pod."""

NO_DRIVER: Final = "\0"
"""Has no devices."""

_CODE: Final = Code.UNSCHEDULABLE_AND_UNRESOLVABLE


class _Wanted(NamedTuple):
    """Devices that a request asks for; driver "" is any, number None is all."""

    claim: str
    driver: str
    number: int | None


def pre_filter(asked: FitQuestion) -> PreFiltered | None:
    """Refuse the pod where a claim of it or its class is missing."""
    if not asked.demand.resource_claims:
        return None
    reason = _missing_claim(asked) or _missing_class(asked)
    return PreFiltered(Status(_CODE, (reason,))) if reason else None


def _missing_claim(asked: FitQuestion) -> str:
    """Why a claim cannot be had; PreEnqueue asks the same and keeps the pod out of the queue."""
    objects, namespace = asked.snapshot.objects, asked.pod.namespace
    pod = f"{namespace}/{asked.name}"
    for each in asked.demand.resource_claims:
        if each.unsupported:
            none = "none of the supported fields are set"
            return f'pod "{pod}", spec.resourceClaim "{each.name}": {none}'
        if each.claim is None:
            if asked.uid:
                return f'pod "{pod}": ResourceClaim not created yet'
            continue
        claim = objects.resource_claim(namespace, each.claim)
        if claim is None:
            if objects.unknown(ResourceClaim.__name__):
                continue
            return f'could not find ResourceClaim "{namespace}/{each.claim}"'
        if claim.terminating:
            return f'resourceclaim "{each.claim}" is being deleted'
        if each.generated and asked.uid and claim.controller_uid != asked.uid:
            named = f"ResourceClaim {namespace}/{each.claim}"
            return f"{named} was not created for Pod {pod} (Pod is not owner)"
    return ""


def _missing_class(asked: FitQuestion) -> str:
    objects = asked.snapshot.objects
    if objects.unknown(DeviceClass.__name__):
        return ""
    for claim in _claims(asked):
        for request in claim.requests if claim.allocation is None else ():
            for name, class_name in request.classes:
                if class_name and objects.device_class(class_name) is None:
                    return f"request {name}: device class {class_name} does not exist"
    return ""


def _claims(asked: FitQuestion) -> Sequence[ResourceClaim]:
    """The claims that are there, each once."""
    find, namespace = asked.snapshot.objects.resource_claim, asked.pod.namespace
    names = dict.fromkeys(each.claim for each in asked.demand.resource_claims if each.claim)
    return [claim for name in names if (claim := find(namespace, name)) is not None]


def unallocated(asked: FitQuestion) -> bool:
    """Whether a claim is there that has no devices yet."""
    return any(claim.allocation is None for claim in _claims(asked))


def gaps(asked: FitQuestion) -> Iterable[str]:
    """What is not known or not looked at of the pod's claims."""
    if any(asked.snapshot.objects.is_of_class(name) for name, _ in asked.demand.requests):
        yield EXTENDED_RESOURCES
    if not asked.demand.resource_claims:
        return
    if any(each.claim is None for each in asked.demand.resource_claims) and not asked.uid:
        yield CLAIMS_OF_NO_POD
    claims = _claims(asked)
    kinds: list[type] = [ResourceClaim]
    if any(claim.allocation is None for claim in claims):
        kinds += [DeviceClass, ResourceSlice]
        yield DEVICE_TAINTS
    reasons = map(asked.snapshot.objects.unknown, [kind.__name__ for kind in kinds])
    yield from dict.fromkeys(f"resource claims ({reason})" for reason in reasons if reason)
    for claim in claims:
        if claim.allocation is not None and claim.allocation.special:
            yield _gap(claim.name, claim.allocation.special)
    yield from _not_simple(asked, claims)


def _gap(claim: str, reason: str) -> str:
    return f"resource claims (claim {claim}: {reason})"


def _not_simple(asked: FitQuestion, claims: Iterable[ResourceClaim]) -> Iterator[str]:
    """Why the devices of claims that have none yet are not looked at."""
    waiting = [claim for claim in claims if claim.allocation is None]
    if not waiting or not _devices_known(asked):
        return
    simple = True
    for claim in waiting:
        reason = _special(asked, claim)
        if reason:
            simple = False
            yield _gap(claim.name, reason)
    if not simple:
        return
    wanted = list(_wanted(asked, waiting))
    devices = _devices(asked, wanted)
    if devices is None:
        yield _gap(waiting[0].name, f"devices of more than {MAX_DRIVERS} drivers")
        return
    for named, driver, number in dict.fromkeys(wanted):
        checkpoint()
        found = devices.values() if not driver else [devices[driver]]
        reasons = [each.special for each in found if each.special]
        if number is None and not reasons:
            if any(each.incomplete.any() for each in found):
                reasons = ["all devices of a pool that is not complete"]
            elif any((each.there > MAX_DEVICES).any() for each in found):
                reasons = [f"all devices, more than {MAX_DEVICES}"]
        if reasons:
            yield _gap(named, reasons[0])


def _devices_known(asked: FitQuestion) -> bool:
    unknown = asked.snapshot.objects.unknown
    return not any(unknown(each.__name__) for each in (ResourceClaim, DeviceClass, ResourceSlice))


def _special(asked: FitQuestion, claim: ResourceClaim) -> str:
    """What makes a claim one that is not simple; empty for nothing."""
    if claim.special:
        return claim.special
    total = sum([request.count or 1 for request in claim.requests])
    if total > MAX_DEVICES:
        return f"more than {MAX_DEVICES} devices"
    for request in claim.requests:
        if request.special:
            return request.special
        for _, class_name in request.classes:
            found = asked.snapshot.objects.device_class(class_name)
            if not class_name:
                return "a request without a class"
            if found is not None and found.special:
                return f"{found.special} of class {class_name}"
    return ""


def _wanted(asked: FitQuestion, claims: Iterable[ResourceClaim]) -> Iterator[_Wanted]:
    """The devices of simple claims; where several drivers are asked for, of NO_DRIVER."""
    for claim in claims:
        for request in claim.requests:
            drivers = _drivers(asked, request)
            driver = NO_DRIVER if len(drivers) > 1 else next(iter(drivers), "")
            yield _Wanted(claim.name, driver, request.count)


def _drivers(asked: FitQuestion, request: DeviceRequest) -> frozenset[str]:
    of_class = asked.snapshot.objects.device_class(request.classes[0][1])
    return request.drivers if of_class is None else request.drivers | of_class.drivers


def _devices(asked: FitQuestion, wanted: Iterable[_Wanted]) -> Mapping[str, DriverDevices] | None:
    """The devices by driver; None for too many drivers."""
    drivers = {each.driver for each in wanted}
    if "" in drivers:
        drivers |= set(asked.snapshot.objects.drivers_of_devices())
        drivers.remove("")
    if len(drivers) > MAX_DRIVERS:
        return None
    return {driver: devices_of(asked.snapshot, driver) for driver in sorted(drivers)}


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes that do not reach a claim's devices, or have too few that are free."""
    if not asked.demand.resource_claims:
        return None
    claims = _claims(asked)
    away = _away(asked, claims)
    few = _too_few(asked, [claim for claim in claims if claim.allocation is None])
    # A node is asked for free devices before it is refused for those of other claims.
    return refusing(
        *(
            Rule(NAME, _CODE, [(reason, nodes)])
            for reason, nodes in ((NOT_ENOUGH, few), (UNAVAILABLE, away))
            if nodes is not None
        )
    )


def _away(asked: FitQuestion, claims: Iterable[ResourceClaim]) -> Bools | None:
    """[slots] nodes that do not reach the devices which claims have."""
    away: Bools | None = None
    for affinity in {each.allocation.affinity for each in claims if each.allocation is not None}:
        if affinity is None:
            continue
        checkpoint()
        reached = asked.snapshot.selected(affinity)
        away = ~reached if away is None else away | ~reached
    return away


def _too_few(asked: FitQuestion, claims: Sequence[ResourceClaim]) -> Bools | None:
    """[slots] nodes where claims that have no devices get none; None where it is not looked at."""
    if not claims or not _devices_known(asked) or any(_not_simple(asked, claims)):
        return None
    wanted = list(_wanted(asked, claims))
    devices = _devices(asked, wanted)
    if devices is None:
        return None
    slots = asked.snapshot.alive.size
    left = {driver: each.free for driver, each in devices.items()}
    few = np.zeros(slots, bool)
    whole = [each.driver for each in wanted if each.number is None]
    for driver in whole:
        checkpoint()
        of = list(devices) if not driver else [driver]
        there = sum([devices[each].there for each in of], np.zeros(slots, np.int64))
        free = sum([left[each] for each in of], np.zeros(slots, np.int64))
        few |= (there == 0) | (free != there)
        # Who takes all leaves none.
        left |= {each: np.zeros(slots, np.int64) for each in of}
    counts = Counter[str]()
    for each in wanted:
        counts[each.driver] += each.number or 0
    for driver, count in counts.items():
        if driver and count:
            few |= left[driver] < count
            left[driver] = left[driver] - count
    if counts[""]:
        few |= sum(left.values(), np.zeros(slots, np.int64)) < counts[""]
    return few
