"""The client's configuration file: contexts, each with the options for one server."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE: Final = "TOPOSPREAD_CLIENT_CONFIG"
"""Names the file; TOPOSPREAD_CONFIG is that of servers."""

KIND: Final = "TopospreadClientConfiguration"

KEYS: Final[Mapping[str, tuple[str, type]]] = {
    "address": ("address", str),
    "cluster": ("cluster", str),
    "timeout": ("timeout", float),
    "tls": ("tls", bool),
    "tlsCa": ("tls_ca", str),
    "tlsCert": ("tls_cert", str),
    "tlsKey": ("tls_key", str),
    "tlsServerName": ("tls_server_name", str),
    "tokenFile": ("token_file", str),
    "insecure": ("insecure", bool),
}
"""Keys of a context, the option that each stands for, and its type."""

FILES: Final = frozenset({"tls_ca", "tls_cert", "tls_key", "token_file"})
"""Options that name files; in a context, relative to the file that it stands in."""

_TYPES: Final = {str: "a text that is not empty", float: "a number above 0", bool: "true or false"}
_LARGEST: Final = 1024 * 1024


@dataclass(slots=True)
class ClientConfig:
    """The content of a client's configuration file.

    Attributes:
        path: of the file.
        current: the context that holds where none is named.
        contexts: the values of each, by option, as they stand in the file.
    """

    path: Path
    current: str | None = None
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def context(self, name: str) -> dict[str, Any]:
        """Values of a context, by option.

        Raises:
            BadInput: there is none of this name.
        """
        if name not in self.contexts:
            from topospread.config.documents import suggestion

            close = suggestion(name, self.contexts)
            raise BadInput(f"{self.path}: no context {name}{close} (`topospread context list`)")
        return self.contexts[name]

    def write(self) -> None:
        """Replace the file.

        Raises:
            BadInput: it cannot be written.
        """
        import yaml

        from topospread.cli.replacing import replace_file
        from topospread.config.documents import OWN_VERSION

        content: dict[str, Any] = {"apiVersion": OWN_VERSION, "kind": KIND}
        if self.current is not None:
            content["currentContext"] = self.current
        content["contexts"] = [
            {"name": name} | {key: of[option] for key, (option, _) in KEYS.items() if option in of}
            for name, of in self.contexts.items()
        ]
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, yaml.safe_dump(content, sort_keys=False), 0o600)
        except OSError as error:
            raise BadInput(f"{self.path}: cannot be written: {error.strerror}") from error


def config_path() -> Path:
    """Where the file is: TOPOSPREAD_CLIENT_CONFIG, else below the XDG configuration folder.

    Raises:
        BadInput: the environment names no home.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification says to ignore a relative path.
    if not Path(folder).is_absolute():
        home = os.environ.get("HOME")
        if not home:
            raise BadInput(f"contexts have no file without HOME: set {VARIABLE}")
        folder = f"{home}/.config"
    return Path(folder, "topospread", "config.yaml")


def read_client_config() -> ClientConfig:
    """Read the file; without one there are no contexts.

    Raises:
        BadInput: everything that is wrong with it.
    """
    path = config_path()
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ClientConfig(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: cannot be read: it is not UTF-8 text") from error
    if len(text) > _LARGEST:
        raise BadInput(f"{path}: more than {_LARGEST} characters: is it a list of contexts?")
    return _parsed(text, path)


def chosen_context(name: str | None) -> tuple[str, dict[str, Any]] | None:
    """Name and options of a context, or of the current one; its files as paths to open.

    Raises:
        BadInput: the file cannot be used, has no such context, or a file of it is not there.
    """
    if name is None and not any(map(os.environ.get, (VARIABLE, "XDG_CONFIG_HOME", "HOME"))):
        return None
    config = read_client_config()
    name = name or config.current
    if name is None:
        return None
    values = dict(config.context(name))
    for option in FILES & values.keys():
        path = config.path.parent / values[option]
        if not path.is_file():
            key = next(key for key, (of, _) in KEYS.items() if of == option)
            raise BadInput(f"{config.path}: context {name}: {key}: {path}: no such file")
        values[option] = str(path)
    return name, values


def context_names() -> list[str]:
    """Names to complete; none where the file cannot be used."""
    try:
        return list(read_client_config().contexts)
    except BadInput:
        return []


def _parsed(text: str, path: Path) -> ClientConfig:
    from topospread.config.documents import OWN_VERSION, yaml_documents
    from topospread.errors import ConfigError

    try:
        documents = yaml_documents(text, str(path))
    except ConfigError as error:
        raise BadInput(str(error)) from error
    if not documents:
        return ClientConfig(path)
    config = ClientConfig(path)
    problems = list(_read_document(documents[0], config, OWN_VERSION))
    if len(documents) > 1:
        problems.append("more than one document: put all contexts into one")
    if problems:
        raise BadInput(*(f"{path}: {problem}" for problem in problems))
    return config


def _read_document(document: Any, config: ClientConfig, version: str) -> Iterator[str]:
    """Fill in the content; yields what is wrong with it."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        yield f"kind: write kind: {KIND}"
        return
    if document.get("apiVersion") != version:
        yield f"apiVersion: write {version}"
    yield from _unknown(document, ("apiVersion", "kind", "currentContext", "contexts"), "")
    contexts = document.get("contexts") or []
    if not isinstance(contexts, list):
        yield "contexts: write a list"
        return
    for number, each in enumerate(contexts):
        yield from _read_context(each, f"contexts[{number}]", config)
    config.current = document.get("currentContext")
    if config.current is not None and config.current not in config.contexts:
        yield f"currentContext: no context is called {config.current!r}"


def _read_context(given: Any, at: str, config: ClientConfig) -> Iterator[str]:
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(name, str) or not name:
        yield f"{at}.name: write the context's name"
        return
    if name in config.contexts:
        yield f"{at}.name: a second context {name}"
    if "token" in given:
        yield f"{at}.token: write the token into a file of its own, and name that with tokenFile"
    yield from _unknown(given, ("name", "token", *KEYS), f"{at}.")
    values = config.contexts[name] = {}
    for key, (option, kind) in KEYS.items():
        value = given.get(key)
        if value is None:
            continue
        if _fits(value, kind):
            values[option] = value
        else:
            yield f"{at}.{key}: {value!r}: write {_TYPES[kind]}"
    if "address" not in given:
        yield f"{at}.address: write HOST:PORT of the server"


def _unknown(given: Mapping[Any, object], known: tuple[str, ...], at: str) -> Iterator[str]:
    from topospread.config.documents import suggestion

    for key in given:
        if key not in known:
            yield f"{at}{key}: unknown key{suggestion(str(key), known)}"


def _fits(value: object, kind: type) -> bool:
    if kind is float:
        # Not a number is not above 0.
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return isinstance(value, kind) and value != ""
