"""Stored tasks of every form are read, and what is none is named with its reason."""

import gzip
import json

import pytest
from a2a.types.a2a_pb2 import TaskState

from a2a_gcs.errors import CorruptRecord
from a2a_gcs.migration import old_json
from a2a_gcs.migration.old_json import as_task, time_of, unpack
from a2a_gcs.migration.source import context_of, state_of
from tests.support.legacy import gemini, packed, packed_in_tar

OLD = {
    "kind": "task",
    "id": "t",
    "contextId": "c",
    "status": {
        "state": "input-required",
        "timestamp": "2025-03-01T10:00:00.5Z",
        "message": {
            "kind": "message",
            "messageId": "m",
            "role": "agent",
            "parts": [{"kind": "text", "text": "which?"}],
        },
    },
    "artifacts": [{"artifactId": "a", "parts": [{"kind": "data", "data": {"n": 1}}]}],
}
NEW = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_REJECTED"}, "later": {"x": 1}}


@pytest.mark.parametrize("pack", [packed, packed_in_tar])
def test_metadata_is_gzipped_json_or_a_tar_of_it(pack):
    assert unpack("k", pack(gemini("completed", "c"))) == gemini("completed", "c")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "ends too early"),
        (b"{}", "not gzipped"),
        (packed({"a": "b" * 1000})[:-20], "ends too early"),
        (gzip.compress(b"[1]"), "neither JSON nor a tar"),
        (gzip.compress(b"{"), "no JSON"),
        (packed_in_tar({}, files=2), "tar of 2 files"),
        (packed_in_tar({}, files=0), "tar of 0 files"),
        (packed_in_tar([1]), "no JSON object"),
    ],
    ids=["empty", "plain", "truncated", "a list", "half JSON", "two files", "no file", "a list in a tar"],
)
def test_what_is_none_is_told_with_its_reason(body, why):
    with pytest.raises(CorruptRecord, match=why):
        unpack("k", body)


def test_metadata_that_unpacks_to_too_much_is_told_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(old_json, "MAX_METADATA", 1 << 20)
    with pytest.raises(CorruptRecord, match="more than 1 MiB"):
        unpack("k", gzip.compress(bytes(2 << 20)))


def test_gemini_cli_keeps_state_context_and_metadata():
    found = gemini("canceled", "c", other={"z": [1, "x"]})
    task, unknown = as_task("k", found, "t", 1_700_000_000_123)
    assert (task.id, task.context_id, task.status.state) == ("t", "c", TaskState.TASK_STATE_CANCELED)
    assert task.status.timestamp.ToMilliseconds() == 1_700_000_000_123
    assert json.loads(json.dumps(dict(task.metadata["other"].items()), default=list)) == {"z": [1, "x"]}
    assert task.metadata["__persistedState"]["_agentSettings"]["workspacePath"] == "/work"
    assert unknown == {}


def test_a_task_of_0_3_becomes_one_of_1_0_with_all_it_says():
    task, _ = as_task("k", OLD, "t", 0)
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert task.status.message.parts[0].text == "which?"
    assert task.artifacts[0].parts[0].data.struct_value["n"] == 1
    assert task.status.timestamp.ToMilliseconds() == time_of(OLD) == 1_740_823_200_500
    assert as_task("k", {name: OLD[name] for name in OLD if name != "kind"}, "t", 0)[0] == task


@pytest.mark.parametrize(
    ("text", "millis"),
    [("2025-03-01T10:00:00", 1_740_823_200_000), ("2025-03-01T12:00:00+02:00", 1_740_823_200_000), ("soon", 7)],
)
def test_a_timestamp_may_lack_its_zone_or_be_none(text, millis):
    old = {**OLD, "status": {"state": "completed", "timestamp": text}}
    assert as_task("k", old, "t", 7)[0].status.timestamp.ToMilliseconds() == millis


def test_a_task_of_1_0_keeps_members_that_this_version_does_not_know():
    task, unknown = as_task("k", NEW, "t", 5)
    assert task.status.state == TaskState.TASK_STATE_REJECTED
    assert unknown == {"later": {"x": 1}}
    assert time_of(NEW) is None


def test_a_missing_context_is_minted_and_always_the_same():
    one, _ = as_task("k", gemini("completed"), "t", 0)
    two, _ = as_task("k", {"status": {"state": "completed"}}, "t", 0)
    assert one.context_id == two.context_id == context_of("t") == "b7a8aaae-34ba-5033-bc03-be75edacb1e7"
    assert context_of("u") != context_of("t")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "its state is None"),
        ({"status": "done"}, "its state is None"),
        (gemini("paused", "c"), "its state is 'paused'"),
        ({"__persistedState": 7}, "its state is None"),
        ({**OLD, "id": "other"}, "it holds task 'other'"),
        (gemini("completed", "c", x=float("nan")), "a number that JSON does not have"),
        ({**OLD, "artifacts": 3}, "artifacts"),
        ({**NEW, "history": [{"parts": 3}]}, "parts"),
    ],
)
def test_an_object_that_is_no_task_is_told_with_its_reason(found, why):
    with pytest.raises(CorruptRecord, match=why):
        as_task("k", found, "t", 0)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("completed", TaskState.TASK_STATE_COMPLETED),
        ("auth-required", TaskState.TASK_STATE_AUTH_REQUIRED),
        ("TASK_STATE_WORKING", TaskState.TASK_STATE_WORKING),
        ("unknown", TaskState.TASK_STATE_UNSPECIFIED),
    ],
)
def test_states_have_names_in_both_versions(name, state):
    assert state_of(name) == state
