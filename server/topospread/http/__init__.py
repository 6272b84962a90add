"""The HTTP server: metrics and health, kube-scheduler's extender, and the validating webhook.

- ``server.HttpServer``: uvicorn on a thread of its own, with bounds for hostile peers.
- ``app``: pages, and who may ask for which.
- ``calls.HttpCalls``: has the calls of extender and webhook pass the pipeline of all calls.
- ``extender`` with ``extender_json``, ``webhook``: what is asked and answered.
- ``responses``: errors to statuses, and compression.

Knows neither gRPC nor the sync; decides nothing itself: that is ``service``'s.
"""
