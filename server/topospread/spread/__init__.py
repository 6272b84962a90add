"""The algebra of topology spreading: constraints, domains, skew, scores. NumPy and stdlib; no I/O."""
