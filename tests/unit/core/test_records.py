"""The JSON records: versioned, and kind to the fields of later releases."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.cas import VersionedObject
from a2a_gcs.errors import Conflict, CorruptRecord
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import (
    REMEMBERED_MESSAGES,
    REMEMBERED_TURNS,
    SCHEMA,
    TURN_STRIDE,
    Active,
    Base,
    ContextRecord,
    HeartbeatRecord,
    LastCompleted,
    Owner,
    Pin,
    Ran,
    SeenMessage,
    TaskMeta,
)

LATER_CONTEXT = {
    "schema": SCHEMA,
    "contextId": "c",
    "epoch": 3,
    "active": None,
    "lastCompleted": {"taskId": "t", "generation": 5, "crc32c": "x", "later": [1]},
    "messages": [{"id": "m", "digest": "d", "taskId": "t", "later": {"a": None}}],
    "later": {"deep": ["ä", 1.5, True]},
}


def reread(record):
    return json.loads(record.to_bytes())


@pytest.mark.parametrize("change", ["claimed", "released"])
def test_a_context_record_keeps_what_it_does_not_know(change):
    """Fields of a later release survive a claim and a release, also inside of what stays."""
    record = ContextRecord.parse("k", json.dumps(LATER_CONTEXT).encode())
    after = (
        record.claimed(Active(task_id="n", owner="h/1"), record.last_completed, None)
        if change == "claimed"
        else record.released()
    )
    body = reread(after)
    assert body["later"] == LATER_CONTEXT["later"]
    assert body["lastCompleted"] == LATER_CONTEXT["lastCompleted"]
    assert body["messages"] == LATER_CONTEXT["messages"]
    assert body["schema"] == SCHEMA
    assert body["epoch"] == 4


def test_a_heartbeat_keeps_what_it_does_not_know():
    """A renewal changes next and open, and nothing that a later release put there."""
    raw = {"schema": 1, "host": "h", "leaseSeconds": 30, "next": 1, "open": [], "claims": [], "later": {"zone": "b"}}
    record = HeartbeatRecord.parse("k", json.dumps(raw).encode())
    assert reread(record.model_copy(update={"next": 4, "open": (2, 3)})) == {**raw, "next": 4, "open": [2, 3]}


@pytest.mark.parametrize(
    "record", [ContextRecord(context_id="c"), HeartbeatRecord(host="h", lease_seconds=30)], ids=["context", "heartbeat"]
)
def test_a_new_record_says_its_schema(record):
    """Every record starts with this release's schema version."""
    assert reread(record)["schema"] == SCHEMA


def test_names_on_disk():
    """Records are camelCase on disk, as service/docs/bucket.md has them."""
    record = ContextRecord(
        context_id="c",
        active=Active(task_id="t", owner="h/1"),
        last_completed=LastCompleted(task_id="s", generation=1, crc32c="x"),
        messages=(SeenMessage(id="m", digest="d", task_id="t"),),
    )
    assert reread(record) == {
        "schema": 1,
        "contextId": "c",
        "epoch": 0,
        "active": {"taskId": "t", "owner": "h/1"},
        "lastCompleted": {"taskId": "s", "generation": 1, "crc32c": "x"},
        "messages": [{"id": "m", "digest": "d", "taskId": "t"}],
        "removing": None,
    }


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"contextId": 5}', b'{"contextId": "c", "epoch": "x"}', b"\xff"])
def test_garbage_is_reported_with_its_key(body):
    """A record that cannot be parsed raises CorruptRecord naming the object."""
    with pytest.raises(CorruptRecord) as caught:
        ContextRecord.parse("contexts/c/context.json", body)
    assert caught.value.key == "contexts/c/context.json"


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=80))
def test_the_last_messages_are_remembered(names):
    """A context remembers its 32 newest messages, in order, and its epoch counts every claim."""
    record = ContextRecord(context_id="c")
    for i, name in enumerate(names):
        seen = SeenMessage(id=name, digest="d", task_id=str(i))
        record = record.claimed(Active(task_id=str(i), owner="h/1"), None, seen)
    assert [(m.id, m.task_id) for m in record.messages] == [(n, str(i)) for i, n in enumerate(names)][
        -REMEMBERED_MESSAGES:
    ]
    assert record.epoch == len(names)


def test_a_released_claim_is_forgotten():
    """After a release the message of that claim may start a task again; those of others are still known."""
    record = ContextRecord(context_id="c")
    for task in ("a", "b"):
        seen = SeenMessage(id=task, digest="d", task_id=task)
        record = record.claimed(Active(task_id=task, owner="h/1"), None, seen)
    after = record.released()
    assert (after.active, after.epoch, [m.id for m in after.messages]) == (None, 3, ["a"])


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("host/7", ("host", 7)),
        ("a/b/7", ("a/b", 7)),
        ("", None),
        ("host", None),
        ("/7", None),
        ("host/", None),
        ("host/-1", None),
        ("host/x", None),
    ],
)
def test_owner_text(text, owner):
    """An owner is `<host>/<n>`; anything else is none."""
    found = Owner.from_text(text)
    assert (found and (found.host, found.n)) == owner
    assert found is None or str(found) == text


metas = st.builds(
    TaskMeta,
    owner=st.text(max_size=5),
    turn=st.integers(0, 2**40),
    open=st.booleans(),
    seq=st.integers(0, 2**62),
    state=st.text(max_size=5),
    status_time=st.integers(-(10**15), 10**15),
    journal=st.integers(0, 10**6),
    was=st.text(max_size=5),
    patience=st.integers(0, 10**6),
    push=st.booleans(),
    notice=st.integers(0, 2**70),
    pin=st.none() | st.builds(Pin, generation=st.integers(1, 2**62), crc32c=st.text(max_size=8)),
    base=st.none() | st.just(Base()) | st.builds(Base, st.text("a %/\u00fc", min_size=1), st.text("A=+/", min_size=1)),
    extra=st.dictionaries(st.sampled_from(["later", "deadline"]), st.text(max_size=5)),
)


