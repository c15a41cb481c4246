"""task.json: ProtoJSON of A2A 1.0 on disk; 0.3 is read; what is unknown is kept; what is no Task is said to be none."""

import json
from datetime import UTC, datetime

import pytest
from a2a.compat.v0_3 import types as v03
from a2a.types.a2a_pb2 import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.errors import CorruptRecord
from a2a_gcs.task_json import format_task_json, parse_task_json, stamp, state_name, status_millis

KEY = "contexts/c/t/task.json"
TIME = "2026-05-01T10:00:00.123Z"


def parse(raw):
    return parse_task_json(KEY, raw if isinstance(raw, bytes) else json.dumps(raw).encode())


def rewrite(raw, change=lambda task: None):
    task, unknown = parse(raw)
    change(task)
    return json.loads(format_task_json(task, unknown))


def full_task():
    task = Task(id="t", context_id="c")
    task.status.state = TaskState.TASK_STATE_INPUT_REQUIRED
    task.status.timestamp.FromJsonString(TIME)
    said = Message(message_id="m", role=Role.ROLE_AGENT, context_id="c", task_id="t", parts=[Part(text="Wohin? 😀")])
    task.status.message.CopyFrom(said)
    task.history.append(Message(message_id="n", role=Role.ROLE_USER, parts=[Part(raw=b"\x00\xff", filename="f")]))
    extra = Struct()
    extra.update({"deep": {"list": [1, None, "x"]}})
    task.artifacts.append(Artifact(artifact_id="a", name="n", parts=[Part(text="one")], metadata=extra))
    task.metadata.update({"k": 1.5})
    return task


def test_round_trip():
    """A Task with every kind of content reads back equal, and nothing of it counts as unknown."""
    task, unknown = parse(format_task_json(full_task(), {}))
    assert task == full_task()
    assert not unknown


