"""Inspector: the constraints in force, how their pods are spread, and what holds them up.

`statuses.py` has the values, `inventory.py` sorts pod classes by what they demand, `judging.py`
works out the numbers, `cluster_inspector.py` keeps one cluster's in step, `inspector.py` shares
them among all who ask, `describing.py` tells all of one, `monitoring.py` looks at all of them in
the background.
"""
