"""Simulate, and the choice between node groups: placements on a state that is changed in memory.

`simulate()` answers Simulate and `choose_options()`, in `scale_up.py`, the autoscaler's expander
(`scale_up_outcomes.py` has its rules, `openable_domains.py` the domains that
node groups could add).
`request.py` checks what is asked, `batches.py` makes batches of its pods, `scenario.py` completes
it with the live state, against which `checks.py` holds it. `workloads.py` finds the pods of
workloads that are there, and `plans.py` says what is left to place of these (`templates.py`: of
which template). `run.py` places the pods one by one by PlacePod's own choice, `fewest_nodes.py`
looks for the fewest nodes, `simulate.py` tells what came of it.

Nothing is written, and no view that others see is changed.
"""
