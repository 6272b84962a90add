"""Several redis-servers that belong together: master and replica, Sentinels, a Redis Cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis

from tests.redis_server import RedisProcess, free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Start = Callable[..., RedisProcess]

SERVICE = "main"


def replica_of(
    master: RedisProcess, start: Start, options: Mapping[str, str] | None = None
) -> RedisProcess:
    """A replica that has all of its master's data."""
    with master.client() as client:
        client.config_set("repl-diskless-sync-delay", "0")
    replica = start(options={"replicaof": f"127.0.0.1 {master.port}", **(options or {})})
    until(lambda: info(replica, "replication")["master_link_status"] == "up", "it replicates")
    return replica


def sentinel_of(
    master: RedisProcess, start: Start, down_after_ms: int = 60_000, replicas: int = 1
) -> RedisProcess:
    """A Sentinel that knows a master and its replicas, and decides alone."""
    (sentinel,) = sentinels_of(
        master, start, count=1, down_after_ms=down_after_ms, replicas=replicas
    )
    return sentinel


def sentinels_of(
    master: RedisProcess,
    start: Start,
    *,
    count: int = 3,
    down_after_ms: int = 60_000,
    replicas: int = 1,
    login: str = "",
) -> list[RedisProcess]:
    """Sentinels that know a master, its replicas and each other; most of them decide.

    Args:
        master: whom they watch.
        start: starts a server.
        count: how many there are.
        down_after_ms: for how long a server has to be silent to be taken for down.
        replicas: how many the master has.
        login: user and password, which are the same, at the Redis servers.
    """
    options = {
        "sentinel monitor": f"{SERVICE} 127.0.0.1 {master.port} {count // 2 + 1}",
        "sentinel down-after-milliseconds": f"{SERVICE} {down_after_ms}",
        "sentinel failover-timeout": f"{SERVICE} 5000",
    }
    if login:
        options |= {"sentinel auth-user": f"{SERVICE} {login}"}
        options |= {"sentinel auth-pass": f"{SERVICE} {login}"}
    sentinels = [start(sentinel=True, options=options) for _ in range(count)]
    for sentinel in sentinels:
        with sentinel.client() as client:
            until(
                lambda client=client: (  # type: ignore[misc] # of this turn
                    _known(client.sentinel_master(SERVICE)) == (replicas, count - 1)
                ),
                "the Sentinel knows the replicas and the others",
            )
    return sentinels


def _known(state: Mapping[str, Any]) -> tuple[int, int]:
    return state["num-slaves"], state["num-other-sentinels"]


def cluster_of(
    start: Start, count: int = 3, options: Mapping[str, str] | None = None
) -> list[RedisProcess]:
    """Masters of a Redis Cluster that share all slots."""
    servers = [
        start(
            options={
                "cluster-enabled": "yes",
                # Else it is the port 10,000 above, which may not be there.
                "cluster-port": str(free_port()),
                "cluster-node-timeout": "2000",
                **(options or {}),
            }
        )
        for _ in range(count)
    ]
    share = 16384 // count
    for number, server in enumerate(servers):
        last = 16383 if number == count - 1 else (number + 1) * share - 1
        with server.client() as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last)
            first = servers[0]
            if number:
                bus = int(first.options["cluster-port"])
                client.execute_command("CLUSTER MEET", "127.0.0.1", first.port, bus)
    until(lambda: all(_agrees(server, count) for server in servers), "all nodes agree")
    for server in servers:
        with server.client() as client:
            # Short enough for them to meet soon, and too short beside other work: who is not heard
            # of for so long is taken for dead.
            client.config_set("cluster-node-timeout", "60000")
    return servers


def _agrees(server: RedisProcess, count: int) -> bool:
    with server.client() as client:
        answer = client.execute_command("CLUSTER INFO")
        slots = client.execute_command("CLUSTER SLOTS")
    state = answer["cluster_state"] if isinstance(answer, dict) else ""
    return state == "ok" and len(slots) == count


def cluster_url(servers: Sequence[RedisProcess]) -> str:
    """What `--store` takes."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


def sentinel_url(*sentinels: RedisProcess, login: str = "") -> str:
    """What `--store` takes; login is user and password at the Redis servers."""
    named = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
    user = f"{login}:{login}@" if login else ""
    return f"redis+sentinel://{user}{named}/{SERVICE}"


def info(server: RedisProcess, section: str) -> dict[str, Any]:
    """What a server says of itself."""
    with server.client() as client:
        found: dict[str, Any] = client.info(section)
    return found


def fail_over(sentinel: RedisProcess, master: RedisProcess, replica: RedisProcess) -> None:
    """Let a Sentinel make the replica the master, and the master its replica."""

    def begun() -> bool:
        try:
            client.execute_command("SENTINEL FAILOVER", SERVICE)
        except redis.ResponseError as refused:
            # It has not heard enough of the replica yet, or is at it.
            return "INPROG" in str(refused)
        return True

    with sentinel.client() as client:
        until(begun, "the Sentinel takes the replica for a good one")
    until(lambda: is_master(replica), "the replica is promoted")
    # The Sentinel would do so as well, with its next look at the old master.
    demote(master, replica)


def is_master(server: RedisProcess) -> bool:
    """Whether a server takes writes; a Sentinel cuts connections when it changes that."""
    try:
        return info(server, "replication")["role"] == "master"
    except redis.ConnectionError:
        return False


def promote(replica: RedisProcess) -> None:
    """Make a replica a master, without asking its old one."""
    with replica.client() as client:
        client.replicaof("NO", "ONE")


def demote(server: RedisProcess, master: RedisProcess) -> None:
    """Make a server the replica of another one: what it had of its own is lost."""
    with server.client() as client:
        client.replicaof("127.0.0.1", str(master.port))


def is_node(server: RedisProcess, cluster: str) -> bool:
    """Whether a node of a Redis Cluster has a cluster's keys."""
    with server.client() as client:
        try:
            return bool(client.exists(f"ts:{{{cluster}}}:meta"))
        except redis.ResponseError:
            return False
