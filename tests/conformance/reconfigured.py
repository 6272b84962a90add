"""A server that judges by the rules of a configuration file, which changes while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.conformance.calls import OverGrpc
from tests.conformance.cases import Decision, Json
from tests.conformance.objects import gates_of
from tests.servers import Peer, served
from topospread.app.server import Server


class Reconfigured(OverGrpc):
    """A server whose configuration is written anew whenever a case is judged by other rules."""

    def __init__(self, peer: Peer, server: Server, file: Path) -> None:
        super().__init__(peer)
        self._server = server
        self._file = file
        self._rules: Json = {}

    def settings(self, case: Decision) -> None:
        """Nothing for the request: the rules go into the file."""
        rules = {"args": case.args, "gates": case.gates}
        if rules != self._rules:
            self._rules = rules
            self._file.write_text(configuration(case))
            assert self._server.reload()


@contextmanager
def configured_server(**flags: str) -> Iterator[tuple[Server, Peer, Path]]:
    """A server, its stubs, and its configuration file, which is empty."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "topospread.yaml"
        file.write_text("")
        with served(config=str(file), **flags) as server, Peer(server.address) as peer:
            yield server, peer, file


def configuration(case: Decision) -> str:
    """The file that makes a server judge by the case's rules."""
    gates = {
        "apiVersion": "topospread.io/v1",
        "kind": "TopospreadConfiguration",
        "featureGates": gates_of(case.gates),
    }
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": case.args}]}],
    }
    return yaml.safe_dump_all([gates, scheduler])
