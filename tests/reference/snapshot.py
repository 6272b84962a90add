"""What the scheduler's cache holds of a cluster, and which of its pods are counted.

Facts F2, F6, F7, F8.
"""

from tests.reference.objects import (
    Json,
    items_of,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    spec_of,
)
from tests.reference.selectors import Selector


class Snapshot:
    """The nodes, and the pods on each.

    Succeeded and Failed pods, pods without spec.nodeName (nominated ones too) and pods on nodes
    that do not exist never reach the plugin (F8). Any other phase counts.
    """

    def __init__(self, cluster: Json) -> None:
        """Take the cluster apart.

        Args:
            cluster: lists of objects under nodes, pods, services, replicationControllers,
                replicaSets and statefulSets; its Kubernetes version under kubernetesVersion.
        """
        self.cluster = cluster
        version = cluster.get("kubernetesVersion", "1.38")
        self._counts_empty = tuple(map(int, version.split("."))) >= (1, 38)
        self.nodes = {name_of(node): node for node in items_of(cluster, "nodes")}
        self._pods: dict[str, list[Json]] = {name: [] for name in self.nodes}
        for pod in items_of(cluster, "pods"):
            node_name = spec_of(pod).get("nodeName") or ""
            phase = (pod.get("status") or {}).get("phase")
            if node_name in self._pods and phase not in ("Succeeded", "Failed"):
                self._pods[node_name].append(pod)

    def count(self, node_name: str, selector: Selector, namespace: str) -> int:
        """How many pods on the node the selector matches.

        Only the incoming pod's own namespace is counted (F6), terminating pods are not (F7), and
        before 1.38 an empty selector counts none although it matches all (F2).
        """
        if selector.empty and not self._counts_empty:
            return 0
        return sum(
            selector.matches(labels_of(pod))
            for pod in self._pods[node_name]
            if namespace_of(pod) == namespace and metadata_of(pod).get("deletionTimestamp") is None
        )
