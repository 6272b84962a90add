"""A scheduler in forty lines: gives each waiting pod the best node, one after the other.

    python -m examples.scheduler_loop HOST:PORT [CLUSTER]

A real scheduler would bind the pod through the API server and let its watch tell topospread; this
one writes the pod's node straight into topospread's state.
"""

from __future__ import annotations

import sys

from topospread_client.answers import Kind
from topospread_client.client import Client
from topospread_client.requests import Consistency
from topospread_proto.v1.kubernetes_pb2 import Pod


def schedule(client: Client) -> dict[str, str]:
    """Place every waiting pod that fits; the node of each by the pod's name."""
    placed: dict[str, str] = {}
    revision = ""
    waiting = [found.pod for found in client.list(Kind.POD) if not found.pod.spec.node_name]
    with client.evaluate_stream() as stream:
        for pod in waiting:
            # Each decision must see the placement before it.
            fresh = Consistency(at_least_as_fresh=revision)
            evaluation = stream.evaluate(pod, top_k=1, consistency=fresh)
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            if evaluation.best is None:
                print(f"{name} waits: {evaluation.message}")
                continue
            bound = Pod()
            bound.CopyFrom(pod)
            bound.spec.node_name = placed[name] = evaluation.best
            revision = client.apply([bound]).revision
            print(f"{name} runs on {evaluation.best}")
    return placed


if __name__ == "__main__":
    with Client(sys.argv[1], cluster=(sys.argv[2:] or ["default"])[0]) as connected:
        schedule(connected)
