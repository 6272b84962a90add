"""What the volume filters say of a pod: loops over nodes, volumes and pods.

Sources: facts 5 to 13 and 17 of the recorded answers of a whole scheduler (tests/conformance); the
plugins volumerestrictions, nodevolumelimits, volumebinding and volumezone of kube-scheduler 1.37.
"""

from __future__ import annotations

from typing import Any

from tests.reference.affinity import term_accepts
from tests.reference.objects import Json, items_of, labels_of, metadata_of, name_of, spec_of

UNRESOLVABLE = "UnschedulableAndUnresolvable"
UNSCHEDULABLE = "Unschedulable"

PLUGINS = {
    "kubernetes.io/aws-ebs": ("awsElasticBlockStore", "volumeID", "ebs.csi.aws.com"),
    "kubernetes.io/gce-pd": ("gcePersistentDisk", "pdName", "pd.csi.storage.gke.io"),
}
"""In-tree plugins: source, the field of its name, and the driver in its place."""

DRIVERS_ZONES = {
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
}

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
ZONE_KEYS = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}


class RefusedError(Exception):
    """PreFilter's refusal."""


class Volumes:
    """A cluster's volumes, as seen for one pod.

    Pods in phase Succeeded or Failed and those without a node, or on one that is not there, count
    nowhere.
    """

    def __init__(self, cluster: Json, pod: Json) -> None:
        """Take the cluster apart by kind and name."""
        self.nodes = items_of(cluster, "nodes")
        self.pod = pod
        self.namespace = metadata_of(pod).get("namespace") or "default"
        self.volumes = {name_of(each): each for each in items_of(cluster, "persistentVolumes")}
        self.claims = {
            (metadata_of(each)["namespace"], name_of(each)): each
            for each in items_of(cluster, "persistentVolumeClaims")
        }
        self.classes = {name_of(each): each for each in items_of(cluster, "storageClasses")}
        self.csi_nodes = {name_of(each): each for each in items_of(cluster, "csiNodes")}
        self.drivers = {name_of(each): each for each in items_of(cluster, "csiDrivers")}
        self.capacities = items_of(cluster, "csiStorageCapacities")
        self.attachments = items_of(cluster, "volumeAttachments")
        names = {name_of(node) for node in self.nodes}
        self.pods = [
            each
            for each in items_of(cluster, "pods")
            if spec_of(each).get("nodeName") in names
            and (each.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def on(self, node: Json) -> list[Json]:
        """The pods on a node."""
        return [each for each in self.pods if spec_of(each)["nodeName"] == name_of(node)]

    def claims_of(self, pod: Json) -> list[tuple[str, Json | None, bool]]:
        """A pod's claims in order: name, the claim, and whether it is made for the pod."""
        found = []
        namespace = metadata_of(pod).get("namespace") or "default"
        for volume in spec_of(pod).get("volumes") or []:
            if "persistentVolumeClaim" in volume:
                name, ephemeral = volume["persistentVolumeClaim"]["claimName"], False
            elif "ephemeral" in volume:
                name, ephemeral = f"{name_of(pod)}-{volume['name']}", True
            else:
                continue
            found.append((name, self.claims.get((namespace, name)), ephemeral))
        return found

    def class_of(self, claim: Json) -> Json | None:
        """A claim's class."""
        return self.classes.get(spec_of(claim).get("storageClassName") or "")


def said(plugin: str, cluster: Json, pod: Json) -> Json:
    """What a plugin says of a pod by itself, as the recorded answers have it; {} for nothing."""
    volumes = Volumes(cluster, pod)
    pre_filter, filter_node = FILTERS[plugin]
    try:
        pre_filter(volumes)
    except RefusedError as refusal:
        return {"preFilter": {"code": UNRESOLVABLE, "reasons": [str(refusal)]}}
    refused = {}
    for node in volumes.nodes:
        code, reasons = filter_node(volumes, node)
        if reasons:
            refused[name_of(node)] = {"code": code, "reasons": sorted(reasons)}
    return {"refused": refused} if refused else {}


Verdict = tuple[str, list[str]]
FITS: Verdict = ("", [])


# ------------------------------ VolumeRestrictions


def restrictions_before(volumes: Volumes) -> None:
    """A claim that the pod names has to be there."""
    for name, claim, ephemeral in volumes.claims_of(volumes.pod):
        if claim is None and not ephemeral:
            raise RefusedError(f'persistentvolumeclaim "{name}" not found')


def restrictions(volumes: Volumes, node: Json) -> Verdict:
    """Disks in use on the node, and claims of one pod in use anywhere."""
    for mine in spec_of(volumes.pod).get("volumes") or []:
        for other in volumes.on(node):
            for theirs in spec_of(other).get("volumes") or []:
                if conflict(mine, theirs):
                    return UNSCHEDULABLE, ["node(s) had no available disk"]
    for name, claim, ephemeral in volumes.claims_of(volumes.pod):
        if claim is None or ephemeral:
            continue
        if "ReadWriteOncePod" not in (spec_of(claim).get("accessModes") or []):
            continue
        for other in volumes.pods:
            if (metadata_of(other).get("namespace") or "default") != volumes.namespace:
                continue
            if name in [each for each, _, made in volumes.claims_of(other) if not made]:
                reason = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use"
                return UNSCHEDULABLE, [f"node(s) unavailable due to {reason} by another pod"]
    return FITS


def conflict(one: Json, other: Json) -> bool:
    """Whether two disks of pods may not be on one node."""
    for source, named in (
        ("gcePersistentDisk", ("pdName",)),
        ("awsElasticBlockStore", ("volumeID",)),
        ("iscsi", ("iqn",)),
        ("rbd", ("pool", "image")),
    ):
        mine, theirs = one.get(source), other.get(source)
        if mine is None or theirs is None:
            continue
        defaults = {"pool": "rbd"}
        if any(
            (mine.get(each) or defaults.get(each)) != (theirs.get(each) or defaults.get(each))
            for each in named
        ):
            continue
        if source == "rbd" and not set(mine["monitors"]) & set(theirs["monitors"]):
            continue
        if source == "awsElasticBlockStore":
            return True
        if not (mine.get("readOnly") and theirs.get("readOnly")):
            return True
    return False


# ------------------------------ NodeVolumeLimits


def nothing_before(_volumes: Volumes) -> None:
    """Say nothing of the pod as a whole."""


def limits(volumes: Volumes, node: Json) -> Verdict:
    """As many volumes of a driver as the node takes, and only of drivers that it has."""
    csi_node = volumes.csi_nodes.get(name_of(node))
    new = counted(volumes, volumes.pod, csi_node)
    known = {each["name"]: each for each in spec_of(csi_node or {}).get("drivers") or []}
    for driver in sorted({driver for driver, _ in new}):
        spec = spec_of(volumes.drivers.get(driver, {}))
        if spec.get("preventPodSchedulingIfMissing") and driver not in known:
            return UNSCHEDULABLE, [f"{driver} CSI driver is not installed on the node"]
    there = set()
    for pod in volumes.on(node):
        there |= counted(volumes, pod, csi_node)
    attached = set()
    for each in volumes.attachments:
        volume = volumes.volumes.get(spec_of(each)["source"].get("persistentVolumeName") or "")
        if spec_of(each)["nodeName"] == name_of(node) and "csi" in spec_of(volume or {}):
            handle = spec_of(volume or {})["csi"]["volumeHandle"]
            attached.add((spec_of(each)["attacher"], handle))
    for driver, described in known.items():
        most = (described.get("allocatable") or {}).get("count")
        added = [each for each in new - there if each[0] == driver]
        held = [each for each in there | attached if each[0] == driver]
        if most is not None and added and len(held) + len(added) > most:
            return UNSCHEDULABLE, ["node(s) exceed max volume count"]
    return FITS


def counted(volumes: Volumes, pod: Json, csi_node: Json | None) -> set[tuple[str, Any]]:
    """A pod's volumes on a node: driver and what tells the volume from others."""
    found: set[tuple[str, Any]] = set()
    for volume in spec_of(pod).get("volumes") or []:
        found |= in_tree(volume, csi_node)
    for _, claim, _ in volumes.claims_of(pod):
        if claim is None:
            continue
        volume = volumes.volumes.get(spec_of(claim).get("volumeName") or "")
        if volume is None:
            provisioner = (volumes.class_of(claim) or {}).get("provisioner")
            key = (metadata_of(claim)["namespace"], name_of(claim))
            if provisioner in PLUGINS:
                if csi_node is not None:
                    found.add((PLUGINS[provisioner][2], key))
            elif provisioner:
                found.add((provisioner, key))
        elif "csi" in spec_of(volume):
            source = spec_of(volume)["csi"]
            found.add((source["driver"], source["volumeHandle"]))
        else:
            zone = labels_of(volume).get("topology.kubernetes.io/zone")
            found |= in_tree(spec_of(volume), csi_node, zone)
    return found


def in_tree(volume: Json, csi_node: Json | None, zone: str | None = None) -> set[tuple[str, Any]]:
    """The volume of an in-tree source, which counts where the node's drivers are known."""
    for source, named, driver in PLUGINS.values():
        if source in volume and csi_node is not None:
            # Only a disk of GCE has its zone in its handle; others have their own name there, too.
            name = volume[source][named]
            return {(driver, (name, zone) if source[:3] == "gce" else name)}
    return set()


# ------------------------------ VolumeBinding


def binding_before(volumes: Volumes) -> None:
    """Claims have to be there, alive, the pod's own, and bound unless they wait for it."""
    for name, claim, ephemeral in volumes.claims_of(volumes.pod):
        quoted = f'persistentvolumeclaim "{name}"'
        if claim is None:
            if ephemeral:
                controller = "waiting for ephemeral volume controller to create the"
                raise RefusedError(f"{controller} {quoted}")
            raise RefusedError(f"{quoted} not found")
        if (claim.get("status") or {}).get("phase") == "Lost":
            gone = spec_of(claim).get("volumeName") or ""
            raise RefusedError(f'{quoted} bound to non-existent persistentvolume "{gone}"')
        if metadata_of(claim).get("deletionTimestamp"):
            raise RefusedError(f"{quoted} is being deleted")
        if ephemeral:
            owners = metadata_of(claim).get("ownerReferences") or []
            uids = [each["uid"] for each in owners if each.get("controller")]
            if uids != [metadata_of(volumes.pod).get("uid")]:
                whole = f"{volumes.namespace}/{name}"
                pod = f"{volumes.namespace}/{name_of(volumes.pod)}"
                raise RefusedError(f"PVC {whole} was not created for pod {pod} (pod is not owner)")
    for _, claim, _ in volumes.claims_of(volumes.pod):
        if claim is not None and not bound(claim) and not waiting(volumes, claim):
            raise RefusedError("pod has unbound immediate PersistentVolumeClaims")


def bound(claim: Json) -> bool:
    """Whether the claim has its volume for good."""
    metadata = metadata_of(claim)
    annotated = "pv.kubernetes.io/bind-completed" in (metadata.get("annotations") or {})
    by_hand = not metadata.get("uid") and (claim.get("status") or {}).get("phase") == "Bound"
    said = annotated or by_hand
    return bool(spec_of(claim).get("volumeName")) and said


def waiting(volumes: Volumes, claim: Json) -> bool:
    """Whether the claim gets its volume when its pod has a node."""
    mode = (volumes.class_of(claim) or {}).get("volumeBindingMode")
    return mode == "WaitForFirstConsumer" and not spec_of(claim).get("volumeName")


def binding(volumes: Volumes, node: Json) -> Verdict:
    """Every volume is reached from the node, or can be had there."""
    claims = [claim for _, claim, _ in volumes.claims_of(volumes.pod) if claim is not None]
    reasons = []
    for claim in claims:
        if not bound(claim):
            continue
        volume = volumes.volumes.get(spec_of(claim)["volumeName"])
        if volume is None:
            missing = "one or more pvc(s) bound to non-existent pv(s)"
            reasons.append(f"node(s) unavailable due to {missing}")
            break
        if not reaches(volumes, volume, node):
            reasons.append("node(s) didn't match PersistentVolume's node affinity")
            break
    reasons += to_bind(volumes, [claim for claim in claims if not bound(claim)], node)
    return (UNRESOLVABLE, reasons) if reasons else FITS


NONE_TO_BIND = "node(s) didn't find available persistent volumes to bind"


def to_bind(volumes: Volumes, claims: list[Json], node: Json) -> list[str]:
    """Why claims that wait cannot have a volume on the node: one reason or none."""
    to_make, to_find = [], []
    for claim in claims:
        annotations = metadata_of(claim).get("annotations") or {}
        selected = annotations.get("volume.kubernetes.io/selected-node")
        if selected is None:
            to_find.append(claim)
        elif selected != name_of(node):
            return [NONE_TO_BIND]
        else:
            to_make.append(claim)
    taken: set[str] = set()
    for claim in sorted(to_find, key=size):
        found = matching(volumes, claim, node, taken)
        if found is None:
            to_make.append(claim)
        else:
            taken.add(name_of(found))
    for claim in to_make:
        named = volumes.class_of(claim) or {}
        if named.get("provisioner") in (None, "", "kubernetes.io/no-provisioner"):
            return [NONE_TO_BIND]
        if not allowed(named.get("allowedTopologies") or [], node):
            return [NONE_TO_BIND]
        if not enough(volumes, named, claim, node):
            return ["node(s) did not have enough free storage"]
    return []


def matching(volumes: Volumes, claim: Json, node: Json, taken: set[str]) -> Json | None:
    """The volume that a claim would have: the one kept for it, else the smallest that suits."""
    best = None
    for name in sorted(volumes.volumes):
        volume = volumes.volumes[name]
        spec, kept = spec_of(volume), spec_of(volume).get("claimRef")
        if name in taken or not suits(claim, volume):
            continue
        if kept is not None:
            same = (kept["namespace"], kept["name"]) == (
                metadata_of(claim)["namespace"],
                name_of(claim),
            )
            if same and kept.get("uid") in (None, "", metadata_of(claim).get("uid")):
                return volume if accepts(required_terms(volume), node) else None
            continue
        if (volume.get("status") or {}).get("phase") != "Available":
            continue
        wanted = (spec_of(claim).get("selector") or {}).get("matchLabels") or {}
        if any(labels_of(volume).get(key) != value for key, value in wanted.items()):
            continue
        if not set(spec_of(claim).get("accessModes") or []) <= set(spec.get("accessModes") or []):
            continue
        # As it is written: only a volume that is bound is looked at as its driver's.
        if not accepts(required_terms(volume), node):
            continue
        if best is None or size(volume) < size(best):
            best = volume
    return best


def suits(claim: Json, volume: Json) -> bool:
    """What also a volume that is kept for a claim has to have."""
    mine, its = spec_of(claim), spec_of(volume)
    if (mine.get("storageClassName") or "") != (its.get("storageClassName") or ""):
        return False
    if (mine.get("volumeMode") or "Filesystem") != (its.get("volumeMode") or "Filesystem"):
        return False
    one, other = (each.get("volumeAttributesClassName") or "" for each in (mine, its))
    if one != other or metadata_of(volume).get("deletionTimestamp"):
        return False
    return size(volume) >= size(claim)


def size(either: Json) -> int:
    """Gibibytes of a volume or a claim; the model's quantities are whole ones."""
    spec = spec_of(either)
    amounts = spec.get("capacity") or (spec.get("resources") or {}).get("requests") or {}
    return int(str(amounts.get("storage", "0Gi")).removesuffix("Gi"))


def reaches(volumes: Volumes, volume: Json, node: Json) -> bool:
    """Whether the volume can be had on the node.

    In tree and migrated on the node, its zone is looked for in the label of its driver's.
    """
    key, required = migrated_zone(volumes, volume, node), required_terms(volume)
    if key:
        terms = required or []
        own = {each["key"] for term in terms for each in term.get("matchExpressions") or []}
        label = (
            ZONE
            if ZONE in own or (BETA_ZONE not in own and ZONE in labels_of(volume))
            else BETA_ZONE
        )
        zones = set(filter(None, map(str.strip, labels_of(volume).get(label, "").split("__"))))
        if label in own:
            required = [renamed(term, label, key) for term in terms]
        elif zones and labels_of(node).get(key) not in zones:
            return False
    return accepts(required, node)


def required_terms(volume: Json) -> list[Json] | None:
    """The terms of a volume's node affinity, as written; None without any."""
    required = (spec_of(volume).get("nodeAffinity") or {}).get("required")
    return (required.get("nodeSelectorTerms") or []) if required else None


def accepts(terms: list[Json] | None, node: Json) -> bool:
    """Whether the node is one of those that terms select; any without terms."""
    if terms is None:
        return True
    # The node's name is not known there, so that a condition on it has nothing to compare.
    nameless = node | {"metadata": metadata_of(node) | {"name": ""}}
    return any(term_accepts(term, nameless) for term in terms)


def migrated_zone(volumes: Volumes, volume: Json, node: Json) -> str:
    """The label of a zone by the driver that serves an in-tree volume on the node; "" for none."""
    csi_node = volumes.csi_nodes.get(name_of(node), {})
    annotations = metadata_of(csi_node).get("annotations") or {}
    migrated = annotations.get("storage.alpha.kubernetes.io/migrated-plugins", "").split(",")
    for plugin, (source, _, _) in PLUGINS.items():
        if source in spec_of(volume) and plugin in migrated:
            return DRIVERS_ZONES[plugin]
    return ""


def renamed(term: Json, key: str, other: str) -> Json:
    """A term with another label in its conditions."""
    conditions = term.get("matchExpressions") or []
    return term | {
        "matchExpressions": [
            each | {"key": other} if each["key"] == key else each for each in conditions
        ]
    }


def allowed(topologies: list[Json], node: Json) -> bool:
    """Whether the class makes volumes for the node: all of one of its terms."""
    if not topologies:
        return True
    return any(
        term.get("matchLabelExpressions")
        and all(
            labels_of(node).get(each["key"]) in each["values"]
            for each in term["matchLabelExpressions"]
        )
        for term in topologies
    )


def enough(volumes: Volumes, named: Json, claim: Json, node: Json) -> bool:
    """Whether the driver, if it says what it has, has enough for the node."""
    driver = volumes.drivers.get(named["provisioner"])
    if driver is None or not spec_of(driver).get("storageCapacity"):
        return True
    for each in volumes.capacities:
        most = each.get("maximumVolumeSize") or each.get("capacity")
        topology = each.get("nodeTopology")
        if each["storageClassName"] != name_of(named) or most is None or topology is None:
            continue
        wanted = (topology.get("matchLabels") or {}).items()
        here = all(labels_of(node).get(key) == value for key, value in wanted)
        if here and int(most.removesuffix("Gi")) >= size(claim):
            return True
    return False


# ------------------------------ VolumeZone


def zone_before(volumes: Volumes) -> None:
    """The volume of each claim that the pod names has to be there, unless it waits for the pod."""
    for name, claim, ephemeral in volumes.claims_of(volumes.pod):
        if ephemeral:
            continue
        if claim is None:
            raise RefusedError(f'persistentvolumeclaim "{name}" not found')
        wanted, named = spec_of(claim).get("volumeName"), spec_of(claim).get("storageClassName")
        if wanted:
            if wanted not in volumes.volumes:
                raise RefusedError(f'persistentvolume "{wanted}" not found')
        elif not named:
            raise RefusedError("PersistentVolumeClaim had no pv name and storageClass name")
        elif named not in volumes.classes:
            raise RefusedError(f'storageclass.storage.k8s.io "{named}" not found')
        elif not waiting(volumes, claim):
            raise RefusedError("PersistentVolume had no name")


def zone(volumes: Volumes, node: Json) -> Verdict:
    """The node has each zone and region of the volumes, if it has such labels at all."""
    if not any(key in labels_of(node) for key in ZONE_KEYS):
        return FITS
    for _, claim, ephemeral in volumes.claims_of(volumes.pod):
        volume = volumes.volumes.get(spec_of(claim or {}).get("volumeName") or "")
        if ephemeral or volume is None:
            continue
        for key, newer in ZONE_KEYS.items():
            if key not in labels_of(volume):
                continue
            values = [part.strip() for part in labels_of(volume)[key].split("__")]
            if "" in values:
                continue
            if labels_of(node).get(key, labels_of(node).get(newer)) not in values:
                return UNRESOLVABLE, ["node(s) had no available volume zone"]
    return FITS


FILTERS = {
    "VolumeRestrictions": (restrictions_before, restrictions),
    "NodeVolumeLimits": (nothing_before, limits),
    "VolumeBinding": (binding_before, binding),
    "VolumeZone": (zone_before, zone),
}
