"""Default constraints: which ones the args give, and whose selector they get.

Source: KEP-1258; facts F22 to F26.
"""

from tests.reference.objects import (
    Json,
    Labels,
    items_of,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    spec_of,
)
from tests.reference.selectors import Selector, SelectorError, exact, is_label_key, parse_selector

DEFAULTED_SYSTEM = "System"
DEFAULTED_LIST = "List"

# KEP-1258, "Default constraints"; KEP-1258 wants them to score as SelectorSpread did (F25).
SYSTEM_CONSTRAINTS: tuple[Json, ...] = (
    {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"},
    {
        "maxSkew": 5,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
    },
)

# The owners that are looked at (F24): (apiVersion, kind) and the cluster's list they are found in.
REPLICATION_CONTROLLER = ("v1", "ReplicationController")
SELECTOR_OWNERS = {
    ("apps/v1", "ReplicaSet"): "replicaSets",
    ("apps/v1", "StatefulSet"): "statefulSets",
}


def defaulting_type(args: Json) -> str:
    """The args' defaultingType; absent means System (F25)."""
    return str(args.get("defaultingType") or DEFAULTED_SYSTEM)


def default_constraints(args: Json) -> list[Json]:
    """The constraints for pods that have none: System's two, or the operator's list."""
    if defaulting_type(args) == DEFAULTED_SYSTEM:
        return list(SYSTEM_CONSTRAINTS)
    return args.get("defaultConstraints") or []


def refusal(args: Json) -> str | None:
    """Why the plugin refuses these args, or None. Only the first reason is told.

    KEP-1258: "During validation, we verify that selectors are not defined"; System takes no
    constraints (F25).
    """
    constraints = args.get("defaultConstraints") or []
    kind = defaulting_type(args)
    if kind not in (DEFAULTED_SYSTEM, DEFAULTED_LIST):
        return f'defaultingType: Unsupported value: "{kind}"'
    if kind == DEFAULTED_SYSTEM and constraints:
        return f'defaultingType: Invalid value: "{kind}": when .defaultConstraints are not empty'
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        pair = (constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or "")
        if problem := constraint_refusal(constraint, *pair):
            return f"defaultConstraints[{index}]{problem}"
        if pair in seen:
            return f"defaultConstraints[{index}]: Duplicate value"
        seen.add(pair)
    return None


def constraint_refusal(constraint: Json, key: str, action: str) -> str | None:
    """Why one default constraint is refused, or None."""
    if (constraint.get("maxSkew") or 0) <= 0:
        return ".maxSkew: Invalid value: not in valid range (0, inf)"
    if not is_label_key(key):
        return ".topologyKey: Required value or not a label key"
    if action not in ("DoNotSchedule", "ScheduleAnyway"):
        return ".whenUnsatisfiable: Unsupported value"
    if constraint.get("labelSelector") is not None:
        return ".labelSelector: Forbidden: it is deduced for each pod"
    return None


def deduced_selector(cluster: Json, pod: Json) -> Selector:
    """The selector of the group the pod belongs to; empty when it belongs to none (F23, F24).

    The selectors of all services of the pod's namespace that match it are merged, then that of its
    controller: a ReplicationController's labels are laid over the services' (replacing equal keys),
    a ReplicaSet's or StatefulSet's selector is required as well. An owner's selector need not
    match the pod.
    """
    merged: dict[str, str] = {}
    for service in items_of(cluster, "services"):
        # A nil or empty service selector adds nothing, whatever it matches.
        selector: Labels = spec_of(service).get("selector") or {}
        in_namespace = namespace_of(service) == namespace_of(pod)
        if in_namespace and exact(selector).matches(labels_of(pod)):
            merged.update(selector)
    owner = controller_of(pod)
    kind = (owner.get("apiVersion") or "", owner.get("kind") or "")
    if kind == REPLICATION_CONTROLLER:
        found = owned_by(cluster, "replicationControllers", pod, owner)
        merged.update(spec_of(found).get("selector") or {})
    elif kind in SELECTOR_OWNERS:
        found = owned_by(cluster, SELECTOR_OWNERS[kind], pod, owner)
        return exact(merged).narrowed(owner_selector(found).requirements)
    return exact(merged)


def controller_of(pod: Json) -> Json:
    """The owner reference marked `controller: true`; empty when there is none."""
    owners: list[Json] = metadata_of(pod).get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def owned_by(cluster: Json, kind: str, pod: Json, owner: Json) -> Json:
    """The owner, found by name in the pod's namespace; empty when it does not exist."""
    for workload in items_of(cluster, kind):
        if namespace_of(workload) == namespace_of(pod) and name_of(workload) == owner.get("name"):
            return workload
    return {}


def owner_selector(workload: Json) -> Selector:
    """The workload's selector; one that is nil or does not parse adds no requirement."""
    try:
        return parse_selector(spec_of(workload).get("selector"))
    except SelectorError:
        return Selector()
