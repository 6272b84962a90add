"""The counted state of one cluster, kept in step with its change log.

:mod:`~topospread.index.builder` folds changes into the next :mod:`~topospread.index.snapshot`,
which is immutable and belongs to one revision. Counts are kept incrementally per group, that is per
(namespace, selector); at every revision they equal what a rebuild from scratch gives. No I/O:
changes come in as values, snapshots go out.

- ``changes``: what comes in.
- ``nodes``, with its ``columns``: the node table.
- ``pods``, ``pod_classes``, ``groups``: what is counted.
- ``overlay``: a snapshot as it would be after hypothetical changes.
"""
