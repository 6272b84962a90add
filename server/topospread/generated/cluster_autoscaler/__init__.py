"""cluster-autoscaler's protocol for expanders."""
