"""Lint: the rules on workloads."""
