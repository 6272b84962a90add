"""Reads what the deployment is made of: the compose file, Dockerfiles and configurations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
FOLDER = ROOT / "deploy" / "compose"

_INSTRUCTION = re.compile(r"^([A-Z]+)\s+(.*)$")


def parsed(path: Path) -> Any:
    """A YAML file."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def services() -> dict[str, dict[str, Any]]:
    """The compose file's services by name."""
    found: dict[str, dict[str, Any]] = parsed(COMPOSE)["services"]
    return found


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """A Dockerfile's instructions with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [found.groups() for line in lines if (found := _INSTRUCTION.match(line))]  # type: ignore[misc]


def binds(service: dict[str, Any]) -> list[tuple[str, str]]:
    """The files and folders of this repository that a service mounts: (source, options)."""
    return [
        (parts[0], parts[2] if len(parts) > 2 else "")
        for parts in (volume.split(":") for volume in service.get("volumes", ()))
        if parts[0].startswith(".")
    ]


def health_test(name: str, service: dict[str, Any]) -> list[str]:
    """The command that tells how a service is; empty when nothing does."""
    if "healthcheck" in service:
        return list(service["healthcheck"].get("test", ()))
    if name.startswith("topospread-"):
        return [rest for word, rest in instructions(ROOT / "Dockerfile") if word == "HEALTHCHECK"]
    return []


def service_hosts() -> set[str]:
    """The names by which a cluster's pods reach the Services that the manifests make."""
    text = (ROOT / "deploy" / "kubernetes" / "base" / "services.yaml").read_text(encoding="utf-8")
    made = [each["metadata"] for each in yaml.safe_load_all(text)]
    return {f"{meta['name']}.{meta['namespace']}.svc" for meta in made}
