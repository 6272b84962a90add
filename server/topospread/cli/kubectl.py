"""`kubectl topospread`: the verbs that read, with kubectl's options and its defaults for them.

They read the cluster of the kubeconfig's context by its API server, or ask the server that
TOPOSPREAD_ADDRESS names where no context and no kubeconfig is given. --context and --kubeconfig
are kubectl's, and a namespace that is not given is the context's.
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Final, NoReturn

import click
from typing_extensions import override

from topospread.cli import main as topospread
from topospread.cli.kubeconfig import context_namespace
from topospread.cli.options import ClientOptions, output_option, server_options
from topospread.cli.state_source import KubeconfigSource, kubeconfig_option, take_option

if TYPE_CHECKING:
    from topospread.cli.options import StateSource

NAME: Final = "kubectl topospread"

VERBS: Final = (
    "report",
    "lint",
    "get",
    "evaluate",
    "explain",
    "rank-deletions",
    "simulate",
    "plan-rebalance",
    "dump",
    "version",
)

_OF_THE_WHOLE_STATE: Final = "dump"
"""The verb for which a namespace that was not given is none."""


_CONTEXT: Final = click.Option(
    ["--context"],
    metavar="NAME",
    expose_value=False,
    callback=take_option("kube_context"),
    help="Context of the kubeconfig.  [its current one]",
)


class _KubectlGroup(topospread.LazyGroup):
    """Group whose verbs have kubectl's `--context`."""

    verbs = tuple(verb for verb in VERBS if verb in topospread.VERBS)

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


class KubectlDefaults:
    """What holds under kubectl where nothing is given; see ClientOptions.kubectl."""

    def source(self) -> StateSource:
        """What is read where no server is named."""
        return KubeconfigSource("")

    def namespace(self, options: ClientOptions) -> str | None:
        """Namespace where none is given; None where a verb is of all.

        Raises:
            BadInput: the kubeconfig cannot be read, or has no such context.
        """
        if click.get_current_context().info_name == _OF_THE_WHOLE_STATE:
            return None
        if options.kubectl_namespace:
            return options.kubectl_namespace
        named = options.source.context if isinstance(options.source, KubeconfigSource) else ""
        return context_namespace(options.source_kubeconfig, options.kube_context or named)


def _take_namespace(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    del parameter
    if value:
        context.ensure_object(ClientOptions).kubectl_namespace = value


@click.group(cls=_KubectlGroup, no_args_is_help=True, context_settings=topospread.CONTEXT_SETTINGS)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    expose_value=False,
    callback=_take_namespace,
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
    topospread.prepare_process()
    sys.exit(
        topospread.run(command=root, name=NAME, options=ClientOptions(kubectl=KubectlDefaults()))
    )


if __name__ == "__main__":
    main()
