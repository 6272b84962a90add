"""`kubectl topospread`: the verbs that read, with kubectl's options and its defaults for them.

They read the cluster of the kubeconfig's context by its API server, or ask the server that
TOPOSPREAD_ADDRESS names where no context and no kubeconfig is given. --context and --kubeconfig
are kubectl's, and a namespace that is not given is the context's.
"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from typing_extensions import override

from topospread.cli import main as topospread
from topospread.cli.errors import BadInput
from topospread.cli.options import ClientOptions, VerbDefaults, output_option, server_options
from topospread.cli.state_source import KubeconfigSource, kubeconfig_option, take_option

NAME: Final = "kubectl topospread"

VERBS: Final = (
    *("report", "lint", "get", "evaluate", "explain", "rank-deletions", "simulate"),
    *("plan-rebalance", "dump", "version"),
)

_OF_THE_WHOLE_STATE: Final = "dump"
"""The verb for which a namespace that was not given is none."""


DEFAULT_NAMESPACE: Final = "default"

_OF_A_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LARGEST: Final = 8 << 20

_CONTEXT: Final = click.Option(
    ["--context"],
    metavar="NAME",
    expose_value=False,
    callback=take_option("kube_context"),
    help="Context of the kubeconfig.  [its current one]",
)


class _KubectlGroup(topospread.LazyGroup):
    """Group whose verbs have kubectl's `--context`."""

    verbs = VERBS

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None:
            return None
        if not any(each.name == "address" for each in command.params):
            return command
        command = copy.copy(command)
        command.params = [_CONTEXT, *command.params]
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in topospread.VERBS and args[0] not in self.verbs:
            raise click.UsageError(f"`topospread {args[0]}` does this: it needs a server", ctx)
        return super().resolve_command(ctx, args)


def _namespace(options: ClientOptions) -> str | None:
    if click.get_current_context().info_name == _OF_THE_WHOLE_STATE:
        return None
    if options.kubectl_namespace:
        return options.kubectl_namespace
    named = options.source.context if isinstance(options.source, KubeconfigSource) else ""
    return _context_namespace(options.source_kubeconfig, options.kube_context or named)


DEFAULTS: Final = VerbDefaults(KubeconfigSource(""), _namespace)


def _context_namespace(kubeconfig: str, context: str) -> str:
    """Namespace of a context; without a kubeconfig that of the pod that this runs in."""
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


@click.group(cls=_KubectlGroup, no_args_is_help=True, context_settings=topospread.CONTEXT_SETTINGS)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    expose_value=False,
    callback=take_option("kubectl_namespace"),
    help="Namespace.  [the context's]",
)
@kubeconfig_option
@server_options
@output_option
def root() -> None:
    """See how pods are spread over a cluster, and why they go where they do. Nothing is changed.

    Reads the cluster of the kubeconfig's current context, once, with rights to list; or asks the
    server that TOPOSPREAD_ADDRESS names, unless --context or --kubeconfig is given. -n, --context
    and --kubeconfig are as in kubectl.
    """


root.params.insert(0, _CONTEXT)


def main() -> NoReturn:
    """Run the console script `kubectl-topospread`, which kubectl finds on the PATH."""
    sys.exit(topospread.run(command=root, name=NAME, options=ClientOptions(kubectl=DEFAULTS)))


if __name__ == "__main__":
    main()
