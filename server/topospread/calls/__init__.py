"""How calls are carried out, whichever way they come: one pipeline, queues, threads, memory.

A transport (:mod:`topospread.rpc`, :mod:`topospread.http`) makes a
:class:`~topospread.calls.call.Call` of what came in and passes it to a
:class:`~topospread.calls.pipeline.Pipeline`, on a thread of an
:class:`~topospread.calls.executor.Executor` or of the decisions' lanes.
"""
