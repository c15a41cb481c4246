"""Large content: what leaves task.json, in what order it is told, and what agents and clients find of it."""

import asyncio
import hashlib

import pytest
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import Artifact, GetTaskRequest, Part, TaskArtifactUpdateEvent

import a2a_gcs
from a2a_gcs.errors import StoreError
from a2a_gcs.executors.large_parts import LargeParts, Limits
from a2a_gcs.executors.turn_queue import TaskTooLarge
from a2a_gcs.layout import TaskRef, file_key, parse_file_reference, task_key
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.tasks.files import SIZE, TaskFiles
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import COMPLETED, FAILED, INPUT_REQUIRED, WORKING
from tests.support.turn_host import said, says

INLINE = 1024
BIG = bytes(range(256)) * 8
REF = TaskRef("ctx", "t")


def sends(*parts, name="a", append=False, last=False):
    artifact = Artifact(artifact_id=name, parts=parts)
    return TaskArtifactUpdateEvent(artifact=artifact, append=append, last_chunk=last)


def raw(content, **more):
    return Part(raw=content, **more)


def name_of(part):
    return parse_file_reference(part.url)


async def content_of(store, ref, parts):
    """The bytes of parts, also of those that are beside the task."""
    return b"".join([await TaskFiles(store).read(ref, part) for part in parts])


def artifact_of(task, name="a"):
    return next(a for a in task.artifacts if a.artifact_id == name)


# ---------------------------------------------------------------------- what an agent sends


@pytest.fixture(autouse=True)
def gathering(monkeypatch):
    """Chunks wait for the next ones, however busy the machine; returns what sets for how long."""

    def seconds(value):
        monkeypatch.setattr("a2a_gcs.executors.turn_queue.GATHER_SECONDS", value)

    seconds(3600.0)
    return seconds


async def test_a_large_part_is_an_object_named_by_its_hash(start, bucket):
    """The part has a relative URL, its length, and all else as it was; small ones and text stay."""

    async def script(context, queue):
        big = raw(BIG, filename="x.png", media_type="image/png")
        big.metadata["mine"] = 1
        await queue.enqueue_event(sends(big, raw(b"small"), Part(text="words"), last=True))
        await queue.enqueue_event(says(COMPLETED))

    host = await start(script, inline=INLINE)
    task = await host.send()
    large, small, text = artifact_of(task).parts
    name = hashlib.sha256(BIG).hexdigest()
    assert (large.url, large.filename, large.media_type) == (f"files/{name}", "x.png", "image/png")
    assert (large.metadata["mine"], large.metadata[SIZE]) == (1, len(BIG))
    assert (small.raw, text.text) == (b"small", "words")
    blob = await bucket.store.get(file_key(TaskRef("ctx", task.id), name), with_metadata=True)
    assert (blob.body, blob.info.content_type) == (BIG, "image/png")
    assert (await host.record(task.id)).task == task


async def test_the_same_content_twice_is_one_object(start, bucket):
    """Content is addressed by its hash: a repeat writes nothing."""

    async def script(context, queue):
        await queue.enqueue_event(sends(raw(BIG), name="a"))
        await queue.enqueue_event(sends(raw(BIG), name="b"))
        await queue.enqueue_event(says(COMPLETED))

    task = await (await start(script, inline=INLINE)).send()
    assert artifact_of(task, "a").parts[0].url == artifact_of(task, "b").parts[0].url
    assert sum("/files/" in key for key in await bucket.keys()) == 1


