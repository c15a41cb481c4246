"""Contract cases that a plain fake-gcs-server cannot hold, each with the reason (FACTS 3).

They are strict expected failures on every stack that ends at the emulator.
When the emulator's gateway enforces the rule, the case passes, pytest says so,
and its line goes. With the last line this module and its use in conftest.py go.
"""

GAPS = {
    "test_deleting_another_version_is_a_conflict": "delete ignores ifGenerationMatch",
    "test_compose_without_a_source_writes_nothing": "compose of a missing source is a 500",
    "test_compose_holds_its_condition": "compose ignores ifGenerationMatch",
    "test_compose_holds_the_versions_of_its_sources": "compose ignores the sources' preconditions",
    "test_a_composed_object_gets_a_new_version": "compose onto an existing object keeps its generation",
    "test_long_stream_holds_its_condition": "resumable uploads ignore ifGenerationMatch",
}
