"""The units for several processes on one machine: systemd takes them, and so does `serve`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.deploy.files import ROOT
from tests.requirements import machine_has
from topospread.cli.commands.serve import command
from topospread.config.loading import load_settings
from topospread.config.values import Address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNITS = ROOT / "deploy" / "systemd"


def started(unit: str, instance: int) -> list[str]:
    """The words of a unit's ExecStart."""
    (line,) = re.findall(r"^ExecStart=(.*)$", (UNITS / unit).read_text("utf-8"), re.MULTILINE)
    return shlex.split(line.replace("%i", str(instance)).replace("$$", "$"))


def test_instance_shares_the_address_and_has_its_own_http():
    _, verb, *arguments = started("topospread@.service", 7951)
    flags = command.make_context(verb, arguments).params
    settings = load_settings(flags, {"XDG_STATE_HOME": "/var/lib"}, "")
    assert settings.reuse_port
    assert settings.listen == Address("127.0.0.1", 7946)
    assert settings.http == Address("127.0.0.1", 7951)
    assert settings.store == "sqlite:////var/lib/topospread/state.db"


@machine_has("systemd-analyze")
@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.iterdir()))
def test_systemd_finds_nothing_wrong(unit: str, tmp_path: Path) -> None:
    for path in UNITS.iterdir():
        # The program is not installed here.
        text = path.read_text("utf-8").replace("/opt/topospread/bin/topospread", "/bin/true")
        (tmp_path / path.name.replace("@", "@7951")).write_text(text)
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.replace("@", "@7951"))],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


class Answering(BaseHTTPRequestHandler):
    """Answers each request."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.fixture(params=["hangs", "answers", "is gone"])
def listener(request: pytest.FixtureRequest) -> Iterator[tuple[int, bool]]:
    """The port of a process, and whether it hangs."""
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        if request.param == "answers":
            thread = threading.Thread(target=partial(server.serve_forever, 0.01))
            thread.start()
            yield server.server_port, False
            server.shutdown()
            thread.join()
        elif request.param == "hangs":
            # The system takes its connections, and it does not.
            yield server.server_port, True
    if request.param == "is gone":
        yield server.server_port, False


@machine_has("curl")
def test_process_is_killed_if_it_hangs(listener: tuple[int, bool], tmp_path: Path) -> None:
    port, hangs = listener
    systemctl = tmp_path / "systemctl"
    systemctl.write_text('#!/bin/sh\necho "$@"\n')
    systemctl.chmod(0o700)
    shell, *arguments = started("topospread-livez@.service", port)
    # No test waits as long as the unit, but for a process that answers.
    if hangs:
        arguments = [each.replace("--max-time 3", "--max-time 0.5") for each in arguments]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run([shell, *arguments], env=path, capture_output=True, text=True)
    killed = f"kill --signal=SIGKILL topospread@{port}.service\n" if hangs else ""
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, killed, "")
