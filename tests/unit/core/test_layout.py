"""Ids to keys and back: reversible, injective, and never a path."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from a2a_gcs.errors import InvalidId
from a2a_gcs.layout import (
    MAX_SEGMENT_BYTES,
    TaskRef,
    callers_of,
    context_key,
    context_prefix,
    decode_segment,
    encode_segment,
    heartbeat_key,
    owed_key,
    parse_context,
    parse_owed,
    parse_pointer,
    parse_push_config,
    parse_push_mark,
    parse_root,
    parse_task,
    pointer_key,
    push_config_key,
    push_mark_key,
    root_above,
    root_of,
    task_key,
    workspace_key,
)

ODD = [
    "..",
    ".",
    "../../etc",
    "a/b",
    "/",
    "%2F",
    "%",
    "%41",
    "context.json",
    "parts",
    ".hidden",
    "a b",
    "😀",
    "ü",
    "u\u0308",
]
ALLOWED = set(string.ascii_letters + string.digits + "-_.%")

ids = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=18) | st.sampled_from(ODD)


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("task-1_A.b", "task-1_A.b"),
        ("..", "%2E."),
        (".", "%2E"),
        ("a.", "a."),
        ("a/b", "a%2Fb"),
        ("%2F", "%252F"),
        ("context.json", "%63ontext.json"),
        ("parts", "%70arts"),
        ("Parts", "Parts"),
        ("parts2", "parts2"),
        ("a b", "a%20b"),
        ("😀", "%F0%9F%98%80"),
        ("~", "%7E"),
    ],
)
def test_encoding(value, segment):
    """An id keeps [A-Za-z0-9_-] and inner dots; all else, and the first letter of a reserved name, is encoded."""
    assert encode_segment(value) == segment


@given(ids)
def test_round_trip(value):
    """Decoding gives back the very id that was encoded."""
    assert decode_segment(encode_segment(value)) == value


@given(ids, ids)
@example("parts", "%70arts")
@example("..", "%2E.")
@example("ü", "u\u0308")
def test_two_ids_never_share_a_segment(one, other):
    """Encoding is injective, also where an id looks like the encoded form of another."""
    assert (encode_segment(one) == encode_segment(other)) == (one == other)


@given(ids)
def test_a_segment_is_one_plain_name(value):
    """A segment is never empty, a dot name, a path, or the name of a neighbour."""
    segment = encode_segment(value)
    assert segment
    assert set(segment) <= ALLOWED
    assert not segment.startswith(".")
    assert segment not in {"context.json", "parts"}


@given(st.text(max_size=30) | st.text(string.ascii_letters + "%.0123456789ABCDEF", max_size=12))
@example("%2e.")
@example("%70arts2")
@example("\ud800")
def test_only_what_encoding_makes_is_decoded(segment):
    """A segment that no id has, such as lower-case hex or a needless escape, is nobody's key."""
    value = decode_segment(segment)
    assert value is None or encode_segment(value) == segment


@pytest.mark.parametrize("value", ["", "a\nb", "\r", "\x00", "a\x1f", "\x7f", "\x85", "\ud800", "a\udfff"])
def test_refused(value):
    """Empty ids, control characters and lone surrogates are refused."""
    with pytest.raises(InvalidId):
        encode_segment(value)


