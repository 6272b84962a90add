"""Real etcd, kube-apiserver, kube-scheduler and controllers on loopback.

Nodes are objects without machines: bench.campaigns.kubelets stands in for what would run there.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import httpx
import trustme
import yaml

from tests.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
ADMIN, SERVER = "token-of-the-admin", "token-of-topospread"
PATIENCE = 90.0
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

binaries_option = click.option(
    "--binaries",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with etcd, kube-apiserver and kube-scheduler; for some kube-controller-manager.",
)

CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
)
"""Not node-lifecycle's, which would taint nodes that send no heartbeats."""

MERGE = {"Content-Type": "application/merge-patch+json"}


class Cluster:
    """An API server with what it needs, from entering to leaving.

    Authorization is RBAC: topospread has the rights that deploy/kubernetes gives it.

    Args:
        binaries: folder with etcd, kube-apiserver and kube-scheduler.
        directory: for certificates, data and logs.
        permissions: manifests under deploy/kubernetes whose ClusterRoles topospread gets.
    """

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        permissions: Sequence[str] = ("base/access.yaml", "waking/access.yaml"),
    ) -> None:
        self.directory = directory
        self._binaries = binaries
        self._permissions = permissions
        self._opened = ExitStack()
        self._running = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._etcd_ports = free_port(), free_port()
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.http = httpx.Client()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._start(opened)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def start(self, opened: ExitStack, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a binary; its end comes with the stack's."""
        return start(opened, self.directory, name, str(self._binaries / name), *arguments)

    def scheduler(self, opened: ExitStack, extender: Mapping[str, Any] | None) -> None:
        """Start a kube-scheduler with an extender, or with its own plugin."""
        port = free_port()
        profile: dict[str, Any] = {"schedulerName": "default-scheduler"}
        configuration: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": self.kubeconfig(ADMIN, "scheduler"),
                "qps": 2000,
                "burst": 4000,
            },
            "percentageOfNodesToScore": 100,
            "profiles": [profile],
        }
        if extender is not None:
            profile["plugins"] = {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}}
            configuration["extenders"] = [
                {"httpTimeout": "5s", "nodeCacheCapable": True, "enableHTTPS": False, **extender}
            ]
        path = self.directory / "scheduler.yaml"
        path.write_text(yaml.safe_dump(configuration))
        kubeconfig = self.kubeconfig(ADMIN, "scheduler")
        self.start(
            opened,
            "kube-scheduler",
            f"--config={path}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
        )
        self._await(f"https://127.0.0.1:{port}/readyz")

    def controllers(self, opened: ExitStack) -> None:
        """Start the controllers of workloads in a kube-controller-manager."""
        port = free_port()
        kubeconfig = self.kubeconfig(ADMIN, "controllers")
        self.start(
            opened,
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            f"--controllers={','.join(CONTROLLERS)}",
        )
        self._await(f"https://127.0.0.1:{port}/healthz")

    def kubeconfig(self, token: str, name: str) -> str:
        """A file for clients with a token."""
        path = self.directory / f"kubeconfig-{name}"
        server = {"server": self.url, "certificate-authority": str(self.directory / "ca.crt")}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "real", "cluster": server}],
                    "users": [{"name": "real", "user": {"token": token}}],
                    "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
                    "current-context": "real",
                }
            )
        )
        return str(path)

    @property
    def trust(self) -> str:
        """File with the CA of its certificate."""
        return str(self.directory / "ca.crt")

    @property
    def authorized(self) -> dict[str, str]:
        """The administrator's header."""
        return {"Authorization": f"Bearer {ADMIN}"}

    # ------------------------------ requests

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **headers: str
    ) -> dict[str, Any]:
        """One request of the administrator's."""
        content = None if body is None else json.dumps(body)
        made = {"Content-Type": "application/json", **headers}
        answer = self.http.request(method, path, content=content, headers=made)
        if answer.status_code >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        found: dict[str, Any] = answer.json()
        return found

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """A merge patch."""
        answer = self.http.patch(path, content=json.dumps(body), headers=MERGE)
        if answer.status_code >= 300:
            raise RuntimeError(f"PATCH {path}: {answer.status_code} {answer.text[:300]}")

    # ------------------------------ start

    def _start(self, opened: ExitStack) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(self.directory / "ca.crt")
        certificate.private_key_pem.write_to_path(self.directory / "server.key")
        certificate.private_key_pem.write_to_path(self.directory / "accounts.key")
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(self.directory / "server.crt", append=True)
        (self.directory / "tokens.csv").write_text(
            f"{ADMIN},admin,1,system:masters\n{SERVER},topospread,2,\n"
        )
        self.http = opened.enter_context(
            httpx.Client(
                base_url=self.url,
                verify=str(self.directory / "ca.crt"),
                headers={"Authorization": f"Bearer {ADMIN}"},
                timeout=PATIENCE,
                trust_env=False,
            )
        )
        opened.callback(self.stop)
        self.run()
        self._permit()

    @property
    def data(self) -> Path:
        """Folder with etcd's data."""
        return self.directory / "etcd"

    def stop(self, *, kill: bool = False) -> None:
        """End etcd and the API server, which may run() again."""
        for process in self._processes if kill else ():
            process.kill()
        self._processes = []
        self._running.close()

    def run(self) -> None:
        """Start etcd and the API server with the data that is there, and await them."""
        clients, peers = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        etcd = self.start(
            self._running,
            "etcd",
            f"--data-dir={self.data}",
            "--log-level=warn",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )
        self._await(f"{clients}/health")
        files = {name: self.directory / name for name in ("server.crt", "server.key")}
        # Without the plugins that would taint nodes nobody runs, and ask for service accounts.
        server = self.start(
            self._running,
            "kube-apiserver",
            f"--etcd-servers={clients}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--tls-cert-file={files['server.crt']}",
            f"--tls-private-key-file={files['server.key']}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={self.directory / 'accounts.key'}",
            f"--service-account-signing-key-file={self.directory / 'accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        )
        self._processes = [etcd, server]
        self._await(f"{self.url}/readyz")

    def _permit(self) -> None:
        """Give topospread's user the ClusterRoles of deploy/kubernetes."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        for file in self._permissions:
            text = (ROOT / "deploy/kubernetes" / file).read_text()
            for manifest in yaml.safe_load_all(text):
                if manifest["kind"] != "ClusterRole":
                    continue
                name = manifest["metadata"]["name"]
                self.call("POST", f"{rbac}/clusterroles", manifest)
                binding = {
                    "metadata": {"name": name},
                    "roleRef": {"kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "User", "name": "topospread"}],
                }
                self.call("POST", f"{rbac}/clusterrolebindings", binding)

    def _await(self, url: str) -> None:
        with httpx.Client(
            verify=False,  # a scheduler makes its own certificate
            headers={"Authorization": f"Bearer {ADMIN}"},
            trust_env=False,
        ) as client:
            ends = time.monotonic() + PATIENCE
            while time.monotonic() < ends:
                try:
                    if client.get(url, timeout=2.0).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(0.1)
        raise RuntimeError(f"{url} is not ready after {PATIENCE:g} s: see {self.directory}")


def start(opened: ExitStack, directory: Path, name: str, *command: str) -> subprocess.Popen[bytes]:
    """Run a program with its output in a file, until the stack closes."""
    log = opened.enter_context((directory / f"{name}.log").open("ab"))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    opened.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def node(name: str, zone: str, cpu: str = "8") -> dict[str, Any]:
    """A node that is ready."""
    resources = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(name: str, on: str = "", app: str = "web", cpu: str = "10m", **spec: Any) -> dict[str, Any]:
    """A pod, bound to a node or waiting."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    bound = {"nodeName": on} if on else {}
    return {
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **bound, **spec},
    }


def spread(max_skew: int = 1, min_domains: int | None = None) -> list[dict[str, Any]]:
    """A hard constraint over zones for the app `web`."""
    constraint = {
        "maxSkew": max_skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return [constraint if min_domains is None else {**constraint, "minDomains": min_domains}]
