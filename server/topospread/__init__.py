"""One pod-topology-spread engine that schedulers, autoscalers and controllers share over gRPC."""
