"""The state of clusters: objects, a change log, conditional writes. One contract, two backends.

``api`` is the contract; ``values``, ``rules`` and ``writing`` hold what backends do alike. The
backends do not know each other, know nothing of Kubernetes (payloads are opaque bytes), keep no
metrics and write no logs: counting, tracing and caching are wrapped around a store by others.
"""
