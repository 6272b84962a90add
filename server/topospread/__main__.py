"""The console script, also as `python -m topospread`."""

from __future__ import annotations

from topospread.cli.main import main

if __name__ == "__main__":
    main()
