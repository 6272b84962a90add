"""Replicas: one in-memory index a cluster, kept in step with the store's log.

A replica lists a cluster once, then follows its log in one thread; decision threads read the newest
:class:`~topospread.replica.view.View` without a lock. Freshness (waiting for a revision, staleness)
is resolved here, once a call. Knows the store by its protocols only.

``follower`` reads the log; ``state`` has index and view, and ``view`` tokens and freshness;
``replica`` is what callers wait at, and ``replicas`` has all; ``timers`` has pauses and expiries.
"""
