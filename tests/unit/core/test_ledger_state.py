"""Who may go on in a context, and from which workspace: pure functions, by example and against an oracle."""

import pytest
from a2a.types.a2a_pb2 import Message, Part, Role
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.layout import TaskRef
from a2a_gcs.ledger.state import Free, Runs, Waits, digest, remember, seen_before, standing
from a2a_gcs.records import Active, ContextRecord, LastCompleted, Pin, SeenMessage, TaskMeta

ENDED = ["COMPLETED", "FAILED", "CANCELED", "REJECTED"]
GOING = ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "UNSPECIFIED"]
OLD = LastCompleted(task_id="old", generation=1, crc32c="o")


def record(*, active=True, last=OLD, messages=()):
    holder = Active(task_id="new", owner="h/1") if active else None
    return ContextRecord(context_id="c", active=holder, last_completed=last, messages=messages)


def meta(state, *, turn_open=False, pin=None):
    return TaskMeta(owner="h/2", turn=1, open=turn_open, state=f"TASK_STATE_{state}", pin=pin)


def test_a_fresh_context_is_free():
    """Nothing was ever claimed: a task may start, from an empty workspace."""
    assert standing(ContextRecord(context_id="c"), None, "completed") == Free(None)


def test_a_released_context_is_free():
    """A context whose last claim was released starts from what completed before."""
    assert standing(record(active=False), None, "completed") == Free(OLD)


def test_a_claim_without_a_task_runs():
    """A claim that has saved nothing yet is its owner's, in the state that a client may be told."""
    assert standing(record(), None, "completed") == Runs("h/1", "TASK_STATE_SUBMITTED")


@pytest.mark.parametrize("state", GOING)
def test_an_open_turn_runs(state):
    """An open turn is judged by the owner of the task's record, which a further turn may have changed."""
    assert standing(record(), meta(state, turn_open=True), "completed") == Runs("h/2", f"TASK_STATE_{state}")


@pytest.mark.parametrize("state", GOING)
def test_a_task_that_is_not_open_waits(state):
    """Parked is a flag, not a state: whatever its state, a task that nobody runs waits (rule turnflag)."""
    assert standing(record(), meta(state), "completed") == Waits(f"TASK_STATE_{state}")


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("turn_open", [True, False])
def test_a_terminal_task_frees_its_context(state, turn_open):
    """The first terminal state counts, whatever the flag says."""
    assert isinstance(standing(record(), meta(state, turn_open=turn_open), "completed"), Free)


@pytest.mark.parametrize(
    ("state", "completed", "terminal"),
    [("COMPLETED", "new", "new"), ("FAILED", "old", "new"), ("REJECTED", "old", "new"), ("CANCELED", "old", "old")],
)
def test_the_resume_rule(state, completed, terminal):
    """Only COMPLETED is resumed from; resume_from=terminal adds FAILED and REJECTED, never CANCELED."""
    ended = meta(state, pin=Pin(generation=2, crc32c="n"))
    for resume_from, expected in (("completed", completed), ("terminal", terminal)):
        assert standing(record(), ended, resume_from).last.task_id == expected


@pytest.mark.parametrize("resume_from", ["completed", "terminal"])
@pytest.mark.parametrize("state", ENDED)
def test_an_end_without_a_snapshot(state, resume_from):
    """A task that ended without a pinned workspace leaves the one before it in place."""
    assert standing(record(), meta(state), resume_from) == Free(OLD)


pins = st.none() | st.builds(Pin, generation=st.integers(1, 9), crc32c=st.sampled_from("xy"))
ends = st.lists(st.tuples(st.sampled_from(ENDED), pins), max_size=12)


@given(ends, st.sampled_from(["completed", "terminal"]))
def test_any_history_of_a_context(history, resume_from):
    """Over any sequence of ended tasks each starts from the newest snapshot that counts, found by looking back."""
    current, ended = ContextRecord(context_id="c"), None
    for i, (state, pin) in enumerate([*history, ("COMPLETED", None)]):
        start = standing(current, ended, resume_from).last
        assert (start and (start.task_id, start.generation)) == _oracle(history[:i], resume_from)
        current = current.claimed(Active(task_id=str(i), owner="h/1"), start, None)
        ended = meta(state, pin=pin)


def _oracle(before, resume_from):
    counted = {"COMPLETED"} if resume_from == "completed" else {"COMPLETED", "FAILED", "REJECTED"}
    for i in reversed(range(len(before))):
        state, pin = before[i]
        if state in counted and pin is not None:
            return str(i), pin.generation
    return None


# ---------------------------------------------------------------- repeats


def said(text="hi", message_id="m", **more):
    return Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)], **more)


def test_a_repeat_is_the_same_id_and_content():
    """A message that started a task here is known again, also when the server's ids have been filled in since."""
    known = record(messages=(remember(said(), "t1"),))
    assert seen_before(known, said()) == TaskRef("c", "t1")
    assert seen_before(known, said(context_id="c", task_id="x")) == TaskRef("c", "t1")


@pytest.mark.parametrize("other", [said("other"), said(message_id="n"), said(reference_task_ids=["x"])], ids=str)
def test_what_is_no_repeat(other):
    """Another content under the same id, or the same content under another id, is another message."""
    assert seen_before(record(messages=(remember(said(), "t1"),)), other) is None


def test_messages_without_an_id_are_never_repeats():
    """Two equal messages that carry no id are two messages."""
    known = record(messages=(SeenMessage(id="", digest=digest(said(message_id="")), task_id="t1"),))
    assert seen_before(known, said(message_id="")) is None


def test_the_digest_does_not_depend_on_the_order_of_metadata():
    """Equal content has an equal digest, in whatever order its map was filled."""
    one, two = said(), said()
    one.metadata.update({"a": 1, "b": {"x": 1, "y": 2}})
    two.metadata.update({"b": {"y": 2, "x": 1}, "a": 1})
    assert digest(one) == digest(two)
