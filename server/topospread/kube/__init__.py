"""Kubernetes objects as frozen values: matching, the API server's validation, upstream's texts.

Pure functions of their arguments: no I/O, no state, nothing of gRPC, protobuf or any store.
Upstream facts are cited by their numbers in docs/upstream-semantics.md.

- ``objects``: the values; ``demands``: what a pod takes of its node.
- ``selectors``, ``affinity``: matching; ``workloads``: default selectors.
- ``validation``, with the errors of ``violations`` and the syntax of ``label_syntax``.
"""
