"""Every way that rollouts can go, by counts of domains alone."""

from __future__ import annotations


def open_domains(counts, usable, max_skew, min_domains):
    """Domains that may take a pod; those from `usable` on have no node for it."""
    least = 0 if len(counts) < min_domains else min(counts)
    return [d for d in range(usable) if counts[d] + 1 - least <= max_skew]


def moved(counts, domain, pods):
    return tuple(count + pods * (at == domain) for at, count in enumerate(counts))


def placements(replicas, domains, usable, max_skew, min_domains):
    """Every spread of the replicas that scheduling them one by one can end with."""
    reached = {(0,) * domains}
    for _ in range(replicas):
        reached = {
            moved(counts, d, 1)
            for counts in reached
            for d in open_domains(counts, usable, max_skew, min_domains)
        }
    return reached


def rollouts_end(start, replicas, surge, unavailable, *, ranked=False, **rules):
    """Spreads of the new pods that a rollout can end with; None among them where it gets stuck."""

    def may_come(old, new):
        return open_domains([a + b for a, b in zip(old, new, strict=True)], **rules)

    return ends_of(start, replicas, surge, unavailable, may_come, ranked=ranked)


def ends_of(start, replicas, surge, unavailable, may_come, *, ranked=False):
    """As rollouts_end(), where a new pod may come into some domains, by the old and new pods.

    Where they are `ranked`, old pods go from the domains with the most pods, each being a node.
    """
    nothing = (0,) * len(start)
    waiting, seen = [(start, nothing)], set()
    ends: set[tuple[int, ...] | None] = set()
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        old, new = state
        total = sum(old) + sum(new)
        moves = []
        if sum(new) < replicas and total < replicas + surge:
            moves += [(old, moved(new, d, 1)) for d in may_come(old, new)]
        if sum(old) and total > replicas - unavailable:
            pods = {d: count + new[d] for d, count in enumerate(old) if count}
            least = max(pods.values()) - (total - replicas + unavailable - 1) if ranked else 0
            moves += [(moved(old, d, -1), new) for d, on in pods.items() if on >= least]
        if not sum(old) and sum(new) == replicas:
            ends.add(new)
        elif not moves:
            ends.add(None)
        waiting += moves
    return ends
