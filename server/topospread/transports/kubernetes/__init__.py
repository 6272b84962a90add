"""The feed: what a cluster's API server says goes into the state.

Other transports wait for callers; this one goes and asks, with the official Kubernetes client, and
writes through a sink: the use cases of this process, or a server elsewhere. It decodes and passes
on; it judges nothing.
"""
