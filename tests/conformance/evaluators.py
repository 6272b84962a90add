"""Who answers the cases: every way in which the product evaluates a pod, and the reference model.

An evaluator joins by one entry in EVALUATORS; then all recorded cases and stories run on it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from tests.conformance.calls import over_grpc
from tests.conformance.cases import MEMBERS, Decision, Json
from tests.conformance.core import Core
from tests.conformance.extender import over_extender
from tests.reference import evaluation


class Evaluator(Protocol):
    """One way to have a pod evaluated."""

    @property
    def members(self) -> frozenset[str]:
        """The members of an answer that this way can tell; all of cases.MEMBERS if possible."""

    def evaluate(self, case: Decision) -> Json:
        """The answer, in the form of a decision's `expect`. `case.expect` must not be looked at."""

    def condition(self, case: Decision) -> Json | None:
        """The PodScheduled condition {reason, message} of a pod that fits nowhere, else None."""


class Reference:
    """The scalar model of tests/reference."""

    members = MEMBERS

    def evaluate(self, case: Decision) -> Json:
        """See Evaluator."""
        return evaluation.evaluate(
            case.cluster,
            case.pod,
            args=case.args,
            gates=case.gates,
            ops=case.ops,
            filter_nodes=case.filter_nodes,
        )

    def condition(self, case: Decision) -> Json | None:
        """See Evaluator."""
        return evaluation.unschedulable(case.cluster, self.evaluate(case))


@contextmanager
def reference() -> Iterator[Evaluator]:
    """The reference model; nothing to start or stop."""
    yield Reference()


@contextmanager
def core() -> Iterator[Evaluator]:
    """The core; nothing to start or stop."""
    yield Core()


EVALUATORS: Mapping[str, Callable[[], AbstractContextManager[Evaluator]]] = {
    "reference": reference,
    "core": core,
    "grpc": over_grpc,
}

FILTERS: Mapping[str, Callable[[], AbstractContextManager[Evaluator]]] = {
    "extender": over_extender,
}
"""Those that tell verdicts on nodes alone, and are asked no what-ifs."""
