"""Backs a store up into a file, and makes clusters anew from one."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from topospread.errors import ConfigError
from topospread.replica.view import Token
from topospread.store.backup_file import BackupWriter, SavedCluster, read_backup
from topospread.store.backups import batches, read_contents
from topospread.store.model import StoredObject
from topospread.store.values import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread.store.api import MaintainedStore


@dataclass(frozen=True, slots=True)
class ClusterBackup:
    """A cluster in a backup.

    Attributes:
        name: of the cluster.
        revision: that it was saved at, as the API writes revisions.
        object_count: its objects, reservations among them.
        unreadable: what is not in the backup, because it cannot be read: kind/namespace/name.
    """

    name: str
    revision: str
    object_count: int
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterRestoration:
    """A cluster that was made anew.

    Attributes:
        name: of the cluster.
        revision: that it begins at, as the API writes revisions.
        object_count: its objects, reservations that have not ended among them.
    """

    name: str
    revision: str
    object_count: int


def back_up(
    store: MaintainedStore, path: Path, clusters: Sequence[str], *, overwrite: bool
) -> list[ClusterBackup]:
    """Write clusters into a file, each as it is at one moment, while servers go on.

    The file appears under its name when it is whole, on the disk and was read again; of a link, it
    is the file that the link leads to. It is for its owner alone.

    Args:
        store: to read.
        path: of the file.
        clusters: their names; empty for all.
        overwrite: whether a file of that name may be replaced.

    Raises:
        ConfigError: the file is there already, or is no regular one.
        ClusterNotFound: one that is named is not there.
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no regular file: name one, which is read again at the end")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} is there already: name another file, or say --overwrite")
    with _replacing(path.resolve()) as file:
        made = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with closing(BackupWriter(file, time=made, version=version("topospread"))) as writer:
            saved = [_save(store, name, writer) for name in clusters or store.clusters()]
            writer.finish()
    return saved


def _save(store: MaintainedStore, name: str, writer: BackupWriter) -> ClusterBackup:
    found = read_contents(store, name)
    count = len(found.objects)
    writer.cluster(
        SavedCluster(name, found.identity, found.revision, count), found.objects.values()
    )
    unreadable = tuple(map(name_of, found.unreadable))
    return ClusterBackup(name, Token(found.identity, found.revision).encode(), count, unreadable)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name once it is whole; nothing is left of it after an early end."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
            file.seek(0)
            for _ in read_backup(file, str(path)):
                pass
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class Backup:
    """A backup that was read to its end once, so that all of it is sure to be what was written.

    Args:
        file: opened for reading bytes; it stays the caller's to close.
        name: of the file, for error texts.
        only: names of the clusters that are meant; empty for all.

    Attributes:
        clusters: what it has of those that are meant.

    Raises:
        ConfigError: it is no backup, not a whole one, or lacks a cluster that is meant.
    """

    def __init__(self, file: BinaryIO, name: str, only: Sequence[str] = ()) -> None:
        self._file = file
        self._name = name
        found = [each for each in read_backup(file, name) if isinstance(each, SavedCluster)]
        missing = sorted(set(only) - {each.name for each in found})
        if missing:
            raise ConfigError(f"{name}: the backup has no cluster {', '.join(missing)}")
        self.clusters = [each for each in found if not only or each.name in only]

    def restore_into(
        self,
        store: MaintainedStore,
        done: Callable[[ClusterRestoration], object],
        *,
        replace: bool,
    ) -> None:
        """Make the clusters anew, one after the other, each in one step.

        Args:
            store: to write into.
            done: called with each cluster that was made.
            replace: whether clusters that are there may be given up for those of the backup.

        Raises:
            ConfigError: some are there; nothing was written.
            IdentityChanged: somebody made or deleted a cluster meanwhile; it is as it was.
        """
        heads = {each.name: store.head(each.name) for each in self.clusters}
        present = [name for name, head in heads.items() if head.identity]
        if present and not replace:
            raise ConfigError(
                f"{store.address} has cluster {', '.join(present)} already: name others with "
                "--cluster, or say --replace to give up what is there"
            )
        self._file.seek(0)
        rest = read_backup(self._file, self._name)
        for saved in rest:
            assert isinstance(saved, SavedCluster), "objects are taken with their clusters"
            objects = islice(rest, saved.object_count)
            if saved.name not in heads:
                for _ in objects:
                    pass
                continue
            head = heads[saved.name]
            changes = batches(_stored(objects), time.time_ns() // 1_000_000)
            made = store.restore(
                saved.name, changes, identity=head.identity, instead_of=saved.identity
            )
            revision = Token(made.identity, made.revision).encode()
            done(ClusterRestoration(saved.name, revision, made.object_count))


def _stored(found: Iterable[SavedCluster | StoredObject]) -> Iterator[StoredObject]:
    for each in found:
        assert isinstance(each, StoredObject), "as many follow as were announced"
        yield each
