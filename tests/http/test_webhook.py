"""The validating webhook as an API server calls it: whole servers, reviews in and reviews out."""

from __future__ import annotations

import gzip
import json

import httpx
import pytest

from tests.access.callers import AccessFile
from tests.http.extender_client import Scheduler, node
from tests.servers import ZONE, served
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE
from topospread.errors import ConfigError
from topospread.http import webhook
from topospread.http.webhook import (
    MAX_WARNING,
    MAX_WARNINGS,
    bounded_lines,
)
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import RULES, lint

LIMIT = 1 << 20


def constraint(**changed):
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **changed,
    }


def deployment(*constraints, replicas=4, **metadata):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **metadata},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [{"name": "web", "image": "web"}],
                    "topologySpreadConstraints": list(constraints),
                },
            },
        },
    }


def review(content, **request):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "operation": "CREATE",
            "namespace": "shop",
            "object": content,
            **request,
        },
    }


class ApiServer:
    """Asks one server's webhook."""

    def __init__(self, server, **headers):
        self.server = server
        self.http = httpx.Client(
            base_url=f"http://{server.http_address}",
            trust_env=False,
            timeout=PATIENCE,
            headers=headers,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def post(self, body, path="/validate?timeout=5s", **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(path, content=content, headers=headers)

    def ask(self, content, path="/validate?timeout=5s", **request):
        answer = self.post(review(content, **request), path)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert document["apiVersion"] == "admission.k8s.io/v1"
        assert document["kind"] == "AdmissionReview"
        assert document["response"]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
        return document["response"]

    def codes(self, content, **request):
        answer = self.ask(content, **request)
        assert answer["allowed"]
        return [each.partition(":")[0] for each in answer.get("warnings", ())]


@pytest.fixture(scope="module")
def api():
    """A server with a node in each of two zones."""
    with served(http="127.0.0.1:0", http_max_body_bytes=LIMIT) as server:
        with Scheduler(server) as writer:
            writer.write(node("a1", zone="a"), node("b1", zone="b"))
        with ApiServer(server) as api:
            yield api


def test_a_clean_object_is_allowed_without_a_word(api):
    clean = deployment(constraint(matchLabelKeys=["pod-template-hash"]))
    assert api.ask(clean) == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}


@pytest.mark.parametrize(
    "large",
    [
        {"labels": {f"label-{number}": "" for number in range(20_001)}},
        {"finalizers": ["x"] * 20_001},
        {"labels": {"long": "a-" * (300 << 10)}},
        {"labels": {"a-" * (300 << 10): "long"}},
    ],
)
def test_an_object_of_many_values_or_much_text_is_let_through_unlinted(api, large):
    wrong = deployment(constraint(labelSelector={"matchLabels": {"app": "wen"}}))
    of_pods = wrong["spec"]["template"]["metadata"]
    assert "SelfMismatch" in api.codes(wrong)
    for metadata in (wrong["metadata"], of_pods):
        kept = dict(metadata)
        metadata |= large
        assert api.codes(wrong) == ["not linted"]
        operator = operated({"topologySpreadConstraints": [constraint()]})
        assert api.codes({**operator, "metadata": metadata}) == ["not linted"]
        metadata.clear()
        metadata |= kept


def test_managed_fields_count_for_nothing(api):
    wrong = deployment(constraint(labelSelector={"matchLabels": {"app": "wen"}}))
    wrong["metadata"]["managedFields"] = [{"manager": "m"}] * 20_000
    assert "SelfMismatch" in api.codes(wrong)


def test_a_mistake_is_a_warning_and_is_allowed(api):
    answer = api.ask(deployment(constraint(labelSelector={"matchLabels": {"app": "wen"}})))
    assert answer["allowed"]
    [warning] = answer["warnings"]
    assert warning == (
        f"SelfMismatch: constraint 0 ({ZONE}): the pod does not match its own labelSelector "
        "app=wen: it follows other pods, and its own replicas are not spread"
    )


def test_errors_come_before_warnings_and_infos_are_left_out(api):
    both = deployment(
        constraint(), constraint(topologyKey="zone", labelSelector={"matchLabels": {"app": "x"}})
    )
    codes = api.codes(both)
    severities = [rule.severity for rule in RULES.values() if rule.code in codes]
    assert Severity.INFO not in severities
    assert codes[:2] == ["KeyOnNoNode", "SelfMismatch"]
    assert "RolloutSkew" in codes[2:]


def test_the_state_shows_keys_that_no_node_has(api):
    rack = constraint(topologyKey="example.com/rack", matchLabelKeys=["pod-template-hash"])
    assert api.codes(deployment(rack)) == ["KeyOnNoNode"]


def test_the_state_shows_that_a_rollout_has_places(api):
    assert api.codes(deployment(constraint(), replicas=3)) == ["RolloutSkew"]
    assert set(api.codes(deployment(constraint(), replicas=3), path="/validate/none")) == {
        "RolloutSkew",
        "RolloutDeadlock",
    }


def test_the_state_shows_how_many_nodes_there_are_for_a_host_port(api):
    some = deployment(replicas=90)
    some["spec"]["template"]["spec"]["containers"][0]["ports"] = [
        {"containerPort": 80, "hostPort": 80}
    ]
    assert api.codes(some) == ["TooFewDomains"]
    assert "TooFewDomains" not in api.codes(some, path="/validate/none")


def test_an_unknown_cluster_is_linted_by_the_manifest_alone(api):
    rack = constraint(topologyKey="example.com/rack", labelSelector=None)
    assert api.codes(deployment(rack), path="/validate/none") == ["NilSelector"]


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"kind": "ConfigMap", "metadata": {"name": "a"}},
        {"kind": "Scale", "spec": {"replicas": 3}},
        {"kind": "Pod", "spec": {"topologySpreadConstraints": "none"}},
        deployment(constraint(maxSkew="many")),
        {"kind": "Deployment", "spec": 3, "metadata": 4},
        deployment(
            constraint(labelSelector=None),
            ownerReferences=[{"kind": "Rollout", "name": "web", "controller": True}],
        ),
    ],
    ids=["deleted", "other", "scale", "malformed", "wrong type", "no spec", "made by another"],
)
def test_objects_that_lint_has_nothing_to_say_of_are_allowed(api, content):
    assert api.codes(content) == []


