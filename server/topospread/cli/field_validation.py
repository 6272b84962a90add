"""How strictly the fields of manifests are checked, in kubectl's words."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from topospread.cli import output
from topospread.cli.errors import BadInput, at_most
from topospread_client import KUBERNETES_VERSION, ConstraintValidation, unknown_fields

if TYPE_CHECKING:
    from topospread.cli.manifest_files import Manifest

_NOT_KNOWN: Final = f"Kubernetes {KUBERNETES_VERSION} has no such fields"
_ADVICE: Final = f"{_NOT_KNOWN}; --validate=warn takes the manifests all the same"
_LEFT_OUT: Final = f"{_NOT_KNOWN}; they are left out"


class FieldValidation(StrEnum):
    """What becomes of fields that Kubernetes does not have."""

    STRICT = "strict"
    WARN = "warn"
    IGNORE = "ignore"

    @property
    def of_constraints(self) -> ConstraintValidation:
        """How strictly a server validates the constraints of pods."""
        ignored = self is FieldValidation.IGNORE
        return ConstraintValidation.IGNORE if ignored else ConstraintValidation.STRICT


class ManifestErrors:
    """A collector of what is wrong with manifests, which reports all of it at once."""

    def __init__(self, validation: FieldValidation) -> None:
        self._validation = validation
        self._errors: list[str] = []
        self._unknown: list[str] = []

    def check_fields(self, manifest: Manifest) -> None:
        """Look for fields that Kubernetes does not have."""
        if self._validation is not FieldValidation.IGNORE:
            lines = [f"{manifest.title}: {each.text}" for each in unknown_fields(manifest.content)]
            self._unknown += lines
            if self._validation is FieldValidation.STRICT:
                self._errors += lines

    def add(self, manifest: Manifest, error: Exception) -> None:
        """Keep the error of a manifest that cannot be read."""
        self._errors.append(f"{manifest.title}: {error}")

    def raise_all(self) -> None:
        """Raise what was collected; warn of unknown fields where they are no error.

        Raises:
            BadInput: with all errors.
        """
        if self._unknown and self._validation is FieldValidation.WARN:
            output.warn("\n".join([*at_most(self._unknown), _LEFT_OUT]))
        if self._errors:
            refused = self._unknown and self._validation is FieldValidation.STRICT
            raise BadInput(*self._errors, advice=_ADVICE if refused else "")
