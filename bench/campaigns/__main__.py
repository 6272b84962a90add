"""`python -m bench.campaigns`: list the campaigns, or run one."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Final

import click
from typing_extensions import override

from bench.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

CAMPAIGNS: Final = {
    "against": "Answers of another commit's server beside this one's.",
    "autoscaler": "Scale-ups by a real cluster-autoscaler: where pods end, on how many nodes.",
    "beside": "Decisions beside callers who list, write and plan.",
    "abandoned": "CPU that a server spends on calls whose callers have gone.",
    "bursts": "Pods that come at once to a real kube-scheduler, and their spread.",
    "client_faults": "The Python client while servers, networks and keys fail and change.",
    "clusters": "Threads, files, CPU and memory of clusters that nobody asks about.",
    "crowd": "The costliest requests that are accepted, from 64 callers at once.",
    "cuts": "Lists of objects that are cut while they are sent.",
    "damage": "Stores whose content is damaged, before and while a server follows them.",
    "failover": "Writes lost, and seconds without writes, when another Redis becomes the master.",
    "files": "Mutated files for the command line.",
    "floods": "Idle connections, resets, and calls that never end.",
    "fuzz": "Mutated requests of every method, and of HTTP.",
    "growth": "CPU and memory of every repeated field of every request, grown.",
    "kept": "Memory that large requests leave behind.",
    "memory": "Memory that hostile callers make a server hold.",
    "neighbor": "A light caller's latency beside a heavy caller.",
    "places": "Places a second where the store is far away, beside another commit's.",
    "predictions": "Scale-ins and rebalance plans carried out by real controllers.",
    "products": "Lists that meet in a computation, each as long as is accepted.",
    "overload": "Calls past the queue, and thousands that end early.",
    "restores": "A real API server whose etcd is restored, killed and started, and the state.",
    "retries": "Seconds until a real kube-scheduler binds what was refused, once there is room.",
    "rollouts": "Rollouts that real controllers carry out, as lint and simulate told before.",
    "silent": "Callers and probes beside connections that say nothing.",
    "wounds": "Requests that once stopped a server, filled it, or made it lose or forge something.",
}
"""Campaigns by module, whose `command` each is."""


class _Campaigns(click.Group):
    """Imports a campaign when it is run."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*CAMPAIGNS]

    @override
    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in CAMPAIGNS:
            return None
        found: click.Command = importlib.import_module(f"bench.campaigns.{name}").command
        return found

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Campaigns"):
            formatter.write_dl([*CAMPAIGNS.items()])


@click.command(
    "campaigns", cls=_Campaigns, context_settings={"help_option_names": ["-h", "--help"]}
)
def command() -> None:
    """Try hostile, broken and large load on real servers of their own, and print what came of it.

    With --check the exit code is 1 when a promise of the documents is broken.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and return its exit code."""
    return run_command(command, "python -m bench.campaigns", arguments)


if __name__ == "__main__":
    sys.exit(main())
