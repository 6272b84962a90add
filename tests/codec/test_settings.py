"""PodTopologySpreadArgs of requests to profiles."""

import pytest

from tests.conformance.cases import ArgsValidation, args_validations
from topospread.codec.scheduler_config import profile_from_proto
from topospread.errors import InvalidRequest
from topospread.spread.settings import LIST, SYSTEM, SYSTEM_DEFAULTS, Profile
from topospread_client import args_from_manifest


def profile(manifest) -> Profile:
    return profile_from_proto(args_from_manifest(manifest), "mine")


@pytest.mark.parametrize("manifest", [{}, {"defaultingType": ""}, {"defaultingType": "System"}])
def test_system_is_the_default(manifest):
    made = profile(manifest)
    assert (made.name, made.defaulting, made.defaults) == ("mine", SYSTEM, SYSTEM_DEFAULTS)


def test_a_list_may_be_empty():
    made = profile({"defaultingType": "List", "defaultConstraints": []})
    assert (made.defaulting, made.defaults) == (LIST, ())


@pytest.mark.parametrize("case", list(args_validations()), ids=lambda case: case.name)
def test_arguments_are_refused_where_the_plugin_refuses_them(case: ArgsValidation):
    args = args_from_manifest(case.args)
    if not case.expect:
        made = profile_from_proto(args)
        assert len(made.default_constraints) == len(args.default_constraints)
        return
    with pytest.raises(InvalidRequest) as caught:
        profile_from_proto(args)
    assert len(caught.value.violations) == len(case.expect)
