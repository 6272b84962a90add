"""The gRPC API: servicers, call pipeline, authorization, limits, thread pools, statuses."""
