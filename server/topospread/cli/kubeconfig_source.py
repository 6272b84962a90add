"""The state of a cluster as its API server lists it, once, with the rights of a kubeconfig's user.

One list of each kind, in pages: nothing is watched and nothing is written.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread.cli import output
from topospread.cli.errors import BadInput, Unreachable, raising_sigterm

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.kube.versions import KubernetesVersion
    from topospread.kubernetes.api_server import ApiServer
    from topospread.kubernetes.objects import ObservedObject, Resource
    from topospread.store.model import Kind, StoredObject

    Lists = tuple[list[StoredObject], dict[Kind, str], KubernetesVersion | None]

_UNAUTHORIZED: Final = 401

_NO_RESPONSE: Final = (
    "look at the kubeconfig's server, and whether this machine's network (VPN, proxy) leads there"
)

_LONG: Final = 5000
"""Objects of a kind from which on a line says that they are read, where no bar can be drawn."""


MOST_BYTES: Final = 2 << 30
"""Of all lists: those of 150,000 pods, the most that Kubernetes supports, have some 1.3 GB."""


def listed_objects(kubeconfig: str, context: str, timeout: float) -> Lists:
    """All objects that answers depend on, as a store holds them; pods that have ended are not.

    Beside them, of each kind that answers may do without, why it was not listed: its user may not,
    or the API server has no such kind; empty where it was.

    And the Kubernetes version; None where the API server reports none.

    What cannot be stored is left out with a warning, as a sync does. An empty `kubeconfig` is
    $KUBECONFIG, ~/.kube/config or the pod's service account; an empty `context` its current one.
    The seconds of `timeout` are for all of it, with the program that makes credentials.

    Raises:
        BadInput: the kubeconfig cannot be used, or its user may not list a kind: with the rule of
            RBAC for all that lack; or there is more than is read.
        Unreachable: the API server does not answer, or not with lists, or not in time.
    """
    found: Future[Lists] = Future()

    def read() -> None:
        try:
            found.set_result(_read(kubeconfig, context))
        except BaseException as error:  # noqa: BLE001 - raised by who waits for it
            found.set_exception(error)

    # Names, handshakes, programs and answers that come byte by byte wait where no time-out holds:
    # so what waits is a thread that is left behind, and the interpreter's end ends it.
    with raising_sigterm():
        try:
            threading.Thread(target=read, name="listing", daemon=True).start()
            return found.result(timeout)
        except TimeoutError as error:
            raise Unreachable(
                f"the cluster was not read within {timeout:g} s: give more with --timeout, or look "
                "whether its API server, or the program that makes credentials, hangs"
            ) from error
        finally:
            if not found.done():
                from topospread.kubernetes.credential_program import end_programs

                end_programs()


def _read(kubeconfig: str, context: str) -> Lists:
    from topospread.errors import ConfigError
    from topospread.kubernetes.api_server import ClusterAccess, open_api_server

    try:
        api = open_api_server(ClusterAccess(kubeconfig, context, MOST_BYTES))
    except ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error
    try:
        with output.progress("listing") as progress:
            return _listed(api, progress)
    finally:
        api.close()


def _version(api: ApiServer) -> KubernetesVersion | None:
    from topospread.errors import ClusterUnavailable

    try:
        return api.kubernetes_version()
    except ClusterUnavailable as error:
        raise Unreachable(f"{api.address}{error}: {_NO_RESPONSE}") from error


def _listed(api: ApiServer, progress: Callable[[int, int], None]) -> Lists:
    from topospread.errors import ClusterUnavailable, RevisionUnavailable, TooLarge
    from topospread.kubernetes.api_server import NoResponse, Refusal
    from topospread.kubernetes.objects import FORBIDDEN, RESOURCES, list_objects, why_unread

    found: list[StoredObject] = []
    kinds: dict[Kind, str] = {}
    forbidden: list[Resource] = []
    refusals: list[str] = []
    for resource in RESOURCES:
        shown = partial(_show, api, resource, progress)
        try:
            objects, _ = list_objects(
                api, resource.path, resource.query(()), partial(_decoded, resource), shown
            )
        except Refusal as refusal:
            reason = why_unread(resource, refusal, "list")
            if reason and resource.is_optional:
                kinds[resource.kind] = reason
                continue
            if refusal.status == _UNAUTHORIZED:
                raise BadInput(f"{api.address}{refusal}") from refusal
            if refusal.status != FORBIDDEN:
                raise Unreachable(f"{api.address}{refusal}") from refusal
            forbidden.append(resource)
            refusals.append(f"{api.address}: {refusal.server_message}")
        except TooLarge as error:
            raise BadInput(f"{api.address}{error}: read fewer with a dump") from error
        except NoResponse as error:
            raise Unreachable(f"{api.address}{error}: {_NO_RESPONSE}") from error
        except (ClusterUnavailable, RevisionUnavailable) as error:
            raise Unreachable(f"{api.address}{error}") from error
        else:
            found += [each.stored for each in objects]
            if resource.is_optional:
                kinds[resource.kind] = ""
    if forbidden:
        raise BadInput(*refusals, advice=_advice(forbidden))
    if all(each.key.kind in kinds for each in found):
        raise BadInput(f"{api.address}: there are no nodes, pods or workloads in this cluster")
    return found, kinds, _version(api)


def _show(
    api: ApiServer,
    resource: Resource,
    progress: Callable[[int, int], None],
    count: int,
    remaining: int,
) -> bool:
    """Show how far a list has come; it goes on in any case."""
    progress(count, count + remaining)
    if remaining > _LONG and count <= _LONG // 10 and not output.stderr_is_terminal():
        output.warn(f"reading {count + remaining} {resource.plural} from {api.address}")
    return True


def _decoded(resource: Resource, manifest: Any) -> ObservedObject | None:
    from topospread.errors import InvalidRequest, LimitExceeded
    from topospread.kubernetes.objects import decode_object

    try:
        return decode_object(resource, manifest)
    except (InvalidRequest, LimitExceeded) as error:
        output.warn(f"{resource.name} left out: {error}")
        return None


def _advice(forbidden: list[Resource]) -> str:
    """The rules of a ClusterRole that allow what lacks."""
    groups: dict[str, list[str]] = {}
    for resource in forbidden:
        group = resource.api_version.rpartition("/")[0]
        groups.setdefault(group, []).append(resource.plural)
    rules = [
        f'- {{apiGroups: ["{group}"], resources: [{", ".join(plurals)}], verbs: [list]}}'
        for group, plurals in groups.items()
    ]
    return "\n".join(["let a ClusterRole that is bound to you have these rules:", *rules])
