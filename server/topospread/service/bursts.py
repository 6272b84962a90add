"""Notices pods that a scheduler asks about faster than the state learns where the last ones went.

Between the answer of filter and the feed's word that the pod is bound, other pods are judged as if
it were nowhere: a burst of them can break maxSkew. Place mode does not have this, so it is not
looked at there.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topospread.replica.replica import Replica
    from topospread.service.shapes import Shape, ShapedPod

SOON: Final = 5.0
"""Seconds after an answer in which its pod is still on its way; later it was not bound."""

MOST_SHAPES: Final = 1024


class Bursts:
    """Remembers, for each shape of pod, the last one that was told of nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: OrderedDict[tuple[str, Shape], tuple[str, str, float]] = OrderedDict()

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
            last = self._last.pop(key, None)
            self._last[key] = (pod.name, pod.uid, now)
            if len(self._last) > MOST_SHAPES:
                self._last.popitem(last=False)
        if last is None or last[:2] == (pod.name, pod.uid) or now - last[2] > SOON:
            return False
        return not replica.is_counted(namespace, last[0])
