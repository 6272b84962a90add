"""`--from`: a verb that reads loads a cluster into this process instead of calling a server.

A verb takes it by the decorator :func:`from_option` beside `server_options`, and gets no parameter
for it: ``with options.client() as client`` then yields a client of that cluster, which answers each
method as a server does that has the same objects. Verbs that write do not take it.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import BadInput, at_most
from topospread.cli.input_files import STDIN
from topospread.cli.kinds import is_constraint
from topospread.cli.manifest_objects import (
    FieldValidation,
    ManifestErrors,
    kinds_text,
    warn_not_read,
)
from topospread.cli.options import PATH, ClientOptions
from topospread.cli.request_options import warn_of_version
from topospread.kube.versions import oldest_version, parse_version
from topospread.spread.settings import NEWEST, known_version
from topospread_client import ManifestError, TopospreadClientError, object_from_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from google.protobuf.message import Message

    from topospread.api.local import LocalApi
    from topospread.cli.manifest_documents import Manifest
    from topospread.kube.versions import KubernetesVersion
    from topospread.spread.settings import ConfiguredRules
    from topospread.store.model import Key, StoredObject
    from topospread.store.model import Kind as StoredKind

_C = TypeVar("_C", bound="Callable[..., Any]")

KUBECONFIG: Final = "kubeconfig"
"""What `--from` takes for the cluster of a kubeconfig; a file of this name is ./kubeconfig."""

COMPLETE: Final = (
    "`kubectl get nodes,pods,services,replicationcontrollers,replicasets,statefulsets,jobs,"
    "namespaces,persistentvolumes,persistentvolumeclaims,storageclasses,csinodes,csidrivers,"
    "csistoragecapacities,volumeattachments -A -o json`"
)
"""What prints all that answers depend on, but claims to devices, which not every API server has."""

_CONTRADICTED: Final = (
    "given before with other content, and no resourceVersion says which is newer: what comes last"
    " is taken, files in the order of their names"
)

_LARGE_YAML: Final = 8 << 20


def from_option(command: _C) -> _C:
    """Add `--from`, and what goes with it: `--kubeconfig`, and `--config` for a server's own.

    `--kubernetes-version` is also for servers, where requests have settings.
    """
    command = click.option(
        "--kubernetes-version",
        metavar="VERSION",
        expose_value=False,
        callback=_take_version,
        help="Judge as this version does: `1.38` says what an upgrade would change.  [that of the "
        "API server, or of the oldest kubelet]",
    )(command)
    command = click.option(
        "--config",
        metavar="FILE",
        expose_value=False,
        callback=take_option("source_config"),
        type=PATH,
        help="With --from: the scheduler's configuration, as `serve --config` reads it.",
    )(command)
    command = kubeconfig_option(command)
    return click.option(
        "--from",
        metavar="FILE|DIR|kubeconfig[:CONTEXT]",
        multiple=True,
        expose_value=False,
        callback=_take_source,
        type=PATH,
        help="Call no server: load the cluster from manifests, such as `kubectl get -o json` "
        "prints, of a directory with all below it, or from its API server. Several files go, too.",
    )(command)


def kubeconfig_option(command: _C) -> _C:
    """Add `--kubeconfig`."""
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        expose_value=False,
        callback=take_option("source_kubeconfig"),
        type=PATH,
        help="With --from kubeconfig: the file.  [$KUBECONFIG, or ~/.kube/config]",
    )(command)


def files_of(options: ClientOptions) -> Sequence[str]:
    """Files and directories that a state is loaded from, and that can be read again."""
    source = options.source
    if not isinstance(source, ManifestSource):
        return ()
    return [each for each in source.paths if each != STDIN]


def check_changes(options: ClientOptions) -> None:
    """Refuse a watch of a state that is loaded once."""
    if options.source is not None:
        raise click.UsageError("--watch needs a server: what is loaded once does not change")


def _take_source(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> None:
    del parameter
    if "" in values:
        raise click.BadParameter("name a file, a directory, - for standard input, or kubeconfig")
    named = [
        name for word, _, name in (each.partition(":") for each in values) if word == KUBECONFIG
    ]
    if named and len(values) > 1:
        raise click.BadParameter("give one source: the API server of a kubeconfig has all")
    if values:
        options = context.ensure_object(ClientOptions)
        options.source = KubeconfigSource(named[0]) if named else ManifestSource(values)
        options.sources["source"] = "--from"


def _take_version(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    del parameter
    if not value:
        return
    if parse_version(value) is None:
        raise click.BadParameter(f"{value!r} is no version of Kubernetes, such as {NEWEST}")
    context.ensure_object(ClientOptions).kubernetes_version = value


def take_option(field: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """Callback that keeps an option's value in a field of the client options."""

    def take(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        del parameter
        if value:
            setattr(context.ensure_object(ClientOptions), field, value)

    return take


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """A cluster's state in files; see StateSource."""

    paths: Sequence[str]

    @contextmanager
    def serve(self, options: ClientOptions) -> Iterator[LoadedCluster]:
        """See StateSource."""
        if options.source_kubeconfig or options.kube_context:
            flag = "--kubeconfig" if options.source_kubeconfig else "--context"
            raise click.UsageError(f"{flag} goes with --from kubeconfig")
        if STDIN in self.paths and (_stdin_is_read() or self.paths.count(STDIN) > 1):
            raise click.UsageError("standard input can be read once: name a file for -f or --from")
        with _errors_only():
            kinds: dict[StoredKind, str] = {}
            yield _loaded(options, self._objects(options, kinds), kinds)

    def _objects(
        self, options: ClientOptions, kinds: dict[StoredKind, str]
    ) -> Iterator[StoredObject]:
        """Objects of the files as a store holds them: of one given twice, what `apply` leaves.

        `kinds` then has those of which there is a list of its own, be it empty.
        """
        from topospread.store.values import OBJECT_KINDS

        newest: dict[Key, StoredObject] = {}
        lists: set[str] = set()
        kubelets: set[str] = set()
        skipped: Counter[str] = Counter()
        contradicted: list[str] = []
        errors = ManifestErrors(FieldValidation.WARN)
        with output.progress("reading MiB of") as progress:
            for manifest in manifest_files.stream(self.paths, partial(_show, progress), lists):
                kubelets.update(_kubelet_version(manifest))
                each = _stored(manifest, errors, skipped)
                before = newest.get(each.key) if each else None
                if each and before and _contradicts(each, before):
                    contradicted.append(manifest.title)
                if each and not (before and _is_older(each.resource_version, before)):
                    newest[each.key] = each
        errors.raise_all()
        if contradicted:
            output.warn("\n".join([*at_most(contradicted), _CONTRADICTED]))
        warn_not_read(skipped)
        name = ", ".join("standard input" if each == STDIN else each for each in self.paths)
        if all(key.kind in OBJECT_KINDS for key in newest):
            only = f", only {kinds_text(skipped)}" if skipped else ""
            text = f"{name}: there are no nodes and no pods in it{only}"
            raise BadInput(f"{text}: {COMPLETE} prints all that is needed")
        if _is_judged():
            _check_complete(name, newest)
        kinds.update(_all_listed(lists))
        yield from newest.values()
        oldest = oldest_version(kubelets)
        if oldest is not None and not options.kubernetes_version:
            _warn_of_kubelet(oldest)
            yield _reported(oldest)


def _kubelet_version(manifest: Manifest) -> Iterator[str]:
    """The version of a node's kubelet, as it is written, if it has one."""
    found: Any = manifest.content if manifest.kind == "Node" else None
    for name in ("status", "nodeInfo", "kubeletVersion"):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, str):
        yield found