@pytest.mark.parametrize(("char", "encoded"), [("a", 1), ("/", 3), ("é", 6), ("😀", 12)])
def test_the_longest_id(char, encoded):
    """240 bytes once encoded are allowed, one more unit is not."""
    longest = char * (MAX_SEGMENT_BYTES // encoded)
    assert len(encode_segment(longest)) == MAX_SEGMENT_BYTES
    with pytest.raises(InvalidId):
        encode_segment(longest + char)


def test_a_reserved_escape_counts():
    """The escape of a leading dot counts towards the limit as well."""
    with pytest.raises(InvalidId):
        encode_segment("." + "a" * (MAX_SEGMENT_BYTES - 2))


@given(ids, ids)
def test_keys_parse_back(context_id, task_id):
    """task.json's and the pointer's keys lead back to their ids, and no other key is taken for one of them."""
    where = TaskRef(context_id, task_id)
    assert parse_task(task_key(where)) == where
    assert parse_pointer(pointer_key(task_id)) == task_id
    others = [context_key(context_id), workspace_key(where), heartbeat_key(task_id), task_key(where) + "x"]
    assert [parse_task(key) for key in (*others, pointer_key(task_id))] == [None] * 5
    assert [parse_pointer(key) for key in (*others, task_key(where))] == [None] * 5


@given(ids, ids)
def test_a_context_holds_its_own_keys_only(one, other):
    """The prefix of one context never matches a key of another."""
    key = task_key(TaskRef(other, "t"))
    assert key.startswith(context_prefix(one)) == (one == other)


@given(ids)
def test_no_task_takes_the_ledger_records_place(task_id):
    """A task called context.json or parts lies beside the ledger record, not over it."""
    directory = task_key(TaskRef("c", task_id)).removesuffix("task.json")
    assert directory != context_key("c") + "/"
    assert directory != "contexts/c/parts/"


@pytest.mark.parametrize(
    "key",
    [
        "contexts/%2e/t/task.json",
        "contexts/c/.hidden/task.json",
        "contexts/c/parts/task.json",
        "contexts/c//task.json",
        "contexts/c/t/x/task.json",
        "contexts/\ud800/t/task.json",
    ],
)
def test_a_foreign_key_is_nobodys_task(key):
    """A key that looks like a task's but that no id encodes to is passed over."""
    assert parse_task(key) is None


@given(ids, ids, ids, st.sets(st.sampled_from(["agent", "tenant", "owner"])))
def test_a_root_is_read_back_from_its_text_and_from_keys(agent, tenant, owner, which):
    """With or without slashes around it; what is below a root is below no other one."""
    names = {"agent": agent, "tenant": tenant, "owner": owner}
    root = root_of(**{kind: name for kind, name in names.items() if kind in which})
    assert parse_root(root) == parse_root(f"/{root}/") == root
    for key in (pointer_key(owner), context_key(tenant), workspace_key(TaskRef(agent, owner))):
        assert root_above(f"{root}/{key}" if root else key) == root
    assert callers_of(root) == tuple(names[kind] if kind in which else "" for kind in ("agent", "tenant", "owner"))


@pytest.mark.parametrize(
    "text",
    ["alice", "users", "users/", "users//", "users/a/b", "users/a/agents/b", "agents/a/agents/b", "agents//users/a"],
)
def test_what_is_no_root_is_refused(text):
    """Any other order, number or kind of segments."""
    with pytest.raises(InvalidId, match="in this order"):
        parse_root(text)


def test_a_root_is_written_as_it_is_stored():
    """An id that is not encoded is named in its encoded form."""
    with pytest.raises(InvalidId, match="with a%40b in place of a@b"):
        parse_root("users/a@b")


@given(ids)
def test_a_contexts_record_is_known_by_its_key(value):
    """And no other key is taken for one."""
    assert parse_context(context_key(value)) == value
    for key in (
        pointer_key(value),
        task_key(TaskRef(value, "t")),
        f"users/u/{context_key(value)}",
        heartbeat_key(value),
    ):
        assert parse_context(key) is None


@given(ids, ids, ids, st.integers(1, 2**70))
@example("c", "t", "owed", 1)
@example("c", "t", "owed/1", 1)
def test_configurations_and_kept_notices_are_told_apart(context_id, task_id, config_id, number):
    """Each is found again by its key, whatever a configuration is called, and neither is taken for the other."""
    ref = TaskRef(context_id, task_id)
    config, owed = push_config_key(ref, config_id), owed_key(ref, number)
    assert (parse_push_config(config), parse_owed(config)) == (config_id, None)
    assert (parse_push_config(owed), parse_owed(owed)) == (None, number)
    assert parse_task(config) is parse_task(owed) is None


@given(ids, st.one_of(st.just(""), ids))
def test_marks_name_root_and_task(task_id, owner):
    """Of the bucket's prefix itself and of a root below it."""
    root = root_of(owner=owner)
    assert parse_push_mark(push_mark_key(root, task_id)) == (root, task_id)
    assert parse_push_mark(heartbeat_key("h")) is None
