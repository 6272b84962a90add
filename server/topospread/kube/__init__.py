"""Kubernetes objects as frozen values: matching, the API server's validation, upstream's texts.

Pure functions of their arguments: no I/O, no state, nothing of gRPC, protobuf or any store.
Upstream facts are cited by their numbers in docs/upstream-semantics.md.
"""