def operated(spec, kind="Broker"):
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "b"}, "spec": spec}


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        (
            operated({"pod": {"topologySpreadConstraints": [constraint(maxSkew=0)]}}),
            ["InvalidConstraint"],
        ),
        (
            operated({"topologySpreadConstraints": [constraint(topologyKey="a b")]}),
            ["ImpossibleKey"],
        ),
        (operated({"template": {"spec": {"timeout": 1, "containers": []}}}), []),
        (operated({"topologySpreadConstraints": {"maxSkew": 1}}), ["InvalidConstraint"]),
        (
            operated(
                {
                    "parts": {
                        "a": {"topologySpreadConstraints": {"maxSkew": 1}},
                        "b": {"topologySpreadConstraints": [constraint(maxSkew=0)]},
                    }
                }
            ),
            ["InvalidConstraint", "InvalidConstraint"],
        ),
        (deployment(constraint(topologyKey="a b"), replicas=1), ["ImpossibleKey"]),
        (deployment(constraint(topologyKey="${KEY}"), replicas=1), ["ImpossibleKey"]),
        (
            operated({"template": {**deployment(constraint(topologyKey="${KEY}"), replicas=1)}}),
            [],
        ),
    ],
    ids=[
        "elsewhere",
        "key",
        "fields of its own",
        "wrong type",
        "wrong type beside",
        "deployment",
        "no variable",
        "a variable",
    ],
)
def test_objects_of_other_kinds_are_looked_at_as_far_as_they_are_known(api, content, codes):
    assert [code for code in api.codes(content) if code != "KeyOnNoNode"] == codes


def test_of_several_templates_a_warning_names_its_own(api):
    wrong = deployment(WRONG)["spec"]["template"]
    right = deployment(constraint())["spec"]["template"]
    several = operated(
        {
            "a": {"template": right},
            "b": {
                "replicas": 2,
                "template": {
                    **wrong,
                    "spec": {
                        **wrong["spec"],
                        "topologySpreadConstraints": [constraint(labelSelector=None)],
                    },
                },
            },
        }
    )
    [warning] = api.ask(several)["warnings"]
    assert warning.startswith(f"NilSelector: spec.b.template: constraint 0 ({ZONE}): ")


def test_a_job_is_known_by_its_name(api):
    named = constraint(labelSelector={"matchLabels": {"batch.kubernetes.io/job-name": "web"}})
    job = {**deployment(named), "apiVersion": "batch/v1", "kind": "Job"}
    assert "SelfMismatch" not in api.codes(job)
    assert "SelfMismatch" in api.codes({**job, "metadata": {"name": "other"}})


