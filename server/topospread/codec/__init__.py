"""Protobuf bytes to Kubernetes values and back; knows neither gRPC nor the store."""
