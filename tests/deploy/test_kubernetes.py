"""The Kubernetes manifests: valid by the API's own schemas, and true to what they start."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.files import ROOT, parsed
from topospread.cli.commands.serve import command as serve_command
from topospread.config.descriptions import SETTINGS
from topospread.config.loading import load_settings
from topospread.http.webhook import ROOT as WEBHOOK
from topospread.kubernetes.objects import RESOURCES

if TYPE_CHECKING:
    from topospread.config.settings import ServerSettings

FOLDER = ROOT / "deploy" / "kubernetes"
BASE = FOLDER / "base"
VERSIONS = ("1.29.0", "1.36.0", "1.37.0")


def manifests() -> dict[str, dict[str, Any]]:
    """The objects of the base, by kind and name."""
    return {
        f"{each['kind']}/{each['metadata']['name']}": each
        for name in parsed(BASE / "kustomization.yaml")["resources"]
        for each in yaml.load_all((BASE / name).read_text(), yaml.CSafeLoader)
    }


OBJECTS = manifests()
DEPLOYMENT = OBJECTS["Deployment/topospread"]
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
TLS = parsed(FOLDER / "tls" / "deployment.yaml")["spec"]["template"]["spec"]
EXPANDER_POLICY = parsed(FOLDER / "tls" / "network.yaml")
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def given(arguments: list[str], **environ: str) -> ServerSettings:
    """The settings that a container's arguments make."""
    verb, *flags = arguments
    assert verb == "serve"
    return load_settings(serve_command.make_context("serve", list(flags)).params, environ)


