"""`topospread config check`: what `serve` would make of a file."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import check_document

SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: batch
  pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 2, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway}
---
apiVersion: topospread.io/v1
kind: TopospreadConfiguration
decisionQueue: 2
featureGates: {MatchLabelKeysInPodTopologySpread: false}
"""


def test_profiles_gates_and_settings_are_shown(bare, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(SCHEDULER)
    said = bare("config", "check", path)
    assert said.code == 0
    assert "batch              List        rack ScheduleAnyway maxSkew 2" in said.lines
    assert ["MatchLabelKeysInPodTopologySpread", "off"] in [line.split() for line in said.lines]
    assert ["decisionQueue", "2"] in [line.split() for line in said.lines]


def test_json_has_all_settings(bare, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(SCHEDULER)
    value = json.loads(bare("config", "check", path, "-o", "json").out)
    (batch,) = [each for each in value["profiles"] if each["name"] == "batch"]
    assert batch["defaultingType"] == "List"
    assert batch["defaultConstraints"][0]["maxSkew"] == 2
    assert value["featureGates"]["MatchLabelKeysInPodTopologySpread"] is False
    assert value["settings"]["decisionQueue"] == 2
    assert (value["settings"]["extenderReservationTtl"], value["settings"]["maxGroupIdle"]) == (
        "60s",
        "600s",
    )


def test_schema_has_the_type_of_each_setting(bare):
    value = json.loads(bare("config", "check", "-o", "json").out)
    check_document(value)
    value["settings"]["extenderReservationTtl"] = 60.0
    with pytest.raises(AssertionError, match="extenderReservationTtl"):
        check_document(value)


def test_defaults_are_shown_without_a_file(bare, monkeypatch):
    monkeypatch.setenv("TOPOSPREAD_STORE", "redis://user:secret@redis:6379/0")
    said = bare("config", "check")
    assert said.code == 0
    assert "secret" not in said.out
    assert "System" in said.lines[1]


def test_all_errors_are_listed(bare, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(SCHEDULER.replace("maxSkew: 2", "maxSkew: 0").replace("topologyKey: rack,", ""))
    said = bare("config", "check", path)
    assert said.code == 2
    assert len(said.err.splitlines()) == 2
    assert "defaultConstraints[0].maxSkew" in said.err
    assert "defaultConstraints[0].topologyKey" in said.err
