"""Reads a kubeconfig, or a pod's service account, into a configuration of the official client."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from topospread.errors import ConfigError
from topospread.kubernetes.credential_program import bounded_provider

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_MOST_NAMES: Final = 20

LARGEST_FILE: Final = 8 << 20
"""Bytes of a kubeconfig, and of a file with a token."""

_PROGRAM_LOG: Final = "kube_config"
"""Module of the client that logs, on the root logger, why a program made no credentials."""


def configure(configuration: Any, kubeconfig: str, context: str) -> None:
    """Fill in a configuration of the official client: address, certificates, credentials.

    Raises:
        ConfigError: the kubeconfig or the service account cannot be used.
    """
    import yaml
    from kubernetes import config
    from kubernetes.config import kube_config

    file = kubeconfig or os.environ.get("KUBECONFIG", "")
    default = _expanded("~/.kube/config")
    if not file and default.exists():
        file = str(default)
    if not file and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise ConfigError(
            "no cluster: this is no pod and there is no ~/.kube/config: name one with --kubeconfig"
            " (topospread serve: --sync-kubeconfig)"
        )
    loading: Any = config  # without types
    replaced: Any = kube_config
    replaced.ExecProvider = bounded_provider()
    where = f"kubeconfig {file}" if file else "the pod's service account"
    if file and not any(_expanded(one).exists() for one in file.split(os.pathsep)):
        raise ConfigError(f"{where} cannot be used: there is no such file")
    try:
        if file:
            for one in file.split(os.pathsep):
                _check_text(_expanded(one))
            _check_merged(file, context)
            # KUBECONFIG may name several files, which the client merges; some may be missing.
            with _failing_programs(where):
                loading.load_kube_config(file, context or None, configuration, persist_config=False)
        else:
            loading.load_incluster_config(configuration)
    except (
        config.ConfigException,
        OSError,
        yaml.YAMLError,
        ValueError,
        TypeError,
        KeyError,
    ) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"{where} cannot be used: {text}") from error
    if not all(map(is_header, configuration.api_key.values())):
        raise ConfigError(f"{where} cannot be used: {NO_HEADER}")


NO_HEADER: Final = "the user's token has a line break or another character that no header may have"


def is_header(value: str) -> bool:
    """Whether HTTP can carry it."""
    return value.isascii() and (value.isprintable() or not value)


def not_utf8(content: bytes) -> str:
    """The place of the first byte of a text that is no UTF-8, with advice; empty without one."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"line {line}: byte 0x{content[error.start]:02x} is no UTF-8: save it as UTF-8"
    return ""


def no_such_context(context: str, files: str, names: Iterable[str]) -> str:
    """What to say of a context that a kubeconfig does not have."""
    known = list(names)
    listed = ", ".join(known[:_MOST_NAMES]) + (", …" if len(known) > _MOST_NAMES else "")
    return f"no context {context} in {files}: there are {listed or 'none'}"


def _check_text(path: Path) -> None:
    """Refuse a file that is too large, or in another encoding; what is no file is not read twice.

    The client would read all of it, and its message has no line.
    """
    if not path.is_file():
        if path.is_char_device():
            raise ConfigError(f"kubeconfig {path} cannot be used: it is no regular file")
        return
    _check_size(path, "kubeconfig")
    wrong = not_utf8(path.read_bytes())
    if wrong:
        raise ConfigError(f"kubeconfig {path} cannot be used: {wrong}")


def _check_size(path: Path, what: str) -> None:
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise ConfigError(f"{what} {path} has {size} bytes, at most {LARGEST_FILE} are read")


def _check_merged(file: str, context: str) -> None:
    """Refuse a context that there is not, and a file of a token that has no end."""
    from kubernetes.config import kube_config

    paths = [_expanded(one) for one in file.split(os.pathsep) if one]
    if not all(path.is_file() for path in paths if path.exists()):
        return  # a pipe can be read once
    merging: Any = kube_config  # without types
    merged = merging.KubeConfigMerger(file).config
    names = [str(each["name"]) for each in merged["contexts"].value]
    if context and context not in names:
        raise ConfigError(no_such_context(context, file, names))
    for each in merged["users"].value:
        name = (each.safe_get("user") or {}).get("tokenFile")
        if not name:
            continue
        token = Path(each.path).parent / str(name)
        if token.exists() and not token.is_file():
            raise ConfigError(f"kubeconfig {file} cannot be used: {token} is no regular file")
        if token.is_file():
            _check_size(token, "token file")


@contextmanager
def _failing_programs(where: str) -> Generator[None]:
    """Raise what the client only logs: that the program which makes credentials made none.

    The client would go on as a user whom nobody knows.
    """
    failures: list[str] = []

    def is_other(record: logging.LogRecord) -> bool:
        if record.module != _PROGRAM_LOG:
            return True
        error = sys.exc_info()[1]
        if isinstance(error, OSError) and error.filename:
            failures.append(
                f"its program {error.filename} could not be run ({error.strerror}): install it, or "
                "put it on the PATH"
            )
        else:
            text = " ".join(record.getMessage().removeprefix("exec: ").split())
            failures.append(f"its program gave no credentials: {text}")
        return False

    root = logging.getLogger()
    handler = logging.NullHandler()  # without any, the first message would add one for good
    root.addHandler(handler)
    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)
        root.removeHandler(handler)
    if failures:
        raise ConfigError(f"{where} cannot be used: {failures[0]}")


def _expanded(path: str) -> Path:
    """A path with the home directory in place; as it is for a user without one (containers)."""
    return Path(os.path.expanduser(path))