def test_annotations_of_the_object_silence_codes(api):
    note = {"topospread.io/ignore": "NilSelector"}
    assert api.codes(deployment(constraint(labelSelector=None), annotations=note)) == []


def test_the_timeout_of_the_api_server_bounds_what_the_state_is_asked(api):
    answer = api.ask(deployment(constraint(labelSelector=None)), path="/validate?timeout=0s")
    assert [each.partition(":")[0] for each in answer["warnings"]] == ["NilSelector"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{" * 100_000, 400),
        ({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}, 400),
        ({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}, 400),
        (review([]), 400),
        (review(None, uid=""), 400),
        (review(None, oldObject=[]), 400),
        (b" " * (LIMIT + 1), 413),
    ],
    ids=range(9),
)
def test_bodies_that_are_no_review_are_refused(api, body, status):
    assert api.post(body).status_code == status
    assert api.codes(None) == []


def test_a_packed_body_is_read_and_bounded(api):
    packed = {"content-encoding": "gzip"}
    body = gzip.compress(json.dumps(review(None)).encode())
    assert api.post(body, **packed).json()["response"]["allowed"]
    assert api.post(gzip.compress(b" " * (LIMIT + 1)), **packed).status_code == 413


@pytest.mark.parametrize("path", ["/validated", "/validate/a/b"])
def test_other_paths_are_not_found(api, path):
    assert api.post(review(None), path).status_code == 404


def test_other_methods_are_refused(api):
    answer = api.http.get("/validate")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_calls_are_counted(api):
    def counted(code):
        exposed = api.http.get("/metrics").content
        return value(exposed, "topospread_calls_total", method="Webhook/validate", code=code)

    before = counted("OK")
    api.ask(None)
    assert counted("OK") == before + 1


@pytest.mark.parametrize(
    ("refuse", "allowed"),
    [("", True), ("RolloutSkew", True), ("SelfMismatch", False), ("error", False)],
)
def test_a_server_refuses_the_codes_in_its_settings(refuse, allowed):
    wrong = deployment(constraint(labelSelector={"matchLabels": {"app": "wen"}}))
    with served(http="127.0.0.1:0", webhook_refuse=refuse) as server, ApiServer(server) as api:
        answer = api.ask(wrong)
    assert answer["allowed"] == allowed
    if not allowed:
        status = answer["status"]
        assert (status["code"], status["reason"]) == (422, "Invalid")
        assert status["message"].startswith("SelfMismatch: constraint 0")
    assert ("warnings" in answer) == allowed


WRONG = constraint(labelSelector={"matchLabels": {"app": "wen"}})
"""SelfMismatch."""


@pytest.fixture(scope="module")
def refusing():
    """A server that refuses errors, without a state."""
    with served(http="127.0.0.1:0", webhook_refuse="error") as server, ApiServer(server) as api:
        yield api


def updated(api, before, after):
    """Whether an update is allowed, and the codes that are warned of."""
    answer = api.ask(after, oldObject=before, operation="UPDATE")
    return answer["allowed"], [
        each.partition(":")[0]
        for each in answer.get("warnings", ())
        if not each.startswith("Rollout")
    ]


OWNED = {"ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}]}
SILENT = {"annotations": {"topospread.io/ignore": "SelfMismatch"}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (deployment(WRONG), deployment(WRONG, annotations={"a": "b"})),
        (deployment(WRONG, finalizers=["a/b"]), deployment(WRONG)),
        (deployment(WRONG), deployment(WRONG, replicas=1)),
        (deployment(WRONG), deployment(constraint(topologyKey="example.com/rack"), WRONG)),
        (deployment(WRONG, **OWNED), deployment(WRONG)),
        (deployment(WRONG, **SILENT), deployment(WRONG)),
    ],
    ids=["annotation", "finalizer", "replicas", "another constraint", "orphaned", "not silent"],
)
def test_an_update_is_warned_of_what_was_wrong_before_and_is_allowed(refusing, before, after):
    assert not refusing.ask(after)["allowed"]
    assert updated(refusing, before, after) == (True, ["SelfMismatch"])


@pytest.mark.parametrize(
    "before",
    [
        deployment(constraint()),
        deployment({**WRONG, "topologyKey": "example.com/rack"}),
        deployment({**WRONG, "whenUnsatisfiable": "ScheduleAnyway"}),
        deployment({**WRONG, "labelSelector": None}),
        deployment(*[WRONG] * 101),
        {"kind": "Deployment", "spec": 3},
    ],
    ids=["right", "other key", "soft", "other code", "unread", "malformed"],
)
def test_an_update_that_adds_an_error_is_refused(refusing, before):
    assert updated(refusing, before, deployment(WRONG)) == (False, [])


