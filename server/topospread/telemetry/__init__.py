"""Tracing, metrics and structured logs; knows no room but the error tree."""
