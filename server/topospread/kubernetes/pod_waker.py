"""Makes kube-scheduler retry an unschedulable pod, by a condition in the pod's status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topospread.kubernetes.api_server import ApiServer
    from topospread.service.extender.unschedulable_pods import UnschedulablePod

CONDITION: Final = "topospread.io/FitsAgain"
"""Type of the condition; kube-scheduler takes any change of a waiting pod for an event."""

REASON: Final = "RoomAppeared"


class PodWaker:
    """Writes the condition; see :class:`~topospread.service.extender.unschedulable_pods.Wake`.

    Args:
        api: the pods' API server, which must allow to patch ``pods/status``.
    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def __call__(self, pod: UnschedulablePod, message: str, /) -> None:
        """See Wake."""
        now = datetime.now(UTC)
        second = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": CONDITION,
            "status": "True",
            "reason": REASON,
            # The exact time makes each write a change, which watches report.
            "message": f"{message}: to be scheduled again ({now.isoformat()})",
            "lastProbeTime": second,
            "lastTransitionTime": second,
        }
        self._api.patch(
            f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status",
            # Another pod of the same name is left alone.
            {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
        )
