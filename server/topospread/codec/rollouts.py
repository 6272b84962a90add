"""Manifests of workloads → how their pods are replaced: the one reader of strategies."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.manifest_parts import part_of
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.rollouts import Rollout, Share
from topospread_client import CONTROLLER_LABELS
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REVISION_LABELS: Final = {
    kind: CONTROLLER_LABELS[kind][0]
    for kind in ("Deployment", "Rollout", "CloneSet", "StatefulSet", "DaemonSet")
}
"""The label that tells revisions apart, by kind."""


_QUARTER: Final = Share(25, is_percentage=True)
_ONE: Final = Share(1)
_DIGITS: Final = re.compile(r"^\d{1,9}$")
_PERCENTAGE: Final = re.compile(r"^(\d{1,9})%$")


def rollout_of(kind: str, spec: Mapping[str, Any], wrong: list[FieldViolation]) -> Rollout | None:
    """How a workload is rolled out, by its kind's defaults; `wrong` gets what it cannot be.

    None of what is not: Recreate and updates in place add no pod before the old ones are gone, and
    OnDelete replaces none.
    """
    share = partial(_share, wrong)
    if kind == "Deployment":
        strategy = part_of(spec, "strategy")
        rolling = strategy.get("type") in (None, "", "RollingUpdate")
        if not rolling:
            return None
        return _rolling(
            share, part_of(strategy, "rollingUpdate"), kind, "spec.strategy.rollingUpdate"
        )
    if kind == "Rollout":
        strategy = part_of(spec, "strategy")
        if "blueGreen" in strategy:
            return Rollout(_QUARTER, Share(0), REVISION_LABELS[kind], doubles=True)
        canary = part_of(strategy, "canary")
        # Traffic is moved between two whole revisions, unless the old one is to shrink with it.
        is_whole = bool(canary.get("trafficRouting")) and not canary.get("dynamicStableScale")
        return replace(_rolling(share, canary, kind, "spec.strategy.canary"), doubles=is_whole)
    if kind == "DaemonSet":
        strategy = part_of(spec, "updateStrategy")
        path = "spec.updateStrategy.rollingUpdate.maxSurge"
        surge = share(part_of(strategy, "rollingUpdate").get("maxSurge"), path)
        if surge is None or not surge.number or strategy.get("type") == "OnDelete":
            return None
        return Rollout(surge, Share(0), REVISION_LABELS[kind])
    if kind == "StatefulSet":
        return _of_stateful_set(share, part_of(spec, "updateStrategy"))
    if kind == "CloneSet":
        strategy = part_of(spec, "updateStrategy")
        if str(strategy.get("type")).startswith("InPlace"):
            return None
        surge = share(strategy.get("maxSurge"), "spec.updateStrategy.maxSurge") or Share(0)
        lacking = share(strategy.get("maxUnavailable"), "spec.updateStrategy.maxUnavailable")
        most = lacking or Share(20, is_percentage=True)
        kept = _kept(share(strategy.get("partition"), "spec.updateStrategy.partition"), spec)
        return Rollout(surge, most, REVISION_LABELS[kind], partition=kept)
    return None


def is_on_delete(kind: str, spec: Mapping[str, Any]) -> bool:
    """Whether a pod gets a new template only once something else deletes it."""
    return kind == "StatefulSet" and part_of(spec, "updateStrategy").get("type") == "OnDelete"


def is_paused(spec: Mapping[str, Any]) -> bool:
    """Whether no pod of a new template is made."""
    return spec.get("paused") is True or part_of(spec, "updateStrategy").get("paused") is True


def rollout_from_proto(message: pb.RollingUpdate, path: str) -> Rollout | None:
    """How pods are replaced, of a request; None where none is.

    Raises:
        InvalidRequest: a share that is none.
    """
    wrong: list[FieldViolation] = []
    surge = _share(wrong, _number(message.max_surge), f"{path}.maxSurge")
    lacking = _share(wrong, _number(message.max_unavailable), f"{path}.maxUnavailable")
    if message.partition < 0:
        wrong.append(FieldViolation(f"{path}.partition", "must not be negative"))
    if wrong:
        raise InvalidRequest.of(wrong)
    if message.on_delete:
        return None
    return Rollout(
        surge or Share(0),
        lacking or Share(0),
        doubles=message.surges_all,
        ordered=message.ordered,
        partition=message.partition,
    )


def rollout_message(rollout: Rollout) -> pb.RollingUpdate:
    """The same for a request."""
    return pb.RollingUpdate(
        max_surge=str(rollout.max_surge),
        max_unavailable=str(rollout.max_unavailable),
        surges_all=rollout.doubles,
        ordered=rollout.ordered,
        partition=rollout.partition,
    )


def _kept(partition: Share | None, spec: Mapping[str, Any]) -> int:
    """Pods of a CloneSet that keep their template; less than 100% never keeps all of several."""
    if partition is None:
        return 0
    given = spec.get("replicas", 1)
    replicas = given if isinstance(given, int) and given > 0 else 0
    kept = partition.of(replicas, up=True)
    is_less = partition.is_percentage and partition.number < 100
    return replicas - 1 if is_less and kept >= replicas > 1 else kept


def _number(text: str) -> object:
    """What a manifest would have."""
    return int(text) if _DIGITS.match(text) else text or None


def _of_stateful_set(
    share: Callable[[object, str], Share | None], strategy: Mapping[str, Any]
) -> Rollout | None:
    if strategy.get("type") == "OnDelete":
        return None
    rolling = part_of(strategy, "rollingUpdate")
    path = "spec.updateStrategy.rollingUpdate.maxUnavailable"
    lacking = share(rolling.get("maxUnavailable"), path)
    partition = rolling.get("partition")
    return Rollout(
        Share(0),
        _ONE if lacking is None else lacking,
        REVISION_LABELS["StatefulSet"],
        ordered=True,
        partition=partition if isinstance(partition, int) and partition > 0 else 0,
    )


def _rolling(
    share: Callable[[object, str], Share | None], strategy: Mapping[str, Any], kind: str, path: str
) -> Rollout:
    surge = share(strategy.get("maxSurge"), f"{path}.maxSurge")
    lacking = share(strategy.get("maxUnavailable"), f"{path}.maxUnavailable")
    return Rollout(
        _QUARTER if surge is None else surge,
        _QUARTER if lacking is None else lacking,
        REVISION_LABELS[kind],
    )


def _share(wrong: list[FieldViolation], value: object, path: str) -> Share | None:
    """A number or a percentage; None where none is given, or neither, which `wrong` gets."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Share(value)
    if isinstance(value, str) and (found := _PERCENTAGE.match(value)):
        return Share(int(found[1]), is_percentage=True)
    wrong.append(FieldViolation(path, "must be a number of pods, or a percentage as in 25%"))
    return None
