"""Manifests → the objects of a cluster's state as a store holds them, in several processes.

To convert an object takes ten times as long as to find where it ends, and one does not depend on
the other. So this process cuts long files into pieces, and others convert them.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.cli.errors import BadInput
from topospread.cli.field_validation import FieldValidation, ManifestErrors
from topospread.cli.manifest_files import manifests_of
from topospread_client import ManifestError, object_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.cli.manifest_files import Manifest
    from topospread.cli.printed_lists import PrintedItems
    from topospread.store.model import Key, StoredObject

ALONE: Final = 8
"""Parts of files after which other processes help: to start them takes as long as some of these."""

MOST_PROCESSES: Final = 8


class StateObjects:
    """Objects in their stored form: of one that is given twice, what `apply` would leave.

    Attributes:
        newest: the objects.
        skipped: the number of objects of each other kind.
        errors: what is wrong with manifests, each with its file and line.
    """

    def __init__(self) -> None:
        self.newest: dict[Key, StoredObject] = {}
        self.skipped: Counter[str] = Counter()
        self.errors = ManifestErrors(FieldValidation.WARN)

    def add(self, manifest: Manifest) -> None:
        """Convert one manifest."""
        from topospread.codec.stored import stored
        from topospread.errors import TopospreadError
        from topospread.store.checks import check_size

        try:
            message = object_from_manifest(manifest.content)
            if message is None:
                self.skipped[manifest.kind] += 1
                return
            each = stored(message)
            check_size(each)
        except (ManifestError, TopospreadError) as error:
            self.errors.check_fields(manifest)
            self.errors.add(manifest, error)
            return
        if not each.resource_version:
            # An API server has checked the fields of all that it has given a version.
            self.errors.check_fields(manifest)
        self._keep(each)

    def merge(self, later: StateObjects) -> None:
        """Add what was read behind this."""
        for each in later.newest.values():
            self._keep(each)
        self.skipped += later.skipped
        self.errors.merge(later.errors)

    def _keep(self, each: StoredObject) -> None:
        before = self.newest.get(each.key)
        if before is None or not _is_older(each.resource_version, before.resource_version):
            self.newest[each.key] = each


def read_objects(parts: Iterable[PrintedItems | Sequence[Manifest]]) -> StateObjects:
    """Convert the objects of all parts, those of long files in several processes.

    Raises:
        BadInput, NotAsPrintedError: as `manifest_files.stream` and `manifests_of` do.
    """
    found = StateObjects()
    waiting = iter(parts)
    for part in islice(waiting, ALONE):
        found.merge(_objects_of(part))
    processes = min(_processors(), MOST_PROCESSES)
    read = _in_processes(waiting, processes) if processes > 1 else map(_objects_of, waiting)
    for each in read:
        found.merge(each)
    return found


def _objects_of(part: PrintedItems | Sequence[Manifest]) -> StateObjects:
    found = StateObjects()
    for manifest in manifests_of(part):
        found.add(manifest)
    return found


def _in_processes(
    parts: Iterator[PrintedItems | Sequence[Manifest]], processes: int
) -> Iterator[StateObjects]:
    """Results in the order of the parts, of which few are in memory at once."""
    first = next(parts, None)
    if first is None:
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # Not forked: gRPC has threads here.
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_ignore_interrupts
    )
    try:
        running = deque([pool.submit(_objects_of, first)])
        for part in parts:
            running.append(pool.submit(_objects_of, part))
            if len(running) > 2 * processes:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    except BrokenProcessPool as error:
        raise BadInput(
            "a process that was reading has ended, as the system ends some where memory is short:"
            " try again, or give fewer files at once"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _processors() -> int:
    """Processors that this process may use, where the system tells; else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that began: it ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _is_older(version: str, than: str) -> bool:
    """Whether a resourceVersion is older than another; those that are not given are not."""
    return bool(version and than) and int(version) < int(than)
