"""What of a pod and of its scheduler no filter here looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.fit.pod_claims import provisioned_for
from topospread.service.fit.question import Fit
from topospread.spread.settings import DEFAULT_PROFILE
from topospread.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.index.snapshot import Snapshot
    from topospread.service.fit.question import FitQuestion

GATED: Final = "scheduling gates: not tried yet"
DRIVERS: Final = "volume drivers' own checks"
"""Of a driver that is still to make a volume: where it can, it says by capacity at most."""


def other_scheduler(asked: FitQuestion) -> str:
    """The scheduler that the pod names, where no profile has that name; otherwise empty."""
    name, profile = asked.pod.scheduler_name or DEFAULT_PROFILE, asked.rules.profile.name
    return "" if name == profile else name


def _unreadable(snapshot: Snapshot) -> Iterator[str]:
    """Objects that are absent because they cannot be read."""
    if snapshot.unreadable:
        kind, namespace, name = snapshot.unreadable[0]
        others = len(snapshot.unreadable) - 1
        more = f" and {counted(others, 'other object')}" if others else ""
        yield f"what cannot be read: {kind} {f'{namespace}/{name}' if namespace else name}{more}"


def gaps(asked: FitQuestion, fit: Fit) -> Iterator[str]:
    """What else decides whether and where the pod is bound."""
    yield from _unreadable(asked.snapshot)
    if name := other_scheduler(asked):
        yield f"schedulerName {name}: not this scheduler's"
    if asked.demand.gated:
        yield GATED
    yield from asked.rules.profile.foreign
    if fit is not Fit.SPREAD_ONLY and asked.demand.priority_class:
        yield f"priority class {asked.demand.priority_class}"
    if fit is not Fit.SPREAD_ONLY and any(provisioned_for(asked)):
        yield DRIVERS
