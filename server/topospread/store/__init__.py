"""The state of clusters: objects, a change log, conditional writes. One contract, two backends.

``api`` is the contract; ``values`` and ``rules`` hold what both backends do alike. The backends do
not know each other, know nothing of Kubernetes (payloads are opaque bytes), keep no metrics and
write no logs: counting, tracing and caching are wrapped around a store by others.
"""
