"""PlacePod and ReserveNode: choose a node and hold it, without breaking maxSkew."""