def with_tls(kind: str) -> dict[str, Any]:
    """The object `topospread` of a kind, with the patch of the component `tls` merged in."""
    made = copy.deepcopy(OBJECTS[f"{kind}/topospread"])
    patch = parsed(
        FOLDER / "tls" / {"Deployment": "deployment.yaml", "Service": "services.yaml"}[kind]
    )
    assert {key: patch[key] for key in ("apiVersion", "kind")} == {
        key: made[key] for key in ("apiVersion", "kind")
    }
    assert patch["metadata"].items() <= made["metadata"].items()
    if kind == "Service":
        made["spec"]["ports"] += patch["spec"]["ports"]
        return made
    pod = made["spec"]["template"]["spec"]
    container, added = pod["containers"][0], patch["spec"]["template"]["spec"]["containers"][0]
    assert added["name"] == container["name"]
    for key, content in added.items():
        merged = key in ("ports", "volumeMounts")
        container[key] = [*container.get(key, ()), *content] if merged else content
    volumes = patch["spec"]["template"]["spec"]["volumes"]
    pod["volumes"] = [*pod.get("volumes", ()), *volumes]
    return made


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_is_valid_by_the_schema_of_its_kind(name: str, version: str) -> None:
    kubernetes_validate.validate(OBJECTS[name], version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_so_is_what_the_component_tls_adds(version: str) -> None:
    for made in (with_tls("Deployment"), with_tls("Service"), EXPANDER_POLICY):
        kubernetes_validate.validate(made, version, strict=True)


def test_the_schemas_are_really_asked() -> None:
    broken = copy.deepcopy(DEPLOYMENT)
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_everything_asked_for_is_there() -> None:
    assert {name.partition("/")[0] for name in OBJECTS} == {
        *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment"),
        *("Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"),
    }


@pytest.mark.parametrize("folder", ["base", "tls", "monitoring", "access", "waking", "webhook"])
def test_every_file_is_named_by_its_kustomization(folder: str) -> None:
    made = parsed(FOLDER / folder / "kustomization.yaml")
    named = {*made.get("resources", ()), *(patch["path"] for patch in made.get("patches", ()))}
    for generator in made.get("configMapGenerator", ()):
        named |= {file.partition("=")[2] or file for file in generator["files"]}
    there = {path.name for path in (FOLDER / folder).iterdir()}
    assert named == there - {"kustomization.yaml"}


def test_the_role_allows_what_the_feed_reads_and_nothing_else() -> None:
    allowed = {
        (group, resource, verb)
        for rule in OBJECTS["ClusterRole/topospread-sync"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        (one.api_version.rpartition("/")[0], one.path.rpartition("/")[2], verb)
        for one in RESOURCES
        for verb in ("list", "watch")
    }
    assert allowed == needed
    binding = OBJECTS["ClusterRoleBinding/topospread-sync"]
    assert binding["roleRef"]["name"] == "topospread-sync"
    assert binding["subjects"][0]["name"] == POD["spec"]["serviceAccountName"]


def test_the_server_is_given_settings_that_hold_together() -> None:
    settings = given(CONTAINER["args"], TOPOSPREAD_STORE="redis://redis:6379/0")
    assert settings.sync
    assert settings.insecure
    assert (settings.listen.port, settings.http and settings.http.port) == (
        PORTS["grpc"],
        PORTS["http"],
    )
    assert not settings.listen.loopback
    named = {each["name"] for each in CONTAINER["env"]}
    known = {setting.variable for setting in SETTINGS.values()}
    assert named - known == {"TOPOSPREAD_REDIS_USERNAME", "TOPOSPREAD_REDIS_PASSWORD"}


def test_with_tls_the_same_is_served_from_the_mounted_files() -> None:
    container = TLS["containers"][0]
    settings = given(container["args"], TOPOSPREAD_STORE="redis://redis:6379/0")
    plain = given(CONTAINER["args"], TOPOSPREAD_STORE="redis://redis:6379/0")
    assert (settings.listen, settings.http, settings.sync) == (plain.listen, plain.http, plain.sync)
    assert settings.tls
    assert not settings.insecure
    assert settings.shutdown_delay == plain.shutdown_delay
    mounted = container["volumeMounts"][0]
    assert settings.tls_cert.startswith(f"{mounted['mountPath']}/")
    assert mounted["name"] == TLS["volumes"][0]["name"]
    for probe in PROBES:
        assert container[probe]["httpGet"] == CONTAINER[probe]["httpGet"] | {"scheme": "HTTPS"}


def test_with_tls_the_expander_is_served_and_let_through() -> None:
    container = with_tls("Deployment")["spec"]["template"]["spec"]["containers"][0]
    settings = given(container["args"], TOPOSPREAD_STORE="redis://redis:6379/0")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports.keys() - PORTS.keys() == {"expander"}
    assert settings.expander_listen is not None
    assert not settings.expander_listen.loopback
    assert settings.expander_listen.port == ports["expander"]
    service = with_tls("Service")["spec"]["ports"]
    assert {port["targetPort"]: port["port"] for port in service} == ports
    (rule,) = EXPANDER_POLICY["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [ports["expander"]]
    policy = OBJECTS["NetworkPolicy/topospread"]
    assert EXPANDER_POLICY["spec"]["podSelector"] == policy["spec"]["podSelector"]
    # The autoscaler of the page is one that is let through.
    page = (ROOT / "docs" / "cluster-autoscaler.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    caller = yaml.safe_load(block)
    (peer,) = rule["from"]
    labels = caller["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert peer["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": caller["metadata"]["namespace"]
    }


def test_probes_ask_what_is_served() -> None:
    for probe in PROBES:
        asked = CONTAINER[probe]["httpGet"]
        assert asked["port"] in PORTS
        assert asked["path"] == ("/readyz" if probe == "readinessProbe" else "/livez")


def test_a_pod_may_stop_for_longer_than_its_server_needs() -> None:
    settings = given(CONTAINER["args"], TOPOSPREAD_STORE="redis://redis:6379/0")
    needed = settings.shutdown_delay + settings.shutdown_grace_period
    assert settings.shutdown_delay, "callers hear later than the server that it stops"
    assert POD["spec"]["terminationGracePeriodSeconds"] > needed


def test_selectors_select_the_pods() -> None:
    labels = POD["metadata"]["labels"]
    policy = OBJECTS["NetworkPolicy/topospread"]["spec"]["podSelector"]["matchLabels"]
    budget = OBJECTS["PodDisruptionBudget/topospread"]["spec"]["selector"]["matchLabels"]
    services = [each["spec"]["selector"] for name, each in OBJECTS.items() if "Service/" in name]
    spread = [
        each["labelSelector"]["matchLabels"] for each in POD["spec"]["topologySpreadConstraints"]
    ]
    assert len(services) == len(spread) == 2
    own = DEPLOYMENT["spec"]["selector"]["matchLabels"]
    for selector in (policy, budget, own, *services, *spread):
        assert selector
        assert selector.items() <= labels.items()
    target = OBJECTS["HorizontalPodAutoscaler/topospread"]["spec"]["scaleTargetRef"]
    assert target["name"] == DEPLOYMENT["metadata"]["name"]
    assert "replicas" not in DEPLOYMENT["spec"], "the autoscaler's to say"


def test_services_and_the_policy_open_the_ports_of_the_pod() -> None:
    for name in ("Service/topospread", "Service/topospread-each"):
        for port in OBJECTS[name]["spec"]["ports"]:
            assert PORTS[port["targetPort"]] == port["port"]
    rules = OBJECTS["NetworkPolicy/topospread"]["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == set(PORTS.values())
    assert all(rule["from"] for rule in rules), "nobody unnamed"


def test_metrics_are_scraped_from_one_service_by_a_port_that_it_has() -> None:
    monitor = parsed(FOLDER / "monitoring" / "servicemonitor.yaml")
    assert (monitor["apiVersion"], monitor["kind"]) == (
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
    )
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    chosen = [
        each
        for each in OBJECTS.values()
        if each["kind"] == "Service" and wanted <= each["metadata"]["labels"].items()
    ]
    assert [each["metadata"]["name"] for each in chosen] == ["topospread"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["port"] in {port["name"] for port in chosen[0]["spec"]["ports"]}


def test_the_pod_may_do_nothing_that_it_needs_not() -> None:
    level = OBJECTS["Namespace/topospread"]["metadata"]["labels"]
    assert level["pod-security.kubernetes.io/enforce"] == "restricted"
    assert POD["spec"]["securityContext"]["runAsNonRoot"]
    own = CONTAINER["securityContext"]
    assert own["readOnlyRootFilesystem"]
    assert not own["allowPrivilegeEscalation"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert POD["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["spec"]["securityContext"]["runAsUser"] == 65532
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(POD["spec"])
    assert not [volume for volume in POD["spec"]["volumes"] if "hostPath" in volume]


@pytest.mark.parametrize("version", VERSIONS)
def test_waking_may_patch_the_status_of_pods_and_nothing_else(version: str) -> None:
    component = parsed(FOLDER / "waking" / "kustomization.yaml")
    assert component["kind"] == "Component"
    (file,) = component["resources"]
    role, binding = yaml.safe_load_all((FOLDER / "waking" / file).read_text())
    for each in (role, binding):
        kubernetes_validate.validate(each, version, strict=True)
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == OBJECTS["ClusterRoleBinding/topospread-sync"]["subjects"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_webhook_warns_and_keeps_nothing_up(version: str) -> None:
    configuration = parsed(FOLDER / "webhook" / "configuration.yaml")
    kubernetes_validate.validate(configuration, version, strict=True)
    (webhook,) = configuration["webhooks"]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["timeoutSeconds"] <= 5
    assert webhook["sideEffects"] == "None"
    assert webhook["admissionReviewVersions"] == ["v1"]
    asked = webhook["clientConfig"]["service"]
    service = OBJECTS["Service/topospread"]
    assert (asked["name"], asked["namespace"]) == (
        service["metadata"]["name"],
        service["metadata"]["namespace"],
    )
    ports = {port["port"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports[asked["port"]] == "http"
    assert asked["path"] == WEBHOOK
    assert {"kube-system", "topospread"} == {
        *webhook["namespaceSelector"]["matchExpressions"][0]["values"]
    }
