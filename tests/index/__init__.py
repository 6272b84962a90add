"""The incrementally counted index against plain counting, whatever happens to a cluster."""
