"""Typed clients, sync and aio, that need grpcio and protobuf only."""
