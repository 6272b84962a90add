"""The algebra of topology spreading: constraints, eligibility, domains, skew, verdicts, scores.

Pure functions over arrays with one entry a node slot or one a domain; NumPy and the standard
library only. What a cluster looks like is asked through
:class:`~topospread.spread.topology.Topology`; nothing here knows where the counts come from, who
keeps them, or how an answer travels.

- ``constraints``: those of a pod; ``filtering``, ``scoring``: the rules, node by node.
- ``plans``, ``cells``, ``classes``, ``per_node``: the same rules by classes of nodes.
- ``topology``, ``verdicts``, ``settings``: what is asked, answered, and configured.
- ``deletion``: in which order pods go when a workload shrinks; ``linting``: manifests.

"Upstream fact 26" and the like are numbered facts about kube-scheduler's plugin, which stand in the
repository in docs/upstream-semantics.md.
"""
