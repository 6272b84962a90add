"""Fit as the scheduler's default profile judges it: its filters beside PodTopologySpread.

Begin with `profile`: `suited` asks all filters about a pod at a snapshot. Each other module is one
plugin of kube-scheduler, by its name, with up to three functions:

- ``pre_filter(asked)``: what the plugin says of the pod before any node is looked at: a refusal of
  all nodes, or the only nodes that come into question.
- ``refusals(asked)``: the nodes that it refuses, and why; None where it looks at nothing.
- ``gaps(asked)``: what it would have to look at and cannot, for answers to name.

A plugin asks the snapshot for what is kept in step with changes; nothing is scanned for a call.
Sources: k8s.io/kubernetes pkg/scheduler/framework/plugins.
"""
