"""The state of clusters: objects, a change log, conditional writes. One contract, several backends.

``api`` is the contract, with its values in ``model``. What backends do alike is in ``values`` (the
stored form), ``rules`` (leases, errors, trimming), ``writing`` (all of a write), ``checks`` (what
is refused before) and ``notifier`` (waking who follows); ``urls`` parses addresses, and
``dict_store`` has one cluster in memory. ``observed`` is wrapped around any of them.

The backends do not know each other, know nothing of Kubernetes (payloads are opaque bytes), keep no
metrics and write no logs: counting, tracing and caching are wrapped around a store by others.
"""
