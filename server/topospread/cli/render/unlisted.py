"""Objects of the state that a dump lacks: what `apply` says of a dump that is applied again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.cli import output
from topospread.cli.manifest_objects import reference_of
from topospread_client import Consistency, Kind, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topospread.cli.manifest_files import Manifest
    from topospread_client import Client, ObjectReference
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject


def not_in_dump(
    client: Client, written: Iterable[tuple[Manifest, ClusterObject]], revision: str
) -> dict[Kind, int]:
    """Number of nodes and of pods of the state that are not among the objects that were written.

    Only where these look like a dump of all of them. The state's are counted, not listed; there is
    no number where the server does not tell.

    Args:
        client: that wrote them.
        written: in the order of the input.
        revision: that has all of them.
    """
    dumps = _dumps(written)
    if not dumps:
        return {}
    try:
        newest = Consistency(at_least_as_fresh=revision)
        cluster = client.get_cluster(consistency=newest).cluster
    except TopospreadClientError:
        return {}  # all is written, and the caller may be one who cannot read
    counts = {Kind.NODE: cluster.node_count, Kind.POD: cluster.pod_count}
    lacking = {kind: counts[kind] - number for kind, number in dumps.items()}
    return {kind: number for kind, number in lacking.items() if number > 0}


def _dumps(written: Iterable[tuple[Manifest, ClusterObject]]) -> dict[Kind, int]:
    """Number of nodes and of pods, where the input looks like a dump of all of them.

    Items of a List do, as kubectl prints it: several nodes, or pods of more than one namespace. A
    file of some objects and the dump of one namespace do not.
    """
    names: dict[Kind, set[ObjectReference]] = {Kind.NODE: set(), Kind.POD: set()}
    for manifest, each in written:
        named = reference_of(each)
        if named.kind not in names:
            continue
        if not manifest.is_listed:
            del names[named.kind]
            continue
        names[named.kind].add(named)
    if len({pod.namespace for pod in names.get(Kind.POD, ())}) < 2:
        names.pop(Kind.POD, None)
    return {kind: len(each) for kind, each in names.items() if len(each) > 1}


def warn(lacking: Mapping[Kind, int]) -> None:
    """Say on stderr what the state has beside the input, and how it would go."""
    if lacking:
        counted = [
            f"{number} {kind.label.lower()}{'s' * (number != 1)}"
            for kind, number in lacking.items()
        ]
        output.warn(
            f"{' and '.join(counted)} of the state are not in this input: if it is all that there "
            "is, --replace removes them"
        )
