"""The pods of some classes at exactly the revision of a view.

The index knows their names; the store has what no decision counts: readiness, restarts, deletion
costs, priorities. They are read by name as they are now, and what has changed since the view is
taken back, as for lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from topospread.checkpoints import checkpoint
from topospread.errors import ClusterLoading
from topospread.service.state.listing import LARGEST_STRETCH, stretches
from topospread.service.state.log import ended_meanwhile
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.store.api import ReadStore
    from topospread.store.model import StoredObject


@dataclass(frozen=True, slots=True)
class ClassMembers:
    """Pods of classes at a view's revision.

    Attributes:
        unchanged: class, name and node of those that have not changed since.
        stored: what was read, by kind, namespace and name: the pods of the classes that were to be
            read; all pods of the namespaces that have changed since, as they were, so also others;
            and objects of other kinds.
        changed: keys of those that have changed since.
    """

    unchanged: Sequence[tuple[PodClass, str, str]]
    stored: Mapping[Key, StoredObject]
    changed: Collection[Key]


def read_members(
    store: ReadStore,
    replica: Replica,
    view: View,
    namespaces: Collection[str],
    *,
    read: Collection[PodClass],
    known: Collection[PodClass] = (),
    without_class: bool = False,
    kinds: Collection[Kind] = (),
) -> ClassMembers:
    """Find the pods of classes, and read them.

    Args:
        store: where pods are.
        replica: knows their names.
        view: one of its views.
        namespaces: those of the classes.
        read: classes whose pods are read from the store.
        known: classes of which the names and nodes of their pods do.
        without_class: read also pods that are terminating or have ended.
        kinds: other kinds of which all objects of the namespaces are read.

    Raises:
        Unavailable: the store is out of reach, the cluster was loaded anew meanwhile, or it changes
            faster than it is read.
    """
    cluster = replica.cluster
    members = replica.members({*read, *known})
    wanted = set(read)
    keys = [Key(Kind.POD, each.namespace, name) for each, name, _ in members if each in wanted]
    if without_class:
        for namespace in namespaces:
            keys += [Key(Kind.POD, namespace, name) for name in replica.without_class(namespace)]
    if replica.has_rebuilt_since(view):
        raise ClusterLoading(f"cluster {cluster!r} was loaded anew while it was read: try again")
    found = {item.key: item for item in _by_key(store, cluster, keys)}
    for kind in kinds:
        for namespace in namespaces:
            for stretch in stretches(store, cluster, kind, namespace):
                checkpoint()
                found |= {item.key: item for item in stretch}
    scope = {Kind.POD, *kinds}
    with ended_meanwhile(cluster):
        # Afterwards, so that all that was read is either older or taken back.
        changed = store.read_undo(
            cluster,
            view.identity,
            view.revision,
            lambda key: key.kind in scope and key.namespace in namespaces,
        )
    for key, item in changed.items():
        if item is None:
            found.pop(key, None)
        else:
            found[key] = item
    unchanged = [
        (each, name, node)
        for each, name, node in members
        if not changed or Key(Kind.POD, each.namespace, name) not in changed
    ]
    # What cannot be read counts as absent.
    stored = {key: found[key] for key in sorted(found, key=_order) if found[key].digest}
    return ClassMembers(unchanged, stored, changed.keys())


def _by_key(store: ReadStore, cluster: str, keys: Sequence[Key]) -> Iterator[StoredObject]:
    rest = iter(keys)
    while some := list(islice(rest, LARGEST_STRETCH)):
        checkpoint()
        yield from store.read_keys(cluster, some)


def _order(key: Key) -> tuple[Kind, str, str]:
    return key.kind, key.namespace, key.name
