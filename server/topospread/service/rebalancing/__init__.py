"""PlanRebalance: the fewest evictions that bring constraints within maxSkew together.

`RebalancePlanner.plan()` is the entry. `inventory.py` finds constraints that do not hold, with all
that depend on them, and reads their pods; `model.py` sorts pods into types and nodes into classes;
`integer_program.py` finds the fewest moves; `evictions.py` puts them in an order in which each
replacement finds a node by the engine's own Filter.

A plan is an answer: nothing is evicted, written or held.
"""
