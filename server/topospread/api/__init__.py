"""topospread.v1 as functions: decode a request, call the use case, encode its answer."""