def _warn_of_kubelet(oldest: KubernetesVersion) -> None:
    """Warn that a cluster is judged by its kubelets' version, where these alone say one."""
    if _is_judged() and known_version(oldest) == oldest < NEWEST:
        output.warn(
            f"judged as Kubernetes {oldest}, the version of the oldest kubelet: a scheduler may be"
            " newer, which --kubernetes-version says"
        )


def _reported(version: KubernetesVersion) -> StoredObject:
    """The record of a cluster's version; with a warning where it is not known."""
    from topospread.store.values import version_record

    if _is_judged():
        warn_of_version(str(version))
    return version_record(version).object


def _all_listed(lists: set[str]) -> dict[StoredKind, str]:
    """That all objects are there, of the kinds that there are lists of."""
    from topospread.codec.objects import KIND_NAMES

    return {kind: "" for kind, name in KIND_NAMES.items() if name in lists}


def _stored(
    manifest: Manifest, errors: ManifestErrors, skipped: Counter[str]
) -> StoredObject | None:
    """A manifest as a store holds it; None where it is of another kind, or wrong."""
    from topospread.codec.stored import stored
    from topospread.errors import TopospreadError
    from topospread.store.checks import check_size

    try:
        message = object_from_manifest(manifest.content)
        if message is None:
            skipped[manifest.kind] += 1
            return None
        made = stored(message)
        check_size(made)
    except (ManifestError, TopospreadError) as error:
        errors.check_fields(manifest)
        errors.add(manifest, error)
        return None
    if not made.resource_version:
        # An API server has checked the fields of all that it has given a version.
        errors.check_fields(manifest)
    return made


def _contradicts(each: StoredObject, before: StoredObject) -> bool:
    """Whether an object is given twice, and no version says which is newer."""
    versions = {each.resource_version, before.resource_version}
    return ("" in versions or len(versions) == 1) and each.payload != before.payload


