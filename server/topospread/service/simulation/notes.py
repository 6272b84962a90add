"""Warnings of simulations: constraints that cannot do what they say, pods that nothing makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.service.decisions.extension_points import all_constraints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.replica.view import View
    from topospread.service.simulation.run import PodBatch


def idle_constraints(batches: Sequence[PodBatch], view: View) -> Iterator[str]:
    """The constraints that cannot do what their author meant."""
    for batch in batches:
        effective = batch.shape.effective_constraints(batch.rules, view.snapshot)
        for constraint in all_constraints(effective.constraints):
            where = (
                f"pods[{batch.asked}]: the {constraint.when_unsatisfiable} constraint on "
                f"{constraint.topology_key}"
            )
            if constraint.counts_nothing:
                yield f"{where} limits nothing: its labelSelector matches no pod"
            elif not constraint.self_match:
                yield f"{where} does not count the pods placed: they lack the labels it selects"


def not_made_again(evicted: Iterable[PodBatch]) -> Iterator[str]:
    """That nothing makes pods without a controller again."""
    bare = [f"{each.namespace}/{each.names[0]}" for each in evicted if not each.shape.pod.owner]
    if bare:
        more = f" and {len(bare) - 1} more have" if len(bare) > 1 else " has"
        it = "them" if len(bare) > 1 else "it"
        yield f"{bare[0]}{more} no controller: after a drain nothing makes {it} again"
