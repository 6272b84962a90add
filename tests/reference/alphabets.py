"""The values that random cases are made of. A value that stands several times is likelier."""

from tests.conformance.cases import Json

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
TOPOLOGY_KEYS = (*[ZONE] * 8, *[HOSTNAME] * 8, *["rack"] * 4, "nobody-has-it")

NAMESPACES = (*["default"] * 9, "other")
NODE_NAMES = tuple(f"n{number}" for number in range(9))
POD_NAMES = tuple(f"p{number}" for number in range(24))
WORKLOAD_NAMES = ("w1", "w2")
UNKNOWN_NODE = "gone"
TERMINATING_SINCE = "2026-01-02T04:00:00Z"

KINDS = {
    "services": ("v1", "Service"),
    "replicationControllers": ("v1", "ReplicationController"),
    "replicaSets": ("apps/v1", "ReplicaSet"),
    "statefulSets": ("apps/v1", "StatefulSet"),
}
OWNERS = (
    *[("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")] * 2,
    ("apps/v1beta1", "ReplicaSet"),
    ("v1", "ReplicaSet"),
    ("apps/v1", "Deployment"),
)

POD_LABEL_KEYS = ("app", "tier", "pod-template-hash")
POD_LABELS: tuple[dict[str, str], ...] = (
    *[{"app": "a"}] * 3,
    {"app": "b"},
    {"app": "a", "tier": "fe"},
    {"app": "a", "tier": ""},
    *[{"app": "a", "pod-template-hash": "v1"}] * 3,
    *[{"app": "a", "pod-template-hash": "v2"}] * 2,
    {"app": "b", "tier": "be", "pod-template-hash": "v1"},
    {"tier": "fe"},
    {},
)
# Phase, and whether the pod is being deleted.
POD_STATES: tuple[tuple[str, bool], ...] = (
    *[("Running", False)] * 8,
    ("Pending", False),
    ("Unknown", False),
    ("Succeeded", False),
    ("Failed", True),
    ("Running", True),
    ("Pending", True),
)

# None: the node lacks the label. "" is a value like any other.
ZONES = ("z1", "z1", "z2", "z2", "z3", "z3", "", None)
RACKS = ("r1", "r1", "r2", "r2", "", None)
NODE_LABELS: tuple[dict[str, str], ...] = (
    {},
    {"disk": "ssd"},
    {"disk": "hdd", "num": "1"},
    {"disk": "ssd", "num": "5"},
    {"num": "007"},
    {"num": "x"},
)
TAINTS: tuple[Json, ...] = tuple(
    {"key": key, "effect": effect} | ({} if value is None else {"value": value})
    for key in ("ded", "num")
    for effect in ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
    for value in (None, "x", "7", "7", "10", "10", "007")
)
USUAL_TOLERATIONS: tuple[Json, ...] = (
    {"operator": "Exists"},
    {"key": "ded", "operator": "Exists"},
    {"key": "num", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "num", "value": "7"},
    *[{"operator": "Gt", "value": "5"}] * 5,
    *[{"operator": "Lt", "value": "8"}] * 3,
)

MATCH_LABELS: tuple[dict[str, str], ...] = (
    *[{"app": "a"}] * 3,
    {"app": "b"},
    {"tier": "fe"},
    {"app": "a", "tier": ""},
)
MATCH_EXPRESSIONS: tuple[Json, ...] = (
    {"key": "app", "operator": "In", "values": ["a"]},
    {"key": "app", "operator": "In", "values": ["a", "b"]},
    {"key": "app", "operator": "NotIn", "values": ["b"]},
    {"key": "app", "operator": "Exists"},
    {"key": "tier", "operator": "DoesNotExist"},
    {"key": "tier", "operator": "NotIn", "values": ["fe", ""]},
    {"key": "tier", "operator": "In", "values": [""]},
    {"key": "pod-template-hash", "operator": "In", "values": ["v1"]},
    {"key": "pod-template-hash", "operator": "DoesNotExist"},
)
# One slip each.
MALFORMED_SELECTORS: tuple[Json, ...] = (
    {"matchLabels": {"a b": "x"}},
    {"matchLabels": {"app": "not valid!"}},
    {"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]},
    {"matchExpressions": [{"key": "app", "operator": "In"}]},
    {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a"]}]},
    {"matchExpressions": [{"key": "a/b/c", "operator": "Exists"}]},
    {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "in"}]},
)

NODE_SELECTORS: tuple[dict[str, str], ...] = (
    {"disk": "ssd"},
    {ZONE: "z1"},
    {},
    {"num": "not valid!"},
)
NODE_OPERATORS = ("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near", "")
# Numbers that Go and Python read differently, that are no label values, or no int64.
NUMBERS = ("1", "5", "007", "+5", "-1", "1_0", " 5", "", "\u0663", "9223372036854775808")
NODE_VALUES: tuple[list[str], ...] = (
    [],
    ["z1"],
    ["ssd", "r1"],
    ["z1", "z2"],
    *([number] for number in NUMBERS),
)
USUAL_TERMS: tuple[Json, ...] = (
    {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1", "z2"]}]},
    {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "num", "operator": "Gt", "values": ["1"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}]},
)
