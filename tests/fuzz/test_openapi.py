"""Schemathesis against the OpenAPI document: every operation, with what its schema allows and what it does not."""

import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

PROFILE = settings(settings.get_profile("fuzz"), max_examples=max(5, settings.get_profile("fuzz").max_examples // 2))
"""There are two dozen operations."""


def test_every_operation(fuzzed):
    """Never a 5xx and never a hang; a refusal leaves the bucket as it was."""
    schema = schemathesis.openapi.from_url(f"{fuzzed.host.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:
        cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

        @PROFILE
        @given(case=cases)
        def answered(case):
            before = fuzzed.claims()
            headers = {} if case.path.startswith("/v1/") else {"A2A-Version": "1.0"}
            response = case.call(headers=headers, timeout=20)
            case.validate_response(response, checks=[not_a_server_error])
            if response.status_code >= 400:
                assert fuzzed.claims() == before

        answered()
