"""The gRPC way in that cluster-autoscaler's expander protocol describes."""
