"""The use cases: plain values in, plain values out, independent of every transport.

`decisions` (PreFilter, Filter, Score, EvaluatePod) and `state` (reads, writes, watches, leases) are
the base; `placement` and `explaining` rest on these, and `simulation`, `ranking`, `rebalancing` and
`extender` on all of them. The contract in pyproject.toml holds this order.
"""