def test_readable_as_it_is():
    """The body is indented UTF-8 JSON with the names of A2A 1.0."""
    body = format_task_json(full_task(), {})
    raw = json.loads(body)
    assert raw["contextId"] == "c"
    assert raw["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert raw["status"]["timestamp"] == TIME
    assert "Wohin? 😀".encode() in body
    assert body.startswith(b"{\n  ")


UNKNOWN = {
    "id": "t",
    "contextId": "c",
    "later": {"a": [1, {"b": None}]},
    "status": {
        "state": "TASK_STATE_WORKING",
        "later": "x",
        "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}], "later": 5},
    },
}


def test_unknown_members_survive_a_rewrite():
    """Members of a later release are kept in their places, also inside the status and its message."""
    after = rewrite(UNKNOWN, lambda task: task.artifacts.add(artifact_id="new"))
    assert after == {**UNKNOWN, "artifacts": [{"artifactId": "new"}]}


def test_unknown_members_go_with_their_message():
    """When the status message is gone, what was unknown in it does not come back as an empty message."""
    after = rewrite(UNKNOWN, lambda task: task.status.ClearField("message"))
    assert after["status"] == {"state": "TASK_STATE_WORKING", "later": "x"}


def test_an_unknown_member_never_replaces_a_known_one():
    """What the Task says of itself wins over what was kept beside it."""
    assert json.loads(format_task_json(full_task(), {"later": 1}))["later"] == 1
    assert json.loads(format_task_json(full_task(), {"status": {"later": 2}}))["status"]["later"] == 2


def test_a_lone_surrogate_is_passed_on():
    """JSON may escape half a character; a member that holds one can be written again."""
    body = b'{"id": "t", "contextId": "c", "later": "\\ud800"}'
    assert parse(format_task_json(*parse(body)))[1] == {"later": "\ud800"}


def test_long_texts_stay_in_their_places():
    """Whatever stands between them, in messages and artifacts and the status; half a character in one is no text."""
    task = full_task()
    for number, holder in enumerate([task.status.message, *task.history, *task.artifacts, *task.artifacts]):
        holder.parts.extend([Part(text=f"{number}{n}" * 2000) for n in range(2)])
        holder.parts.append(Part(url="u"))
    assert parse(format_task_json(task, {}))[0] == task
    for path in ({"history": [{}, {"parts": [{}, {"text": "x" * 2000 + "\ud800"}]}]}, {"artifacts": [{}, None]}):
        with pytest.raises(CorruptRecord):
            parse({"id": "t", "contextId": "c", **path})


# ---------------------------------------------------------------- A2A 0.3


def old_task():
    said = v03.Message(message_id="m", role=v03.Role.agent, parts=[v03.Part(root=v03.TextPart(text="done"))])
    return v03.Task(
        id="t",
        context_id="c",
        status=v03.TaskStatus(state=v03.TaskState.completed, message=said, timestamp=TIME),
        history=[
            v03.Message(message_id="q", role=v03.Role.user, parts=[v03.Part(root=v03.DataPart(data={"n": [1, "x"]}))])
        ],
        artifacts=[
            v03.Artifact(
                artifact_id="a",
                name="out.txt",
                parts=[v03.Part(root=v03.FilePart(file=v03.FileWithBytes(bytes="aGk=", name="f", mime_type="a/b")))],
            )
        ],
        metadata={"k": "v"},
    )


def test_a_task_of_an_old_server_is_read():
    """A task.json that an A2A 0.3 server wrote has the same ids, state, time, text, data, bytes and metadata."""
    task, unknown = parse(old_task().model_dump_json(by_alias=True, exclude_none=True).encode())
    assert (task.id, task.context_id, state_name(task)) == ("t", "c", "TASK_STATE_COMPLETED")
    assert task.status.timestamp.ToJsonString() == TIME
    assert task.status.message.parts[0].text == "done"
    assert task.status.message.role == Role.ROLE_AGENT
    assert dict(task.history[0].parts[0].data.struct_value.items())["n"][1] == "x"
    assert (task.artifacts[0].artifact_id, task.artifacts[0].name) == ("a", "out.txt")
    assert task.artifacts[0].parts[0].raw == b"hi"
    assert task.metadata["k"] == "v"
    assert not unknown


def test_an_old_task_is_written_back_as_a_new_one():
    """Once written, a 0.3 task is one of 1.0, and equal."""
    task, unknown = parse(old_task().model_dump_json(by_alias=True, exclude_none=True).encode())
    body = format_task_json(task, unknown)
    assert "kind" not in json.loads(body)
    assert parse(body)[0] == task


# ---------------------------------------------------------------- what is no Task


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"t"',
        b"{}",
        b'{"id": "t"}',
        b'{"contextId": "c"}',
        b'{"id": "", "contextId": "c"}',
        b'{"id": 5, "contextId": "c"}',
        b'{"id": "t", "contextId": "c", "status": 5}',
        b'{"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_PAUSED"}}',
        b'{"id": "t", "contextId": "c", "status": {"state": 99}}',
        b'{"id": "t", "contextId": "c", "status": {"timestamp": "yesterday"}}',
        b'{"id": "t", "contextId": "c", "artifacts": {"a": 1}}',
        b'{"id": "\\ud800", "contextId": "c"}',
        b'{"kind": "task", "id": "t", "contextId": "c"}',
        b'{"kind": "task", "id": "t", "contextId": "c", "status": {"state": "paused"}}',
        b'{"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed", "timestamp": "x"}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda raw: raw[:70].decode("latin-1"),
)
def test_no_task(raw):
    """What is no Task of this release raises CorruptRecord; a state of a later one is not silently dropped."""
    with pytest.raises(CorruptRecord) as caught:
        parse(raw)
    assert caught.value.key == KEY


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
members = st.sampled_from(
    [
        "id",
        "contextId",
        "status",
        "state",
        "message",
        "timestamp",
        "history",
        "artifacts",
        "metadata",
        "parts",
        "kind",
        "x",
    ]
)
objects = st.dictionaries(members, json_values | st.dictionaries(members, json_values, max_size=3), max_size=5)


@given(objects, st.booleans())
def test_any_json_is_a_task_or_reported(raw, old):
    """Whatever JSON there is, reading gives a Task that can be written again, or CorruptRecord: no third thing."""
    raw |= {"id": "t", "contextId": "c"} | ({"kind": "task"} if old else {})
    try:
        task, unknown = parse(raw)
    except CorruptRecord:
        return
    assert parse(format_task_json(task, unknown))[0] == task


# ---------------------------------------------------------------- times


def test_a_status_has_whole_milliseconds():
    """A stamped status has A2A's resolution, whatever the clock's, so that the index and the body agree."""
    task = Task()
    stamp(task, datetime(2026, 5, 1, 10, 0, 0, 123_999, tzinfo=UTC))
    assert task.status.timestamp.ToJsonString() == TIME
    assert status_millis(task) == 1_777_629_600_123


def test_no_timestamp():
    """A status without a timestamp is as old as can be, not an error."""
    assert status_millis(Task(status=TaskStatus(state=TaskState.TASK_STATE_WORKING))) == 0
