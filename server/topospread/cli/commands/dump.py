"""`topospread dump`: write a cluster's state as a List, for `--from`, `apply` and bug reports."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import output
from topospread.cli.anonymization import Anonymizer
from topospread.cli.errors import DONE, BadInput
from topospread.cli.files import regular_target, write_file
from topospread.cli.kinds import (
    CLUSTER_SCOPED,
    NODE,
    NUMBERS,
    OBJECTS,
    POD,
    WORKLOADS,
    content_of,
)
from topospread.cli.options import PATH, ClientOptions, server_verb
from topospread.cli.state_source import from_option
from topospread.wording import counted
from topospread_client import manifest_from_object
from topospread_proto.v1.cluster_state_service_pb2 import (
    ClusterObject,
    GetClusterRequest,
    WatchObjectsRequest,
)
from topospread_proto.v1.common_pb2 import Consistency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.cli.options import ApiCaller
_KINDS: Final = (NODE, *OBJECTS, *WORKLOADS, POD)
_OF_ALL: Final = frozenset(NUMBERS[kind] for kind in (*CLUSTER_SCOPED, "CSIStorageCapacity"))
"""Kinds whose objects concern the pods of all namespaces."""
_TAIL: Final = {"kind": "List", "metadata": {"resourceVersion": ""}}
"""What kubectl prints behind the items."""

_YAML_SUFFIXES: Final = frozenset({".yaml", ".yml"})


@click.command("dump", short_help="Write the state to a file, for --from and bug reports.")
@click.argument("file", required=False, metavar="[FILE]", type=PATH)
@click.option(
    "-n", "--namespace", metavar="NAME", help="Of objects with a namespace only this one's."
)
@click.option(
    "--anonymize",
    is_flag=True,
    help="Replace names, namespaces and the values of labels: who runs what is not in it, and all "
    "answers stay the same.",
)
@from_option
@server_verb
def command(
    options: ClientOptions, file: str | None, namespace: str | None, anonymize: bool
) -> int:
    """Write all objects as they are kept at one revision, as kubectl prints a List.

    FILE is YAML where its name ends so, else JSON; without one, stdout has JSON, or YAML with
    -o yaml. A regular file is replaced in one step and a link stays; a device or a pipe is written
    to. --from and `apply -f` read it, and so does kubectl. Places that are held for pods are not in
    it. Of volumes and the like, that there are none is an empty list in it; else it is not known.

    With --anonymize, equal texts have equal replacements, and nobody can compute one: each dump has
    a random key. Keys of labels that Kubernetes or many share stay, and so do kinds of owners with
    their apiVersion, schedulerName, quantities, times and numbers that Gt or Lt compares.
    """
    if options.output in {"name", "wide"} or options.wide:
        raise click.UsageError("-o: a dump is json or yaml")
    if file:
        with _naming(file):
            regular_target(Path(file))  # before all is read for nothing
    as_yaml = options.output == "yaml" or (file and Path(file).suffix in _YAML_SUFFIXES)
    with options.client() as client, output.progress("reading") as progress:
        objects, revision = _state(client, namespace, options.timeout)
        empty = _empty_kinds(client, objects, revision)
        progress(len(objects), len(objects))
    about: dict[str, Any] = {"revision": revision}
    if anonymize:
        replaced = Anonymizer(objects)
        objects = [replaced.anonymized(each) for each in objects]
    else:
        about = {"cluster": options.cluster, **about}
    # By the names that are written: the order of others would tell how they compare.
    manifests = _in_order(map(manifest_from_object, objects))
    count = counted(len(manifests), "object")
    manifests += empty
    content = {"apiVersion": "v1", "items": manifests, **_TAIL, **about}
    text = _yaml(content) if as_yaml else _json(content)
    if file is None:
        click.echo(text, nl=False)
    else:
        with _naming(file):
            write_file(Path(file), text)
        output.warn(f"{count} at revision {revision} in {file}")
    return DONE


@contextmanager
def _naming(file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"{file}: cannot be written: {error.strerror}") from error


def _state(
    client: ApiCaller, namespace: str | None, timeout: float
) -> tuple[list[ClusterObject], str]:
    found: list[ClusterObject] = []
    request = WatchObjectsRequest(kinds=[NUMBERS[kind] for kind in _KINDS], send_initial=True)
    for answer in client.stream("WatchObjects", request, timeout=timeout):
        for event in answer.events:
            if not event.HasField("object"):
                # The bookmark behind what there is: objects of all kinds, at its revision.
                return found, answer.meta.revision
            if event.ref.kind in _OF_ALL or namespace in {None, event.ref.namespace}:
                found.append(event.object)
    raise AssertionError("a watch does not end by itself")


def _empty_kinds(
    client: ApiCaller, objects: Iterable[ClusterObject], revision: str
) -> list[dict[str, Any]]:
    """Lists of the kinds that the cluster is known to have no objects of, but of none without."""
    request = GetClusterRequest(consistency=Consistency(at_least_as_fresh=revision))
    cluster = client.call("GetCluster", request).cluster
    left = {each.kind for each in cluster.unknown_kinds}
    left |= {NUMBERS[content_of(each).DESCRIPTOR.name] for each in objects}
    return [_empty_list(kind) for kind in OBJECTS if NUMBERS[kind] not in left]


def _empty_list(kind: str) -> dict[str, Any]:
    example = ClusterObject()
    for field in ClusterObject.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.name == kind:
            getattr(example, field.name).SetInParent()
    version = manifest_from_object(example)["apiVersion"]
    return {"apiVersion": version, "items": [], "kind": f"{kind}List", "metadata": {}}


def _in_order(manifests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Manifests by kind, as a cluster is best read, and by name."""

    def place(manifest: dict[str, Any]) -> tuple[int, str, str]:
        metadata = manifest["metadata"]
        return _KINDS.index(manifest["kind"]), metadata.get("namespace", ""), metadata["name"]

    return sorted(manifests, key=place)


def _json(content: dict[str, Any]) -> str:
    import orjson

    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _yaml(content: dict[str, Any]) -> str:
    import yaml

    text: str = yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return text
