"""Nodes without a driver, by the version of Kubernetes."""

from __future__ import annotations

import pytest

from tests.service.fit.volumes import CLAIMED, CLASS, DRIVER, claim, fits, judged, pod
from topospread.kube.versions import KubernetesVersion
from topospread.spread.settings import RELEASES, Rules

INSISTING = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": DRIVER},
    "spec": {"preventPodSchedulingIfMissing": True},
}


@pytest.mark.parametrize(("minor", "fitting"), [(36, True), (37, False), (38, False)])
def test_a_driver_that_insists_is_needed_since_1_37(minor: int, fitting: bool) -> None:
    version = KubernetesVersion(1, minor)
    rules = Rules(gates=RELEASES[version].gates, version=version)
    found = judged(pod(CLAIMED), claim(), CLASS, INSISTING, rules=rules)
    assert fits(found) is fitting
