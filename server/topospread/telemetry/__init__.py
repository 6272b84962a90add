"""Tracing, metrics and structured logs; imports no other package but the error tree."""
