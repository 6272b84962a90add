"""The sync: keeps a cluster's state as its API server has it.

Other transports wait for callers; this one lists and watches, with the official Kubernetes client,
and writes to a sink: the use cases of this process, or a server elsewhere. Of several processes one
is the leader, by the lease of LeaseService; the others stand by.
"""
