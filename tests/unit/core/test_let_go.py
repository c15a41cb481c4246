"""What a small message that was made of a large one holds on to: nothing of it.

A message keeps the memory of whatever it has ever held (upb). What is watched is this process's memory; contents are so
large that the allocator gives each back to the system at once.
"""

import sys
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import Artifact, Message, Part, Task, TaskArtifactUpdateEvent

from a2a_gcs.executors.large_parts import LargeParts, Limits
from a2a_gcs.layout import TaskRef
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.task_json import without
from a2a_gcs.tasks.files import TaskFiles
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is read from Linux's /proc")

MIB = 1024**2
LARGE = 64 * MIB
REF = TaskRef("ctx", "t")


def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024


def large_part():
    return Part(raw=b"x" * LARGE, filename="f")


@pytest.fixture
async def store(tmp_path):
    """Not in memory."""
    async with LocalStore(tmp_path) as store:
        yield store


def test_a_copy_without_a_field():
    """It has all else, also what is there and empty."""
    message = Message(message_id="m", extensions=["e"], parts=[Part(text="gone")])
    message.metadata.SetInParent()
    copy = without(message, "parts")
    message.ClearField("parts")
    assert copy == message
    assert copy.HasField("metadata")
    assert without(message, "parts") == message


def test_a_copy_without_its_largest_field_does_not_hold_it():
    """Clearing the field instead would."""
    before = resident()
    task = Task(id="t", artifacts=[Artifact(artifact_id="a", parts=[large_part()])])
    assert resident() - before > LARGE / 2
    kept = without(task, "artifacts")
    del task
    assert kept.id == "t"
    assert resident() - before < LARGE / 2


async def test_a_message_as_it_is_kept_does_not_hold_what_is_beside_its_task(store):
    """Turns last, and so does the message that began them."""
    large, before = LargeParts(TaskFiles(store), REF, Limits(MIB)), resident()
    message = Message(message_id="m", parts=[Part(text="words"), large_part()])
    kept = await large.message(message)
    del message
    assert [part.WhichOneof("content") for part in kept.parts] == ["text", "url"]
    await until(lambda: resident() - before < LARGE / 2, seconds=10, what="the content let go")


async def test_an_event_that_is_told_does_not_hold_what_is_beside_its_task(store):
    """A stream that lags has many of them."""
    large, before = LargeParts(TaskFiles(store), REF, Limits(MIB)), resident()
    event = TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a", name="n", parts=[large_part()]), last_chunk=True)
    event.artifact.parts.add(text="words")
    await large.artifact(event)
    del event
    (told,) = large.told
    assert [part.WhichOneof("content") for part in told.artifact.parts] == ["url", "text"]
    assert (told.artifact.artifact_id, told.artifact.name, told.last_chunk) == ("a", "n", True)
    await until(lambda: resident() - before < LARGE / 2, seconds=10, what="the content let go")
