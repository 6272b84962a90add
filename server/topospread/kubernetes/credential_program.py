"""Runs the program of a kubeconfig that makes credentials: bounded in time and in what it prints.

The official client waits for such a program, and for all that have its output open, as long as they
please, and keeps all that they print.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from typing import Any, Final

PROGRAM_SECONDS: Final = 60.0
"""In which it must end; `--timeout` of a command may end it earlier."""

MOST_BYTES: Final = 1 << 20
"""Of what it prints: a token has some thousand."""

_LEFT_OPEN_SECONDS: Final = 0.5
"""For output that it left in the pipe, where a child of it keeps that open."""

_LOOK_SECONDS: Final = 0.05

_running: Final[set[_Program]] = set()
_lock: Final = threading.Lock()


def end_programs() -> None:
    """End all that run, with their children: nobody waits for credentials any more."""
    with _lock:  # a program is started under it: none runs that is not known yet
        running = list(_running)
    for each in running:
        each.kill()


class _Program:
    """One that runs, in a process group of its own unless it may ask somebody at the terminal."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str], folder: str | None, *, asks: bool
    ) -> None:
        self._group = not asks and os.name == "posix"
        with _lock:
            self._process = subprocess.Popen(
                arguments,
                env=environment,
                cwd=folder,
                stdin=None if asks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if asks else subprocess.PIPE,
                process_group=0 if self._group else None,
            )
            _running.add(self)

    def kill(self) -> None:
        """End it and its group."""
        with suppress(OSError):
            if self._group:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def output(self) -> tuple[int, str, str]:
        """Its exit code, and what it printed to stdout and stderr.

        Raises:
            ValueError: it did not end, or printed too much.
        """
        process, deadline = self._process, time.monotonic() + PROGRAM_SECONDS
        try:
            found = self._read(deadline)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            self.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise ValueError(_too_late()) from error
            raise
        finally:
            with _lock:
                _running.discard(self)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return code, found[0], found[1]

    def _read(self, deadline: float) -> list[str]:
        pipes = [self._process.stdout, self._process.stderr]
        found: dict[Any, bytes] = dict.fromkeys(pipes, b"")
        with selectors.DefaultSelector() as selector:
            for pipe in filter(None, pipes):
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                if self._process.poll() is not None:
                    deadline = min(deadline, time.monotonic() + _LEFT_OPEN_SECONDS)
                ready = selector.select(_LOOK_SECONDS)
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    found[key.fileobj] += chunk
                    if not chunk:
                        selector.unregister(key.fileobj)
                if sum(map(len, found.values())) > MOST_BYTES:
                    raise ValueError(f"it printed more than {MOST_BYTES >> 20} MiB")
                if time.monotonic() > deadline:
                    if self._process.poll() is not None:
                        break
                    raise ValueError(_too_late())
        return [found[pipe].decode(errors="replace") if pipe else "" for pipe in pipes]


def _too_late() -> str:
    return f"it did not end within {PROGRAM_SECONDS:g} s"


@cache
def bounded_provider() -> Any:
    """The official client's class that runs such a program, bounded."""
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider

    provider: Any = ExecProvider  # without types

    class BoundedProvider(provider):  # type: ignore[misc] # its base has no types
        def __init__(self, exec_config: Any, cwd: str, cluster: Any = None) -> None:
            super().__init__(exec_config, cwd, cluster)
            self._may_ask = exec_config.safe_get("interactiveMode") != "Never"

        def run(self, previous_response: Any = None) -> Any:
            del previous_response
            asks = self._may_ask and sys.stdin is not None and sys.stdin.isatty()
            spec: dict[str, Any] = {"interactive": asks}
            if self.cluster:
                spec["cluster"] = cluster = dict(self.cluster.value)
                for each in cluster.get("extensions") or ():
                    if each["name"] == "client.authentication.k8s.io/exec":
                        cluster["config"] = each["extension"]
            info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
            self.env["KUBERNETES_EXEC_INFO"] = json.dumps(info)
            program = _Program(self.args, self.env, self.cwd, asks=asks)
            try:
                code, printed, said = program.output()
            except ValueError as error:
                raise ConfigException(f"exec: {error}") from error
            if code:
                said = said.strip()
                raise ConfigException(f"exec: process returned {code}" + (said and f". {said}"))
            return _status(printed, self.api_version, ConfigException)

    return BoundedProvider


def _status(printed: str, version: str, error: type[Exception]) -> Any:
    """The status of the credentials that were printed."""
    try:
        credentials = json.loads(printed)
    except ValueError as wrong:
        raise error(f"exec: failed to decode process output: {wrong}") from wrong
    for key in ("apiVersion", "kind", "status"):
        if not isinstance(credentials, dict) or key not in credentials:
            raise error(f"exec: malformed response. missing key '{key}'")
    if credentials["apiVersion"] != version:
        raise error(
            f"exec: plugin api version {credentials['apiVersion']} does not match {version}"
        )
    return credentials["status"]
