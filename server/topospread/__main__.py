"""The console script, also as `python -m topospread`.

Who installs the package for its client, without the server's dependencies, gets this script all the
same: then it says what is missing.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    try:
        from topospread.cli.main import main as run
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("topospread"):
            raise
        sys.stderr.write(
            f"topospread: only the client is installed ({missing.name} is missing): "
            "pip install 'topospread[server]'\n"
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
