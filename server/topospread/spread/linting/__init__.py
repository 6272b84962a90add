"""What is wrong with a workload's constraints, by its manifest and, if known, its cluster.

`lint()` in `engine.py` is the entry: a `LintedWorkload` and `Knowledge` of a cluster to findings.
A rule is declared by `rule()` beside the function that finds it, in `rules.py`, `rollouts.py` or
`engine.py`, under a name that FindingCode has in the API; catalogue and SARIF follow from that.
`catalog.py` has what a rule is, `workloads.py` what rules look at.

Nothing here reads manifests (`codec/lint_manifests.py`) or states (`service/linting.py`).
"""
