"""The gRPC way in: servicers, interceptors, thread pools, error mapping."""
