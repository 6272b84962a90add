"""Manifests → the objects of a cluster's state as a store holds them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from topospread.cli.field_validation import FieldValidation, ManifestErrors
from topospread_client import ManifestError, object_from_manifest

if TYPE_CHECKING:
    from topospread.cli.manifest_files import Manifest
    from topospread.store.model import Key, StoredObject


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

    def _keep(self, each: StoredObject) -> None:
        before = self.newest.get(each.key)
        if before is None or not _is_older(each.resource_version, before.resource_version):
            self.newest[each.key] = each


def _is_older(version: str, than: str) -> bool:
    """Whether a resourceVersion is older than another; those that are not given are not."""
    return bool(version and than) and int(version) < int(than)
