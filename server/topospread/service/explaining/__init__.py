"""ExplainPod: reports by constraint and domain, findings, and suggestions that were tried out.

`explain()` answers a request; `explain_at()` explains a pod at any snapshot, as Simulate does for
what stays pending. `context.py` is the judgement that all of it rests on, and that suggestions
vary; `constraint_reports.py` counts domains, `findings.py` says what is wrong with constraints,
`suggestions.py` what would let the pod in.

Verdicts are those of Filter and Score: nothing is judged here by rules of its own.
"""
