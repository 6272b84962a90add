"""What people write: small clusters and pods as YAML."""

from tests.cli.transcript import FILES

CLUSTER = (FILES / "cluster.yaml").read_text()
"""Zone a has two pods, zone b none."""

POD = (FILES / "pod.yaml").read_text()
"""Fits on b1 only."""

NOWHERE = (FILES / "nowhere.yaml").read_text()
"""Fits nowhere: no node is in a rack."""
