"""`topospread context`: name servers with their options once, and choose one of them."""

from __future__ import annotations

import os
from typing import Any

import click

from topospread.cli import documents, output
from topospread.cli.contexts import FILES, KEYS, read_client_config
from topospread.cli.errors import DONE, BadInput
from topospread.cli.options import (
    DEFAULT_ADDRESS,
    ClientOptions,
    complete_contexts,
    output_option,
    pass_given_options,
    pass_options,
    server_options,
)


@click.group("context", short_help="Choose the server that is called.")
def command() -> None:
    """Name servers with their options, and choose the one that is called.

    A context holds what the options for the server say: address, cluster, time-out, TLS and the
    file with the token. An option goes before its variable, which goes before the context. Where an
    address is given, only a context that --context or TOPOSPREAD_CONTEXT names is looked at.

    Contexts are kept in TOPOSPREAD_CLIENT_CONFIG, or ~/.config/topospread/config.yaml.
    """


_name = click.argument("name", shell_complete=complete_contexts)


@command.command("list")
@output_option
@pass_given_options
def list_contexts(options: ClientOptions) -> int:
    """Show the contexts; the current one has a star."""
    config = read_client_config()
    if options.output == "name":
        for name in config.contexts:
            output.echo(name)
    elif options.output == "table":
        columns = ["CURRENT", "NAME", "ADDRESS", "CLUSTER"]
        rows = [
            ["*" if name == config.current else " ", name, of["address"], of.get("cluster")]
            for name, of in config.contexts.items()
        ]
        output.table(columns, rows)
    else:
        contexts = [{"name": name} | _by_key(of) for name, of in config.contexts.items()]
        documents.show(
            "ContextList", options.output, current_context=config.current, contexts=contexts
        )
    return DONE


@command.command("use")
@_name
def use(name: str) -> int:
    """Make NAME the current context."""
    config = read_client_config()
    config.context(name)
    config.current = name
    config.write()
    output.warn(f"the current context is {name}")
    return DONE


@command.command("show")
@server_options
@output_option
@pass_options
def show(options: ClientOptions) -> int:
    """Show which server a command would call, with what, and where each option comes from.

    No server is asked. --context NAME shows another context than the current one.
    """
    options.address = options.address or DEFAULT_ADDRESS
    shown = [
        {"option": key, "value": value, "source": options.sources.get(option, "default")}
        for key, (option, _) in KEYS.items()
        if (value := getattr(options, option)) is not None
    ]
    if os.environ.get("TOPOSPREAD_TOKEN") and options.token_file is None:
        shown.append({"option": "token", "value": "set", "source": "TOPOSPREAD_TOKEN"})
    if options.output in {"json", "yaml"}:
        documents.show("ConnectionOptions", options.output, context=options.context, options=shown)
    elif options.output == "name":
        output.echo(options.context or "")
    else:
        rows = [[each["option"], _shown(each["value"]), each["source"]] for each in shown]
        output.table(["OPTION", "VALUE", "FROM"], rows)
    return DONE


@command.command("set")
@_name
@server_options
@pass_given_options
def set_context(options: ClientOptions, name: str) -> int:
    """Make the context NAME, or change the options of it that are given.

    Variables are not looked at. The first context becomes the current one. Comments in the file are
    not kept.
    """
    config = read_client_config()
    values = dict(config.contexts.get(name, {}))
    for option, _ in KEYS.values():
        if options.sources.get(option, "").startswith("--"):
            value = getattr(options, option)
            values[option] = os.path.abspath(value) if option in FILES else value
    if not values.get("address"):
        raise BadInput(f"context {name} has no address yet: give --address HOST:PORT")
    config.contexts[name] = values
    config.current = config.current or name
    config.write()
    output.warn(f"{config.path} has context {name}")
    return DONE


@command.command("delete")
@_name
def delete(name: str) -> int:
    """Delete the context NAME; the files that it names stay."""
    config = read_client_config()
    config.context(name)
    del config.contexts[name]
    if config.current == name:
        config.current = None
    config.write()
    output.warn(f"{config.path} has no context {name} any more")
    return DONE


def _by_key(values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[option] for key, (option, _) in KEYS.items() if option in values}


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
