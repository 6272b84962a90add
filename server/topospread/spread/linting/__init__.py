"""Lint: what a workload's manifest says about how its pods will be spread, and what is wrong there.

:func:`~topospread.spread.linting.engine.lint` is a pure function of the workload and of what is
known of the cluster, which may be nothing.
"""
