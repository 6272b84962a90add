"""How calls are carried out, whichever way they come: one pipeline, queues, threads, memory.

A transport (:mod:`topospread.rpc`, :mod:`topospread.http`) makes a
:class:`~topospread.calls.call.Call` of what came in and passes it to a
:class:`~topospread.calls.pipeline.Pipeline`, on a thread of an
:class:`~topospread.calls.executor.Executor` or of the decisions' lanes. ``rules`` says who may call
a method, ``sizes`` how large its messages may be, ``memory`` what is kept for callers and for how
long, ``access`` who is let in and what the audit log records, ``status`` how an error is told.

It knows no transport.
"""
