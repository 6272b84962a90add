"""Calls about pods of the command line, whose errors name the pods and their manifests."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from topospread.cli import output
from topospread.cli.errors import CallsFailed, FailedCall
from topospread_client import InvalidRequest, NotFound, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.cli.manifest_objects import PodRequest

_R = TypeVar("_R")
_T = TypeVar("_T")

_OF_PODS: Final = re.compile(r"pods\[(\d+)\]\.(?=pod\.)")


def ask_about(
    requests: Sequence[_R], doing: str, ask: Callable[[_R], _T], about: Callable[[_R], PodRequest]
) -> tuple[list[_T], list[FailedCall]]:
    """Answers about pods, and those about pods that are refused or not there."""
    found: list[_T] = []
    failed: list[FailedCall] = []
    with output.progress(doing) as progress:
        for done, request in enumerate(requests, start=1):
            try:
                found.append(ask(request))
            except (InvalidRequest, NotFound) as error:
                failed.append(_failed(error, about(request)))
            progress(done, len(requests))
    return found, failed


def _failed(error: InvalidRequest | NotFound, pod: PodRequest) -> FailedCall:
    return FailedCall(error, pod.title, pod.subject, pod.template_path)


def raise_of_pods(error: InvalidRequest, requests: Sequence[PodRequest]) -> NoReturn:
    """Raise the error of a call about several pods, with the manifest of each that it is about.

    Raises:
        CallsFailed: fields of pods are wrong, and no others.
        InvalidRequest: the error itself.
    """
    wrong: dict[int, list[Violation]] = {}
    for each in error.violations:
        found = _OF_PODS.match(each.field)
        if found is None or int(found[1]) >= len(requests):
            raise error
        wrong.setdefault(int(found[1]), []).append(replace(each, field=each.field[found.end() :]))
    if not wrong:
        raise error
    failed: list[FailedCall] = []
    for number, violations in wrong.items():
        own = copy(error)
        own.violations = tuple(violations)
        failed.append(_failed(own, requests[number]))
    raise CallsFailed(failed) from error
