"""What a node of a test offers where its test is about something else."""

from __future__ import annotations

from typing import Final

ROOMY: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}
"""A node without allocatable takes no pod, so every node has this where nothing else is said."""
