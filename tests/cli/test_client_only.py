"""The console script where the client alone is installed."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = "import sys; sys.modules[{name!r}] = None; from topospread.__main__ import main; main()"


def run_without(name):
    command = [sys.executable, "-c", WITHOUT.format(name=name)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_says_what_to_install():
    ran = run_without("click")
    assert ran.returncode == 2
    assert ran.stderr == (
        "topospread: only the client is installed (click is missing): "
        "pip install 'topospread[server]'\n"
    )


def test_a_part_of_our_own_that_is_missing_is_no_such_case():
    assert "Traceback" in run_without("topospread.cli.main").stderr
