"""What a filter is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.spread.verdicts import LABEL_MISSING, TOO_SKEWED, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from topospread.index.snapshot import Snapshot
    from topospread.kube.affinity import CompiledRequirements
    from topospread.kube.demands import Demand
    from topospread.kube.objects import Pod
    from topospread.spread.constraints import Constraint
    from topospread.spread.filtering import Verdicts
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Bools
    from topospread.spread.verdicts import Code, Status

SPREADING: Final = "PodTopologySpread"


class Fit(Enum):
    """How much is asked beside spreading."""

    SPREAD_ONLY = auto()
    NODE = auto()
    """What no other pod has a part in: the same as long as nodes and volumes are."""

    ALL = auto()


@dataclass(frozen=True, slots=True, eq=False)
class FitQuestion:
    """A pod that is judged at a snapshot.

    Attributes:
        snapshot: the state.
        pod: any pod of its shape.
        requirements: its node affinity, compiled.
        demand: what it asks of its node beside that.
        rules: gates and the cluster's version decide what some filters do.
        name, uid: the pod's own; empty where it has none. A pod without a uid is still to be made,
            and so are its ephemeral and generated claims.
        hard: its hard constraints, which are judged elsewhere but for nodes with nominated pods.
    """

    snapshot: Snapshot
    pod: Pod
    requirements: CompiledRequirements
    demand: Demand
    rules: Rules
    name: str = ""
    uid: str = ""
    hard: Sequence[Constraint] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Nodes that are refused with one code.

    Attributes:
        plugin: that refuses them.
        code: of the refusal.
        reasons: (reason, [slots] whether it refuses the node for it); a node may have several.
    """

    plugin: str
    code: Code
    reasons: Sequence[tuple[str, Bools]]

    @property
    def refused(self) -> Bools:
        """[slots] whether the node is refused."""
        found = self.reasons[0][1]
        for _, refused in self.reasons[1:]:
            found = found | refused
        return found

    def within(self, nodes: Bools) -> Rule:
        """The rule for some nodes alone; reasons that refuse the same ones share an array."""
        here = {id(refused): refused & nodes for _, refused in self.reasons}
        return replace(self, reasons=[(reason, here[id(by)]) for reason, by in self.reasons])


class PreFiltered(NamedTuple):
    """What a plugin says before nodes are looked at.

    Attributes:
        refusal: of all nodes; None where it does not refuse.
        names: of the only nodes that come into question, which may not exist; None for all nodes.
    """

    refusal: Status | None = None
    names: AbstractSet[str] | None = None


class Refusals(NamedTuple):
    """The nodes that a plugin refuses.

    Attributes:
        nodes: [slots] whether it does; any value where there is no node.
        rules: why, in order, worked out when somebody asks; a node has the reasons of the first
            rule that refuses it.
    """

    nodes: Bools
    rules: Callable[[], Iterable[Rule]]


def refusing(*rules: Rule) -> Refusals | None:
    """The nodes of some rules; None without any."""
    if not rules:
        return None
    nodes = rules[0].refused
    for rule in rules[1:]:
        nodes = nodes | rule.refused
    return Refusals(nodes, lambda: rules)


def spread_rules(verdicts: Verdicts) -> Sequence[Rule]:
    """Spreading's rules.

    Args:
        verdicts: [slots] as Filter gives them.
    """
    return [
        Rule(SPREADING, VERDICTS[each].code, [(VERDICTS[each].reasons[0], verdicts == each)])
        for each in (TOO_SKEWED, LABEL_MISSING)
    ]
