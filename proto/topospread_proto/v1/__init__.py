"""Package topospread.v1; the modules beside this file are generated from its .proto files."""
