"""What the volume filters cannot look at is named, and refuses nothing."""

from __future__ import annotations

import pytest

from tests.service.fit.volumes import (
    CAPACITY_OF_DRIVER,
    CLAIMED,
    CLASS,
    EPHEMERAL,
    KINDS,
    STATIC,
    claim,
    fits,
    gaps,
    judged,
    pod,
)


def test_a_pod_without_volumes_has_no_gaps() -> None:
    found = judged(pod(), unknown=dict.fromkeys(KINDS, "forbidden"))
    assert (fits(found), gaps(found)) == (True, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_without_a_right_is_named_and_refuses_nothing(kind: str) -> None:
    why = f"no right to list {kind}"
    objects = [claim(), CLASS]
    if kind == "CSIStorageCapacity":
        # It is asked only where the driver says that it reports it, and then none is too little.
        objects.append(CAPACITY_OF_DRIVER)
        assert not fits(judged(pod(CLAIMED), *objects))
    if kind in ("PersistentVolumeClaim", "StorageClass"):
        # What is not listed is not there, either.
        objects = [each for each in objects if each["kind"] != kind]
        assert not fits(judged(pod(CLAIMED), *objects))
    found = judged(pod(CLAIMED), *objects, unknown={kind: why})
    assert fits(found)
    assert gaps(found) == [f"volumes ({why})"]


def test_equal_reasons_are_named_once() -> None:
    found = judged(pod(CLAIMED), unknown=dict.fromkeys(KINDS, "no right to list volumes"))
    assert (fits(found), gaps(found)) == (True, ["volumes (no right to list volumes)"])


def test_a_bound_claim_needs_its_volume_alone() -> None:
    unknown = {"PersistentVolume": "no PersistentVolume", "StorageClass": "no StorageClass"}
    found = judged(pod(CLAIMED), claim(volume="v", bound=True), unknown=unknown)
    assert fits(found)
    assert gaps(found)[0] == "volumes (no PersistentVolume)"


@pytest.mark.parametrize(
    ("uid", "annotated", "phase", "is_bound"),
    [
        ("u", True, "Bound", True),
        ("u", True, "", True),
        ("u", False, "Bound", False),
        ("", True, "", True),
        ("", False, "Bound", True),
        ("", False, "Pending", False),
    ],
)
def test_the_phase_is_enough_of_a_claim_that_no_api_server_has_stored(
    uid: str, annotated: bool, phase: str, is_bound: bool
) -> None:
    manifest = claim(volume="v", bound=annotated)
    manifest["metadata"]["uid"] = uid
    manifest["status"] = {"phase": phase}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}},
    }
    assert fits(judged(pod(CLAIMED), manifest, volume)) is is_bound


def test_volumes_that_are_made_beforehand_ask_no_driver() -> None:
    found = judged(pod(CLAIMED), claim(), STATIC)
    assert (fits(found), gaps(found)) == (False, [])
    without_drivers = dict.fromkeys(("CSINode", "CSIDriver", "VolumeAttachment"), "forbidden")
    assert not gaps(judged(pod(CLAIMED), claim(), STATIC, unknown=without_drivers))


def test_a_claim_that_is_made_with_the_pod_is_not_missing_before() -> None:
    found = judged(pod(EPHEMERAL))
    assert (fits(found), gaps(found)) == (
        True,
        ["volumes (claims that are made with the pod)"],
    )
    assert judged(pod(EPHEMERAL), uid="u").refusal is not None
