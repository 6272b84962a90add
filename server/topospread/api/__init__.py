"""topospread.v1 as functions: decode a request, call the use case, encode its answer.

`api` has every method by its full name, whoever calls; `local` calls them in this process. `decode`
and `envelope` read what requests have in common, `encode` writes decisions, and one module a
service does the rest. Methods take a message and a Call and raise what use cases raise: transports
turn that into statuses. Knows no gRPC.
"""
