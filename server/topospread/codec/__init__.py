"""Converts protobuf bytes and manifests to Kubernetes values and back.

Three ways in: requests (`parsing` bounds and parses them, `pods` and `demands` read values,
`frames` identifies a pod by its shape without parsing it), stored objects (`stored` trims and
restores them, `rows` decodes them into changes of the index, `stored_pods` reads what ranking and
rebalancing need), and text (`lint_manifests`, `scheduler_config`). `fields` writes answers by hand
where messages are too slow.

Requests that are wrong raise InvalidRequest with the path, stored values CorruptValue. Knows
neither gRPC nor a backend.
"""
