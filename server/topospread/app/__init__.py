"""The composition root: names the concrete backends, puts the packages together, runs processes.

- ``parts.build``: from settings to all that answers; ``listeners``: gRPC, HTTP, the expander.
- ``server.Server``: starts, is ready or not, reads its files again, stops; ``runner`` has signals.
- ``cluster_sync``: the sync, within a server or as a process of its own.
- ``files``, ``gauges``, ``capacity``, ``stores``, ``stop_event``: one part each.

Nothing below knows it; the command line is all that stands above.
"""