async def test_chunks_of_an_artifact_that_has_outgrown_the_task_are_gathered(start, bucket):
    """The first stay, the others become a few objects, in order; memory and task.json do not grow with them."""
    pieces = [bytes([n % 256]) * 100 for n in range(200)]

    async def script(context, queue):
        for n, piece in enumerate(pieces):
            await queue.enqueue_event(sends(raw(piece), append=n > 0, last=n == len(pieces) - 1))
        await queue.enqueue_event(says(COMPLETED))

    host = await start(script, inline=INLINE)
    events = [event async for event in host.send_stream()]
    task_id = events[0].id
    ref = TaskRef("ctx", task_id)
    updates = [event.artifact for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    told = [part for artifact in updates for part in artifact.parts]
    stored = artifact_of((await host.record(task_id)).task).parts
    assert await content_of(bucket.store, ref, told) == b"".join(pieces)
    assert list(stored) == told
    assert sum(len(part.raw) for part in stored) <= INLINE
    assert sum("/files/" in key for key in await bucket.keys()) == -(-(len(pieces) * 100 - INLINE) // (4 * INLINE))
    updates = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert [update.last_chunk for update in updates] == [False] * (len(updates) - 1) + [True]


async def test_text_stays_longer_and_leaves_whole_characters(start, bucket):
    """Text is inline up to 32 times as much; beyond that it is a text file, and no character is cut."""
    chunk = "äöü€😀" * 20

    async def script(context, queue):
        for n in range(200):
            await queue.enqueue_event(sends(Part(text=chunk), append=n > 0))
        await queue.enqueue_event(says(COMPLETED))

    task = await (await start(script, inline=INLINE)).send()
    parts = artifact_of(task).parts
    inline = sum(len(part.text.encode()) for part in parts)
    assert 31 * INLINE < inline <= 32 * INLINE
    moved = [part for part in parts if part.url]
    assert {part.media_type for part in moved} == {"text/plain; charset=utf-8"}
    ref = TaskRef("ctx", task.id)
    assert all([(await content_of(bucket.store, ref, [part])).decode() for part in moved])
    assert (await content_of(bucket.store, ref, parts)).decode() == chunk * 200


async def test_what_is_gathered_comes_before_what_follows_it(start):
    """A status, another artifact and another file end the gathering: clients get everything in its order."""

    async def script(context, queue):
        await queue.enqueue_event(sends(raw(b"0" * 900)))
        await queue.enqueue_event(sends(raw(b"1" * 500), append=True))
        await queue.enqueue_event(says(WORKING, "half"))
        await queue.enqueue_event(sends(raw(b"2" * 500), append=True))
        await queue.enqueue_event(sends(raw(b"b"), name="b"))
        await queue.enqueue_event(sends(raw(b"3" * 500), append=True))
        await queue.enqueue_event(sends(raw(b"4" * 500, filename="other"), append=True))
        await queue.enqueue_event(says(COMPLETED))

    host = await start(script, inline=INLINE)
    events = [event async for event in host.send_stream()]
    sizes = [
        [int(p.metadata[SIZE]) if p.url else len(p.raw) for p in e.artifact.parts]
        if isinstance(e, TaskArtifactUpdateEvent)
        else "status"
        for e in events[1:]
    ]
    assert sizes == [[900], [500], "status", [500], [1], [500], [500], "status"]


async def test_what_is_gathered_is_told_though_no_more_comes(start, gathering):
    """A slow stream lags by the gathering time, and not until the end."""
    gathering(0.01)
    seen = asyncio.Event()

    async def script(context, queue):
        await queue.enqueue_event(sends(raw(b"0" * 900)))
        await queue.enqueue_event(sends(raw(b"1" * 500), append=True))
        await seen.wait()
        await queue.enqueue_event(says(COMPLETED))

    host = await start(script, inline=INLINE)
    told = []
    async for event in host.send_stream():
        if isinstance(event, TaskArtifactUpdateEvent):
            told.append(event)
            if event.artifact.parts[0].url:
                seen.set()
    assert len(told) == 2


async def test_what_is_gathered_is_kept_when_the_agent_fails(start, bucket):
    """The agent was told that its chunk is taken: the failed task has it."""

    async def script(context, queue):
        await queue.enqueue_event(sends(raw(b"0" * 900)))
        await queue.enqueue_event(sends(raw(b"1" * 500), append=True))
        raise KeyError("lost")

    task = await (await start(script, inline=INLINE)).send()
    assert task.status.state == FAILED
    parts = artifact_of(task).parts
    assert await content_of(bucket.store, TaskRef("ctx", task.id), parts) == b"0" * 900 + b"1" * 500


async def test_a_replaced_artifact_begins_anew(start):
    """An update that does not append replaces what the artifact held, so it counts from nothing again."""

    async def script(context, queue):
        for _ in range(5):
            await queue.enqueue_event(sends(raw(b"0" * 900)))
        await queue.enqueue_event(says(COMPLETED))

    task = await (await start(script, inline=INLINE)).send()
    assert [len(part.raw) for part in artifact_of(task).parts] == [900]


async def test_a_later_turn_knows_what_an_artifact_holds(start):
    """What the turns before have put into an artifact counts."""

    async def script(context, queue):
        first = context.get_user_input() == "first"
        await queue.enqueue_event(sends(raw(b"0" * 900), append=not first))
        await queue.enqueue_event(says(INPUT_REQUIRED if first else COMPLETED))

    host = await start(script, inline=INLINE)
    task = await host.send("first")
    task = await host.send("second", task_id=task.id)
    assert [part.WhichOneof("content") for part in artifact_of(task).parts] == ["raw", "url"]


async def test_a_store_that_fails_is_the_agents_error(start, bucket):
    """A part that cannot be stored is never referred to: the agent is told, and the task fails if it is not caught."""

    async def script(context, queue):
        await queue.enqueue_event(sends(raw(BIG)))
        await queue.enqueue_event(says(COMPLETED))

    async with FaultyStore(bucket.store) as store:
        store.fail("put", "*/files/*", times=1)
        task = await (await start(script, store=store, inline=INLINE)).send()
    assert task.status.state == FAILED
    assert said(task).startswith("The agent failed: Unavailable")
    assert not task.artifacts


async def test_gathered_chunks_survive_a_failed_write():
    """What could not be stored is stored with the next try, whole and once."""
    async with FaultyStore(MemoryStore()) as store:
        large = LargeParts(TaskFiles(store), REF, Limits(INLINE))
        await large.artifact(sends(raw(b"0" * 900)))
        await large.artifact(sends(raw(b"1" * 500), append=True))
        store.fail("put", "*/files/*")
        with pytest.raises(StoreError):
            await large.flush()
        await large.artifact(sends(raw(b"2" * 500), append=True))
        await large.flush()
        assert not large.waiting
        parts = [part for event in large.told for part in event.artifact.parts]
        assert await content_of(store, REF, parts) == b"0" * 900 + b"1" * 500 + b"2" * 500


async def test_a_status_message_with_a_file(start, bucket):
    """A large file in what the agent says goes beside the task, too; a final state waits for it."""

    async def script(context, queue):
        event = says(COMPLETED, "see")
        event.status.message.parts.append(raw(BIG, filename="report.pdf"))
        await queue.enqueue_event(event)

    task = await (await start(script, inline=INLINE)).send()
    text, file = task.status.message.parts
    assert (text.text, file.filename) == ("see", "report.pdf")
    assert await content_of(bucket.store, TaskRef("ctx", task.id), [file]) == BIG


# ---------------------------------------------------------------------- what an agent gets


def request(host, *parts, task_id=None):
    made = host.request(task_id=task_id)
    made.message.parts.extend(parts)
    return made


async def test_the_agent_gets_a_message_as_it_was_sent(start, bucket):
    """The history refers to large files of first messages and answers; the agent of the turn has them at hand."""
    met = []

    async def script(context, queue):
        met.append(context.message.parts[1].raw)
        history = context.current_task.history
        met.append([await a2a_gcs.read_part(context, part) for said in history for part in said.parts[1:]])
        await queue.enqueue_event(says(COMPLETED if len(met) > 2 else INPUT_REQUIRED))

    host = await start(script, inline=INLINE)
    other = BIG[::-1]
    task = await host.handler.on_message_send(request(host, raw(BIG)), ServerCallContext())
    await host.handler.on_message_send(request(host, raw(other), task_id=task.id), ServerCallContext())
    assert met == [BIG, [BIG], other, [BIG, other]]
    stored = (await host.record(task.id)).task
    files = [part for message in stored.history for part in message.parts[1:]]
    assert all(name_of(part) for part in files)
    assert await content_of(bucket.store, TaskRef("ctx", task.id), files) == BIG + other
    assert len((await bucket.store.get(task_key(TaskRef("ctx", task.id)))).body) < len(BIG)


@pytest.mark.parametrize("answer", [False, True])
async def test_a_message_that_cannot_be_stored_starts_nothing(start, bucket, answer):
    """The client is told, the agent does not run, and the context, or the parked task, is there for the next one."""

    async def script(context, queue):
        await queue.enqueue_event(says(INPUT_REQUIRED if "ask" in context.get_user_input() else COMPLETED))

    async with FaultyStore(bucket.store) as store:
        host = await start(script, store=store, inline=INLINE)
        task_id = (await host.send("ask")).id if answer else None
        runs = host.agent.runs
        store.fail("put", "*/files/*")
        with pytest.raises(Exception, match="bucket cannot be reached"):
            await host.handler.on_message_send(request(host, raw(BIG), task_id=task_id), ServerCallContext())
        assert host.agent.runs == runs
        task = await host.handler.on_message_send(request(host, raw(BIG), task_id=task_id), ServerCallContext())
        assert task.status.state == COMPLETED
        assert len(task.history) == (2 if answer else 1)


async def test_somebody_elses_url_is_not_read(start):
    """`read_part` reads what this host keeps of this task, and nothing else."""
    met = []

    async def script(context, queue):
        for part in (Part(url="https://example.org/x"), Part(url=f"files/{'0' * 64}")):
            with pytest.raises((ValueError, StoreError)) as error:
                await a2a_gcs.read_part(context, part)
            met.append(str(error.value))
        await queue.enqueue_event(says(COMPLETED))

    task = await (await start(script, inline=INLINE)).send()
    assert task.status.state == COMPLETED, said(task)
    assert "not beside task" in met[0]
    assert "not found" in met[1]


# ---------------------------------------------------------------------- tasks that grow too large


@pytest.mark.parametrize("caught", [False, True])
async def test_a_task_that_grows_too_large_fails_and_keeps_what_it_has(start, caught):
    """Whether the agent catches the error or not: FAILED, with the reason and what was emitted before."""

    async def script(context, queue):
        await queue.enqueue_event(sends(Part(text="x" * 500), name="kept"))
        try:
            await queue.enqueue_event(sends(Part(text="x" * 900), name="gone"))
        except TaskTooLarge:
            if not caught:
                raise
            with pytest.raises(TaskTooLarge):
                await queue.enqueue_event(says(COMPLETED))

    host = await start(script, inline=INLINE, max_task_bytes=1200)
    task = await host.send()
    assert task.status.state == FAILED
    assert "With artifact gone the task would hold more than the 1200 bytes" in said(task)
    assert "max_task_bytes" in said(task)
    assert [a.artifact_id for a in task.artifacts] == ["kept"]


async def test_files_beside_a_task_do_not_count(start):
    """The limit is about task.json."""

    async def script(context, queue):
        for n in range(10):
            await queue.enqueue_event(sends(raw(bytes([n]) * 2048), name=f"{n}"))
        await queue.enqueue_event(says(COMPLETED))

    task = await (await start(script, inline=INLINE, max_task_bytes=4096)).send()
    assert (task.status.state, len(task.artifacts)) == (COMPLETED, 10)


async def test_a_message_that_makes_a_task_too_large_runs_nothing(start):
    """A text over the limit is history, and the task fails before the agent runs."""

    async def script(context, queue):
        raise AssertionError

    host = await start(script, inline=INLINE, max_task_bytes=1200)
    task = await host.send("x" * 2000)
    assert (task.status.state, host.agent.runs) == (FAILED, 0)
    assert "With the message to it the task would hold more" in said(task)
    assert await host.handler.on_get_task(GetTaskRequest(id=task.id), ServerCallContext())
