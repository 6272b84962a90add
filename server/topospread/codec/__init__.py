"""Converts protobuf bytes to Kubernetes values and back; knows neither gRPC nor a backend."""
