"""Where and with what figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = (
    "topospread",
    "grpcio",
    "protobuf",
    "numpy",
    "redis",
    "hiredis",
    "opentelemetry-sdk",
    "prometheus-client",
)


def environment() -> dict[str, Any]:
    """The machine, the versions, and how busy the machine is now."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": _model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of the source, with a + when it was changed since; empty outside a repository."""
    here = Path(__file__).parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return told.stdout.strip()
