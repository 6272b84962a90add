"""One file a use case; no transport, no protobuf, no names of backends."""