@given(metas)
def test_metadata_round_trip(meta):
    """Metadata reads back as it was written, with what this version does not know and a schema version."""
    raw = meta.to_metadata()
    assert TaskMeta.from_metadata("k", raw) == meta
    assert raw["schema"] == str(SCHEMA)


def test_no_metadata():
    """A task.json without metadata is nobody's, of no turn, and not open."""
    assert TaskMeta.from_metadata("k", {}) == TaskMeta()


@pytest.mark.parametrize(
    "raw",
    [
        *({"turn": "x"}, {"turn": "-1"}, {"seq": ""}, {"seq": "-5"}, {"status-time": "now"}, {"pin-generation": "-3"}),
        *({"base": "task"}, {"base": "a b c"}, {"base": "%ff c"}),
    ],
    ids=str,
)
def test_garbage_in_metadata_is_reported(raw):
    """A number that is none, or cannot be one, is reported instead of guessed."""
    with pytest.raises(CorruptRecord):
        TaskMeta.from_metadata("k", raw)


def test_the_base_is_recorded_or_is_not():
    """An empty workspace is told from one that an earlier version did not record; ids of any letters are ASCII."""
    assert "base" not in TaskMeta().to_metadata()
    assert TaskMeta(base=Base()).to_metadata()["base"] == "empty"
    assert TaskMeta(base=Base("\u00fc 1", "AAAA==")).to_metadata()["base"] == "%C3%BC%201 AAAA=="


def test_the_write_id_is_not_passed_on():
    """The write id belongs to one write; the next one gets its own from the store."""
    assert "write-id" not in TaskMeta.from_metadata("k", {"write-id": "w", "later": "x"}).to_metadata()


@given(metas)
def test_a_foreign_write_is_newer_than_all_of_the_turn(meta):
    """Who does not hold the turn writes a version after everything that its holder may still write."""
    assert meta.foreign_seq() > meta.seq
    assert meta.foreign_seq() >= (meta.turn + 1) * TURN_STRIDE


def test_when_turns_ran():
    """A turn begins with the first write that is open, and ends with the first that is not; others change nothing."""
    meta = TaskMeta()
    for at, is_open in ((5, False), (10, True), (20, True), (30, False), (40, False), (50, True)):
        meta = meta.with_(open=is_open).timed(at)
    assert meta.turns == (Ran(10, 30), Ran(50))
    assert meta.to_metadata()["turns"] == "10+20,50"
    assert TaskMeta.from_metadata("k", meta.to_metadata()).turns == meta.turns
    assert meta.with_(open=False).timed(1).turns[-1] == Ran(50, 50)  # a clock that went back


@pytest.mark.parametrize(
    "text", ["1+", "x", "+", "1+2+3", "10+-5", "0", "-1+5", "10+5,now", f"{10**15}", f"1+{10**15}", "9" * 5000]
)
def test_damage_in_what_nothing_is_decided_by_hides_no_task(text):
    """When turns ran is told to people alone: unreadable, it counts as not said, and all else is as it was."""
    meta = TaskMeta(owner="a/1", turn=3, open=True, seq=3 * TURN_STRIDE, state="TASK_STATE_WORKING", turns=(Ran(5),))
    raw = meta.to_metadata() | {"turns": text}
    assert TaskMeta.from_metadata("k", raw) == meta.with_(turns=())
    assert TaskMeta.from_metadata("k", raw).timed(7).turns == (Ran(7),)


def test_the_first_and_the_latest_turns_are_remembered():
    meta = TaskMeta()
    for turn in range(1, 1 + 3 * REMEMBERED_TURNS):
        meta = meta.with_(open=True).timed(turn * 100).with_(open=False).timed(turn * 100 + 1)
    assert len(meta.turns) == REMEMBERED_TURNS
    assert (meta.turns[0].since, meta.turns[-1].since) == (100, 3 * REMEMBERED_TURNS * 100)
    assert len(meta.to_metadata()["turns"]) < 400


# ---------------------------------------------------------------- cas


@pytest.fixture
def record():
    store = MemoryStore()
    return store, VersionedObject(store, "contexts/c/context.json", ContextRecord(context_id="c"))


async def test_a_fresh_record_is_created_once(record):
    """Of two writers that both saw nothing one creates the record, the other meets a Conflict."""
    _, held = record
    seen = await held.load()
    assert seen.version == 0
    await held.replace(seen, seen.value.released())
    with pytest.raises(Conflict):
        await held.replace(seen, seen.value.released())


async def test_a_record_is_replaced_only_as_it_was_seen(record):
    """A write over an older version changes nothing."""
    _, held = record
    first = await held.replace(await held.load(), ContextRecord(context_id="c", epoch=1))
    await held.replace(first, ContextRecord(context_id="c", epoch=2))
    with pytest.raises(Conflict):
        await held.replace(first, ContextRecord(context_id="c", epoch=9))
    assert (await held.load()).value.epoch == 2


async def test_an_unreadable_record_is_left_alone(record):
    """Loading a corrupt record raises, so there is no version to write over."""
    store, held = record
    await store.put("contexts/c/context.json", b"{garbage", OVERWRITE)
    with pytest.raises(CorruptRecord):
        await held.load()
    assert (await store.get("contexts/c/context.json")).body == b"{garbage"
