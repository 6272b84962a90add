"""PlanRebalance: the fewest evictions that bring constraints within maxSkew together."""
