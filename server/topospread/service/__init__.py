"""The use cases, independent of every transport: values in, the API's messages out.

`messages` is at the base; on it `decisions` (PreFilter, Filter, Score, EvaluatePod) and `state`
(reads, writes, watches); on these `placement` and `explaining`; and on all of them
`simulation`, `ranking`, `rebalancing`, `linting`, `inspecting` and `extender`. Only `decisions`
answers with values. The contract in pyproject.toml holds this order.
"""
