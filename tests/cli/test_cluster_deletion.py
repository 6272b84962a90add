"""A cluster that is deleted as a whole."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from tests.cli.manifests import CLUSTER
from tests.cli.processes import TOPOSPREAD, environment
from tests.waiting import PATIENCE
from topospread_client import Client

OBJECTS = 6


@pytest.fixture
def loaded(topospread):
    """The command, with the cluster written."""
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


def clusters(address):
    with Client(address) as client:
        return [each.name for each in client.list_clusters()]


def test_a_cluster_is_deleted_with_its_objects(loaded, address, cluster):
    said = loaded("delete", "cluster", cluster, "--yes")
    assert (said.code, said.lines) == (0, [f"cluster/{cluster} deleted, with {OBJECTS} objects"])
    assert cluster not in clusters(address)


def test_its_deletion_is_printed_for_programs(loaded, cluster):
    said = json.loads(loaded("delete", "cluster", cluster, "--yes", "-o", "json").out)
    assert (said["kind"], said["cluster"]) == ("ClusterDeletion", cluster)
    assert said["objectCount"] == OBJECTS
    assert loaded("apply", "-f", "-", stdin=CLUSTER).code == 0
    named = loaded("delete", "clusters", cluster, "--yes", "-o", "name")
    assert named.lines == [f"cluster/{cluster}"]


def test_a_cluster_is_named_as_it_is_printed(loaded, address, cluster):
    assert loaded("delete", f"cluster/{cluster}", "--yes").code == 0
    assert cluster not in clusters(address)


def test_files_beside_a_cluster_are_no_reason_to_delete_it(loaded, address, cluster):
    said = loaded("delete", "cluster", cluster, "-f", "-", "--yes", stdin=CLUSTER)
    assert (said.code, "leave -f out" in said.err) == (2, True)
    assert cluster in clusters(address)


@pytest.mark.parametrize("names", [["cluster/a", "b"], ["cluster/a", "cluster/b"], ["cluster/"]])
def test_clusters_are_deleted_one_at_a_time_and_by_name(topospread, names):
    said = topospread("delete", *names, "--yes")
    assert (said.code, said.out) == (2, "")


def test_without_a_terminal_it_is_not_deleted_unless_that_is_said(loaded, address, cluster):
    said = loaded("delete", "cluster", cluster)
    assert said.code == 2
    assert "--yes" in said.err
    assert cluster in clusters(address)


def test_a_cluster_that_is_not_there_is_a_mistake_unless_that_is_said(topospread, cluster):
    said = topospread("delete", "cluster", cluster, "--yes")
    assert (said.code, said.out) == (2, "")
    assert cluster in said.err
    assert topospread("delete", "cluster", cluster, "--yes", "--ignore-not-found").code == 0


@pytest.mark.parametrize("words", [("cluster",), ("cluster", "a", "b"), ("cluster/a", "b")])
def test_one_cluster_is_named(topospread, words):
    said = topospread("delete", *words, "--yes")
    assert said.code == 2
    assert "topospread delete --help" in said.err


@pytest.mark.parametrize("right", [True, False])
def test_at_a_terminal_its_name_is_asked_for(loaded, address, cluster, right):
    ours, theirs = pty.openpty()
    command = [*TOPOSPREAD, "delete", "cluster", cluster]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TOPOSPREAD_ADDRESS=address),
    ) as process:
        os.write(ours, f"{cluster if right else 'other'}\n".encode())
        _, err = process.communicate(timeout=PATIENCE)
    os.close(ours)
    os.close(theirs)
    assert "Type its name" in err
    there = cluster in clusters(address)
    assert (process.returncode, there) == ((0, False) if right else (2, True))
