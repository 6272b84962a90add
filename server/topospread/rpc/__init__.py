"""gRPC: how calls come in from it and are answered.

- :class:`~topospread.rpc.server.GrpcServer`: the port, its options and TLS, the methods.
- ``completion_queue``: decisions, answered by the thread that takes them from gRPC; ``self_check``
  looks at start-up whether grpcio's parts that are not public do what it expects of them.
- ``threads``: all other calls, each on a thread of an executor.
- ``standard_services``: health, reflection, unknown methods. ``connections`` counts a port's.

What is done for each call is the pipeline's, in :mod:`topospread.calls`. It knows neither HTTP nor
what a method does.
"""
