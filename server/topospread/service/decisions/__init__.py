"""Decisions about a pod at a state: PreFilter, Filter, Score, and EvaluatePod, all in one."""
