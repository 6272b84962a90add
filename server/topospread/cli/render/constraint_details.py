"""`topospread get constraint ID`: one constraint with its domains, their nodes, and its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.kinds import pod_path
from topospread.cli.render.constraints import item, owner_text, path_of
from topospread.cli.render.explanation import constraint_text, print_domains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import ConstraintStatus, GetConstraintResponse


def show(found: Sequence[GetConstraintResponse], form: str, cluster: str) -> None:
    """Print constraints in the form of `--output`."""
    if form == "name":
        for each in found:
            output.echo(path_of(each.constraint.constraint_id))
    elif form == "table":
        for position, each in enumerate(found):
            if position:
                click.echo()
            _print(each)
    else:
        items = []
        for each in found:
            own = documents.plain(each)
            del own["constraint"]
            items.append({**item(each.constraint), **own})
        documents.show("ConstraintDescriptionList", form, cluster=cluster, items=items)


def _print(found: GetConstraintResponse) -> None:
    status = found.constraint
    constraint = status.constraint
    click.secho(constraint_text(constraint), bold=True)
    output.fields(
        [
            ("id", status.constraint_id),
            ("of", f"{constraint.namespace} {owner_text(status)}".rstrip()),
            ("defaults", "the profile's" if status.defaulted else ""),
            ("counts", f"pods {constraint.selector_text}"),
            ("state", _state_text(status)),
            ("skew", f"{status.skew}, with the minimum {status.global_minimum}"),
            ("pods", _pods_text(status)),
            ("domains", _domains_text(status)),
            *(("finding", f"{each.code.label}: {each.text}") for each in status.findings),
        ]
    )
    if found.domains:
        click.echo()
    print_domains(
        constraint,
        status.minimum_reason,
        [each.domain for each in found.domains],
        found.leading_domain_count,
        found.unlisted_domain_count,
    )
    _print_nodes(found)
    _print_pods(found)


def _state_text(status: ConstraintStatus) -> str:
    """State and why; where a finding is the reason, it stands on a line of its own."""
    state = status.state.label.lower()
    is_finding = status.message in (each.text for each in status.findings)
    return f"{state}: {status.message}" if status.message and not is_finding else state


def _pods_text(status: ConstraintStatus) -> str:
    text = f"{status.bound_pod_count} on a node, {status.pending_pod_count} waiting"
    blocked = status.blocked_pod_count
    return f"{text}, {blocked} of them for this constraint" if blocked else text


def _domains_text(status: ConstraintStatus) -> str:
    return (
        f"{status.allowed_domain_count} of {status.eligible_domain_count} eligible ones allow the "
        f"next replica; {status.domain_count} in all"
    )


def _print_nodes(found: GetConstraintResponse) -> None:
    """Print the nodes that have matching pods."""
    rows = [
        (
            node.node,
            each.domain.value or '""',
            node.pod_count,
            node.reserved_pod_count,
            "yes" if node.eligible else "no",
            "yes" if node.usable else "no",
        )
        for each in found.domains
        for node in each.nodes
        if node.pod_count
    ]
    if rows:
        click.echo()
        output.table(["NODE", "DOMAIN", "#PODS", "#HELD", "ELIGIBLE", "USABLE"], rows)


def _print_pods(found: GetConstraintResponse) -> None:
    rows = [
        (pod_path(each.pod), each.node, '""' if each.domain == "" else each.domain)
        for each in found.pods
    ]
    if rows:
        click.echo()
        output.table(["POD", "NODE", "DOMAIN"], rows)
    if found.unlisted_pod_count:
        output.echo(f"... and {found.unlisted_pod_count:,} more pods")
