"""What can be set about a store, with units and the reason for each default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Limits that both backends keep.

    Attributes:
        timeout: seconds that one call may take when its caller names none. Two seconds outlast a
            fork or a slow fsync of Redis, and stay below the deadlines that callers commonly set.
        connect_timeout: seconds to set up one connection; a reachable server answers in
            milliseconds.
        attempts: tries of one call within its time-out, for failures that a new connection may
            cure.
        connections: connections for reads and writes at most; followers have their own beside them.
        log_limit: changes the log keeps at least; about 1/64 more may be there. 100,000 changes are
            some tens of MB and let a follower be away for minutes at 1,000 changes a second.
        tombstone_seconds: how long a deletion outlives its object. Longer than any feeder's queue;
            an older write that comes later still brings the object back until the next list.
        tombstone_limit: deletions remembered at most in one cluster; the oldest go first. 20,000
            are a few MB and outlast a namespace's end.
        wait_replicas: how many replicas of Redis must have a write before it is answered. None by
            default: it costs a round trip to the farthest of them.
    """

    timeout: float = 2.0
    connect_timeout: float = 1.0
    attempts: int = 3
    connections: int = 32
    log_limit: int = 100_000
    tombstone_seconds: float = 600.0
    tombstone_limit: int = 20_000
    wait_replicas: int = 0

    def __post_init__(self) -> None:
        """Refuse what no backend could keep."""
        if min(self.timeout, self.connect_timeout) <= 0:
            raise ValueError("timeout and connect_timeout must be positive")
        if min(self.attempts, self.connections, self.log_limit) < 1:
            raise ValueError("attempts, connections and log_limit must be at least 1")
        if min(self.tombstone_seconds, self.tombstone_limit, self.wait_replicas) < 0:
            raise ValueError(
                "tombstone_seconds, tombstone_limit and wait_replicas must not be negative"
            )
