"""The use cases, independent of every transport: values in, the API's messages out.

`decisions` (PreFilter, Filter, Score, EvaluatePod) and `state` (reads, writes, watches, leases) are
the base; `placement` and `explaining` rest on these, and `simulation`, `ranking`, `rebalancing` and
`extender` on all of them. Only `decisions` answers with values. The contract in pyproject.toml
holds this order.
"""
