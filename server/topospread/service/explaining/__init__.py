"""ExplainPod: reports by constraint and domain, findings, and suggestions that were tried out.

`explain()` answers a request; `explain_at()` explains a pod at any snapshot, as Simulate does for
what stays pending. `context.py` is the judgement that all of it rests on, and that suggestions
vary; `constraint_reports.py` counts domains, `findings.py` says what is wrong with constraints,
`cause.py` what keeps the pod out.

`suggestions.py` says what would let it in: candidates of `constraint_changes.py`, `new_nodes.py`,
`new_domains.py` and `node_changes.py` are judged there, in one place, and ordered by
`proposals.Rank`. Simulate's advice on more nodes begins with the same `new_nodes.added_node`.

Verdicts are those of Filter and Score: nothing is judged here by rules of its own.
"""
