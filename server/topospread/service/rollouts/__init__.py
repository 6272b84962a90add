"""Rolling updates: what becomes of one, given the nodes and the pods that are there."""
