"""Runs it: python -m examples.scheduler --help."""

from __future__ import annotations

from examples.scheduler.scheduler import main

if __name__ == "__main__":
    main()
