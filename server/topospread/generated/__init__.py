"""Generated modules of the server alone: the store's format, and the autoscaler's protocol."""
