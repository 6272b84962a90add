"""The pods that a verb is asked about: in files, or by name in the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, objects
from topospread.cli.subjects import Question, Subject
from topospread_client import ConstraintValidation, PodReference

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEFT_OUT: Final = "no pod, and nothing that makes pods"


def questions_of(
    stored: Sequence[str],
    paths: Sequence[str],
    *,
    recursive: bool,
    namespace: str | None,
    validate: bool,
) -> list[Question]:
    """The pods that were named or are in files.

    Raises:
        UsageError: there are none.
        BadInput: files that cannot be read.
    """
    if not stored and not paths:
        raise click.UsageError("say which pods: -f PATH, or NAMESPACE/NAME of pods in the state")
    questions = [_of_state(name, namespace) for name in stored]
    if paths:
        manifests = documents.read(paths, recursive=recursive)
        pods, skipped = objects.to_judge(manifests, namespace)
        objects.say_skipped(skipped, _LEFT_OUT)
        validation = ConstraintValidation.STRICT if validate else ConstraintValidation.IGNORE
        questions += [
            Question(
                each.pod,
                _subject(each.manifest),
                each.manifest.label,
                validation,
                _replicas(each.manifest),
            )
            for each in pods
        ]
    return questions


def _of_state(name: str, namespace: str | None) -> Question:
    space, _, own = name.rpartition("/")
    reference = PodReference(own, space or namespace or "default")
    # What a cluster already stores is taken as it is: validating it again could refuse it.
    return Question(
        reference,
        Subject(reference, "Pod"),
        f"Pod {reference.full_name}",
        ConstraintValidation.IGNORE,
    )


def _subject(manifest: documents.Manifest) -> Subject:
    metadata = manifest.content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = metadata.get("namespace") or "default", metadata.get("name") or ""
    uid = metadata.get("uid") if manifest.kind == "Pod" else None
    pod = PodReference(str(name), str(namespace), str(uid) if uid else None)
    return Subject(pod, manifest.kind, manifest.source)


def _replicas(manifest: documents.Manifest) -> int | None:
    """How many pods a workload makes: what it says, or one as the API server defaults it."""
    if manifest.kind == "Pod":
        return None
    spec = manifest.content.get("spec")
    said = spec.get("replicas", spec.get("parallelism")) if isinstance(spec, dict) else None
    return said if isinstance(said, int) and said >= 0 else 1
