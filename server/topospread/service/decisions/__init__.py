"""Decisions about a pod at a state: PreFilter, Filter, Score, and EvaluatePod, all in one.

`request` is what is asked, as values. `engine` turns it into a `cycle`: the pod's shape (`pods`),
its rules, and a view that is fresh enough and counts all groups. `extension_points`, `evaluate` and
`batch` answer from cycles.

What follows from a shape is kept with it, plans with the node table, results with the first group
that they rest on: each goes when what it rests on does. Knows no messages but through the codec.
"""
