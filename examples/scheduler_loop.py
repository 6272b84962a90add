"""A scheduler in fifty lines: gives each waiting pod the best node, one after the other.

    python -m examples.scheduler_loop HOST:PORT [CLUSTER]

It evaluates each pod, which reserves nothing, and leaves out those that fit nowhere now.
PlacePod decides: it chooses from the newest state and reserves the node in the same step, so that
any number of these loops, also on other servers, never put more into a zone than maxSkew allows.

A real scheduler would bind the pod through the API server, which topospread watches; this one
writes the pod's node straight into topospread's state.
"""

from __future__ import annotations

import sys

from topospread_client import Client, Conflict, best
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod


def schedule(client: Client) -> dict[str, str]:
    """Place every waiting pod that fits; the node of each by the pod's name."""
    placed: dict[str, str] = {}
    revision = ""
    waiting = [found.pod for found in client.list_objects("Pod") if not found.pod.spec.node_name]
    for pod in waiting:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        # Not older than what this loop has written itself.
        look = client.evaluate_pod(pod, top_k=1, consistency=revision)
        if best(look) is None:
            print(f"{name} waits: {look.message}")
            continue
        try:
            place = client.place_pod(pod)
        except Conflict:
            print(f"{name} waits: others are placing too many at once")
            continue
        if not place.node:
            print(f"{name} waits: {place.message}")
            continue
        revision = bind(client, pod, place.node)
        placed[name] = place.node
        print(f"{name} runs on {place.node}")
    return placed


def bind(client: Client, pod: Pod, node: str) -> str:
    """Tell topospread that the pod runs there, which ends what is held for it; the revision."""
    bound = Pod()
    bound.CopyFrom(pod)
    bound.spec.node_name = node
    return client.apply_objects([bound]).meta.revision


if __name__ == "__main__":
    with Client(sys.argv[1], cluster=(sys.argv[2:] or ["default"])[0]) as connected:
        schedule(connected)
