"""The namespace that kubectl would take, by the context of a kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from topospread.cli.errors import BadInput

DEFAULT_NAMESPACE: Final = "default"

_OF_A_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LARGEST: Final = 8 << 20


def context_namespace(kubeconfig: str, context: str) -> str:
    """Namespace of a context; without a kubeconfig that of the pod that this runs in.

    Args:
        kubeconfig: a file; empty for those of $KUBECONFIG, or ~/.kube/config.
        context: its name; empty for the current one.

    Raises:
        BadInput: a file cannot be read, or there is no such context.
    """
    given = kubeconfig or os.environ.get("KUBECONFIG", "")
    paths = given.split(os.pathsep) if given else ["~/.kube/config"]
    files = [Path(os.path.expanduser(path)) for path in paths if path]
    contents = [_content(path) for path in files if path.exists() or kubeconfig]
    if not contents and not given:
        try:
            return _OF_A_POD.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
        except OSError:
            return DEFAULT_NAMESPACE
    # Of several files, the first that says something wins, as in kubectl.
    named = [str(each["current-context"]) for each in contents if each.get("current-context")]
    contexts: dict[str, Any] = {}
    for content in reversed(contents):
        contexts |= _contexts(content)
    if context and context not in contexts:
        from topospread.kubernetes.kubeconfig import no_such_context

        raise BadInput(no_such_context(context, os.pathsep.join(map(str, files)), contexts))
    chosen = contexts.get(context or (named[0] if named else "")) or {}
    return str(chosen.get("namespace") or DEFAULT_NAMESPACE)


def _content(path: Path) -> dict[str, Any]:
    import yaml

    from topospread.kubernetes.kubeconfig import not_utf8

    try:
        with path.open("rb") as file:
            read = file.read(_LARGEST)
        if wrong := not_utf8(read):
            raise BadInput(f"kubeconfig {path} cannot be used: {wrong}")
        content = yaml.load(read, Loader=yaml.CSafeLoader)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is no kubeconfig: {str(error).splitlines()[0]}") from error
    return content if isinstance(content, dict) else {}


def _contexts(content: dict[str, Any]) -> dict[str, Any]:
    listed = content.get("contexts")
    return {
        str(each["name"]): each["context"]
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and "name" in each and isinstance(each.get("context"), dict)
    }
