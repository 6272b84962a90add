"""Package topospread.kubernetes.v1; the modules here are generated from its .proto files."""
