"""Notices pods that a scheduler asks about faster than the state learns where the last ones went.

Between the answer of filter and the feed's word that the pod is bound, other pods are judged as if
it were nowhere: a burst of them can break maxSkew. Place mode does not have this, so it is not
looked at there.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.bounded import Bounded, Budget

if TYPE_CHECKING:
    from topospread.replica.replica import Replica
    from topospread.service.shapes import Shape, ShapedPod

SOON: Final = 5.0
"""Seconds after an answer in which its pod is still on its way; later it was not bound."""


class Bursts:
    """Remembers, for each shape of pod, the last one that was told of nodes."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._lock = threading.Lock()
        self._last: Bounded[tuple[str, Shape], tuple[str, str, float]] = Bounded(
            budget or Budget.usual("bursts")
        )

    def outran(self, replica: Replica | None, pod: ShapedPod) -> bool:
        """Whether the pod of this shape before this one is not in the state yet.

        Args:
            replica: of the pod's cluster.
            pod: which was just told of nodes that it fits; noted as the last one.
        """
        if replica is None:
            return False
        namespace, now = pod.shape.pod.namespace, time.monotonic()
        key = (replica.cluster, pod.shape)
        with self._lock:
            last = self._last.get(key)
            size = 400 + pod.shape.size + len(pod.name) + len(pod.uid)
            self._last.put(key, (pod.name, pod.uid, now), size)
        if last is None or last[:2] == (pod.name, pod.uid) or now - last[2] > SOON:
            return False
        return not replica.is_counted(namespace, last[0])
