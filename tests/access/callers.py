"""Access files for tests, and the tokens whose hashes stand in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from topospread.access.authentication import NewToken, new_token

if TYPE_CHECKING:
    from pathlib import Path


class AccessFile:
    """An access file that tests change.

    Attributes:
        tokens: what was made, by name.
    """

    def __init__(self, path: Path, **roles: list[str]) -> None:
        self.path = path
        self.tokens: dict[str, NewToken] = {}
        self._content: dict[str, Any] = {
            "apiVersion": "topospread.io/v1",
            "kind": "TopospreadAccess",
            "tokens": [],
            "certificates": [],
        }
        for name, granted in roles.items():
            self.add(name, *granted)
        self.write()

    def __str__(self) -> str:
        return str(self.path)

    def add(self, name: str, *roles: str, **more: Any) -> str:
        """One token more; returns it."""
        token = self.tokens[name] = new_token()
        entry = {"id": token.id, "name": name, "sha256": token.sha256, "roles": list(roles)}
        self._content["tokens"].append(entry | more)
        return token.text

    def certificate(self, *roles: str, **named: str) -> None:
        """Names in a certificate."""
        self._content["certificates"].append({**named, "roles": list(roles)})

    def remove(self, name: str) -> None:
        """Revoke a token."""
        tokens = self._content["tokens"]
        tokens[:] = [entry for entry in tokens if entry["name"] != name]

    def forget_certificates(self) -> None:
        """Revoke what certificates may."""
        self._content["certificates"].clear()

    def write(self) -> None:
        """JSON is YAML."""
        self.path.write_text(json.dumps(self._content))

    def bearer(self, name: str) -> tuple[tuple[str, str], ...]:
        """Metadata of a caller."""
        return (("authorization", f"Bearer {self.tokens[name].text}"),)
