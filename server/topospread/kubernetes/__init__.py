"""The sync: keeps a cluster's state as its API server has it.

- ``cluster_sync.ClusterSync``: elects a leader by the lease in the store; the others stand by.
- ``reflector``: lists a kind, then watches it; ``contact`` says when it lists again, ``attempts``
  when it tries again and what a refusal means; ``delta_queue``: what waits to be written.
- ``sink``: where it is written, by the use cases of this process.
- ``api_server``, with ``kubeconfig`` and ``credential_program``: the official client, bounded.
- ``objects``: the kinds that are synced, listed and decoded; ``--from`` lists with them, too.
"""