def _is_older(version: str, than: StoredObject) -> bool:
    return bool(version and than.resource_version) and int(version) < int(than.resource_version)


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """A cluster's state at its API server, by a context of a kubeconfig; see StateSource."""

    context: str

    @contextmanager
    def serve(self, options: ClientOptions) -> Iterator[LoadedCluster]:
        """See StateSource.

        Raises:
            BadInput: the kubeconfig cannot be used, or its user may not list what is needed.
            Unreachable: the API server cannot be asked.
        """
        if self.context and options.kube_context not in {"", self.context}:
            raise click.UsageError(
                f"--from kubeconfig:{self.context} and --context {options.kube_context} name two "
                "contexts: give one"
            )
        context = self.context or options.kube_context
        from topospread.cli.kubeconfig_source import listed_objects

        began = time.monotonic()
        objects, kinds, version = listed_objects(
            options.source_kubeconfig, context, options.timeout
        )
        if version is not None and not options.kubernetes_version:
            objects.append(_reported(version))
        with _errors_only():
            loaded = _loaded(options, objects, kinds)
            # What is left is for the answer.
            options.timeout = max(0.001, options.timeout - (time.monotonic() - began))
            yield loaded


class LoadedCluster:
    """Calls the API of a cluster that is loaded; errors are those of the client."""

    def __init__(self, api: LocalApi, cluster: str, timeout: float) -> None:
        self._api = api
        self._cluster = cluster
        self._timeout = timeout

    def call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """The answer of a method, by its name."""
        with _errors_of_client():
            return self._api.call(method, self._filled(request), timeout=timeout or self._timeout)

    def stream(
        self, method: str, request: Message, *, timeout: float | None = None
    ) -> Iterator[Any]:
        """The answers of a method, by its name; nothing ends them but their reader."""
        del timeout
        with _errors_of_client():
            yield from self._api.stream(method, self._filled(request))

    def _filled(self, request: Any) -> Any:
        if "cluster" not in request.DESCRIPTOR.fields_by_name or request.cluster:
            return request
        filled = type(request)()
        filled.CopyFrom(request)
        filled.cluster = self._cluster
        return filled


def _loaded(
    options: ClientOptions, objects: Iterable[StoredObject], kinds: Mapping[StoredKind, str]
) -> LoadedCluster:
    # Here: these parts take longer to import than most verbs do to run.
    from topospread.api.local import local_api
    from topospread.spread.settings import DEFAULT_RULES

    if (version := parse_version(options.kubernetes_version)) is not None:
        objects = chain(objects, [_reported(version)])

    # Before anything is loaded, which may take long.
    rules = _read_rules(options.source_config) if options.source_config else DEFAULT_RULES
    with _errors_of_client(), _without_collector():
        api = local_api(objects, rules, options.cluster, kinds=kinds)
        return LoadedCluster(api, options.cluster, options.timeout)


def _read_rules(file: str) -> ConfiguredRules:
    from topospread.codec.scheduler_config import read_rules
    from topospread.config.files import read_config
    from topospread.errors import ConfigError

    try:
        return read_rules(read_config(file), file)
    except ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error


@contextmanager
def _errors_of_client() -> Iterator[None]:
    """Raise errors as the client raises those of a server."""
    try:
        yield
    except (click.ClickException, TopospreadClientError):
        raise
    except Exception as error:
        from topospread.calls.status import status_of
        from topospread_client import error_from_status

        raise error_from_status(status_of(error)) from error


@contextmanager
def _without_collector() -> Iterator[None]:
    """Collect no cycles: loading makes none, and looking for them takes a quarter of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _errors_only() -> Iterator[None]:
    logger = logging.getLogger("topospread")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _is_judged() -> bool:
    """Whether the verb judges pods by nodes: it does not only show what there is."""
    context = click.get_current_context()
    if context.info_name == "get":
        return is_constraint(str(context.params["what"]).partition("/")[0])
    return context.info_name != "dump"


def _check_complete(name: str, objects: Mapping[Key, StoredObject]) -> None:
    # Here: a verb that calls a server reads no store's formats.
    from topospread.codec.stored import object_from_stored
    from topospread.kube.workloads import is_looked_up
    from topospread.store.model import Kind

    kinds = {key.kind for key in objects}
    if Kind.NODE not in kinds:
        raise BadInput(
            f"{name}: there are no nodes in it, and without nodes no constraint is violated: "
            f"{COMPLETE} prints all that is needed"
        )
    if Kind.POD not in kinds:
        output.warn(f"{name}: there are no pods in it: nothing runs on its nodes")
    if kinds & {Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.REPLICATION_CONTROLLER}:
        return
    pods = (object_from_stored(each).pod for key, each in objects.items() if key.kind is Kind.POD)
    if any(
        not pod.spec.topology_spread_constraints
        and any(
            owner.controller and is_looked_up(owner.kind, owner.api_version)
            for owner in pod.metadata.owner_references
        )
        for pod in pods
    ):
        output.warn(
            f"{name}: the ReplicaSets and StatefulSets of its pods are not in it, by which pods "
            f"without constraints of their own get the default ones: {COMPLETE} prints these, too"
        )


def _show(progress: Callable[[int, int], None], source: str, read: int, size: int) -> None:
    progress(read >> 20, size >> 20)
    if not read and size > _LARGE_YAML and not source.endswith(".json"):
        output.warn(f"{source}: {size >> 20} MiB take long; if it is YAML, JSON is read far faster")


def _stdin_is_read() -> bool:
    given = click.get_current_context().params.values()
    return any(STDIN in (value if isinstance(value, tuple) else (value,)) for value in given)