def test_an_update_is_refused_for_what_it_adds_and_warned_of_the_rest(refusing):
    nil = constraint(topologyKey="example.com/rack", labelSelector=None)
    answer = refusing.ask(deployment(nil, WRONG), oldObject=deployment(WRONG))
    assert not answer["allowed"]
    assert answer["status"]["message"].startswith("NilSelector: constraint 0")
    assert "SelfMismatch" not in answer["status"]["message"]
    assert any(each.startswith("SelfMismatch: constraint 1") for each in answer["warnings"])


def test_an_error_that_the_state_alone_shows_is_refused_where_it_is_new():
    stuck, fine = (deployment(constraint(minDomains=least), replicas=2) for least in (3, 2))
    noted = deployment(constraint(minDomains=3), replicas=2, annotations={"a": "b"})
    with served(http="127.0.0.1:0", webhook_refuse="error") as server:
        with Scheduler(server) as writer:
            writer.write(node("a1", zone="a"), node("b1", zone="b"))
        with ApiServer(server) as asked:
            new = asked.ask(stuck, oldObject=fine)
            known = asked.ask(noted, oldObject=stuck)
    assert new["status"]["message"].startswith("RolloutDeadlock")
    assert known["allowed"]
    assert any(each.startswith("RolloutDeadlock") for each in known["warnings"])


def test_an_object_that_is_being_deleted_is_let_go(refusing):
    leaving = {"deletionTimestamp": "2026-11-25T12:00:00Z"}
    answer = refusing.ask(deployment(WRONG, **leaving), oldObject=deployment(constraint()))
    assert answer == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}


@pytest.mark.parametrize(("refuse", "looked_at"), [("", ["after"]), ("error", ["after", "before"])])
def test_the_object_before_is_looked_at_where_something_is_refused(monkeypatch, refuse, looked_at):
    seen = []

    def counted(engine, request, workload, pod):
        seen.append(workload.pod.labels["is"])
        return lint(workload)

    def labelled(text):
        made = deployment(constraint())
        made["spec"]["template"]["metadata"]["labels"]["is"] = text
        return made

    monkeypatch.setattr(webhook, "lint_at", counted)
    with served(http="127.0.0.1:0", webhook_refuse=refuse) as server, ApiServer(server) as api:
        api.ask(labelled("after"), oldObject=labelled("before"))
    assert seen == looked_at


def test_a_server_refuses_to_start_with_an_unknown_code():
    with (
        pytest.raises(ConfigError, match="no code 'SelfMissmatch'"),
        served(http="127.0.0.1:0", webhook_refuse="SelfMissmatch"),
    ):
        pass


def test_a_server_serves_none_where_it_is_off():
    with served(http="127.0.0.1:0", webhook="false") as server, ApiServer(server) as api:
        assert api.post(review(None)).status_code == 404


def test_the_webhook_has_the_address_of_an_extender_that_has_its_own():
    with served(http="127.0.0.1:0", extender_listen="127.0.0.1:0", extender="off") as server:
        with ApiServer(server) as pages:
            assert pages.post(review(None)).status_code == 404
        own = httpx.post(
            f"http://{server.extender_address}/validate", json=review(None), trust_env=False
        )
        other = httpx.post(f"http://{server.extender_address}/else", trust_env=False)
    assert own.json()["response"]["allowed"]
    assert other.status_code == 404


def test_callers_need_the_role_decide(tmp_path):
    access = AccessFile(tmp_path / "access.yaml", reader=["read"], decider=["decide"])
    with served(http="127.0.0.1:0", access_file=str(access)) as server:

        def status(name):
            token = {"authorization": f"Bearer {access.tokens[name].text}"} if name else {}
            with ApiServer(server, **token) as api:
                return api.post(review(None)).status_code

        assert [status(name) for name in ("", "reader", "decider")] == [401, 403, 200]


def test_warnings_are_as_long_and_as_many_as_an_api_server_passes_on():
    shown = bounded_lines([f"{number}\n{'x' * 400}" for number in range(100)])
    assert all(len(each) <= MAX_WARNING and each.isprintable() for each in shown)
    assert sum(map(len, shown)) <= MAX_WARNINGS
    assert shown[-1] == f"{100 - len(shown) + 1} more findings: topospread lint shows them"
    assert bounded_lines(["a", "b"]) == ["a", "b"]
