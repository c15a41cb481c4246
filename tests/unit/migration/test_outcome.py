"""What becomes of the tasks of a context: at most one goes on waiting, the rest is terminal, always the same."""

import subprocess
import sys

import hypothesis.strategies as st
from a2a.types.a2a_pb2 import Message, Part, Role, Task, TaskState, TaskStatus
from google.protobuf.json_format import ParseDict
from hypothesis import given

from a2a_gcs.migration.outcome import RAN, SUPERSEDED, body_of, migrated, planned, record_of
from a2a_gcs.migration.source import Entry
from a2a_gcs.records import Pin
from a2a_gcs.task_json import TERMINAL

WAITS = TaskState.TASK_STATE_INPUT_REQUIRED
COMPLETED = TaskState.TASK_STATE_COMPLETED
DUMPED = """
import hashlib
from a2a.types.a2a_pb2 import Task
from google.protobuf.json_format import ParseDict
from a2a_gcs.migration.outcome import body_of
print(hashlib.sha256(body_of(ParseDict({many}, Task()), {{}})).hexdigest())
"""


def entry(task_id, state, millis=0):
    return Entry(task_id=task_id, context_id="c", owner="", state=state, millis=millis)


def task(one):
    asked = Message(message_id="q", role=Role.ROLE_AGENT, parts=[Part(text="which?")])
    return Task(id=one.task_id, context_id="c", status=TaskStatus(state=one.state, message=asked))


entries = st.lists(
    st.tuples(st.sampled_from(TaskState.values()), st.integers(0, 3)).map(lambda pair: pair),
    min_size=1,
    max_size=8,
).map(lambda pairs: [entry(f"t{n}", state, millis) for n, (state, millis) in enumerate(pairs)])


@given(entries)
def test_at_most_the_newest_that_asks_is_not_terminal(found):
    plan = planned("", "c", found)
    after = {one.task_id: migrated(plan, one, task(one)).status.state for one in found}
    open_ = [name for name, state in after.items() if state not in TERMINAL]
    asking = sorted((one.millis, one.task_id) for one in found if one.state == WAITS)
    assert open_ == ([asking[-1][1]] if asking else [])
    for one in found:
        if one.state in TERMINAL:
            assert after[one.task_id] == one.state
    assert [one.task_id for one in plan.entries] == [name for _, name in sorted((o.millis, o.task_id) for o in found)]


@given(entries, st.data())
def test_the_record_names_what_waits_and_the_last_completed_workspace(found, data):
    plan = planned("", "c", found)
    kept = [one for one in plan.entries if data.draw(st.booleans())]
    stored = [(one, Pin(n + 1, "crc") if data.draw(st.booleans()) else None) for n, one in enumerate(kept)]
    record = record_of(plan, stored)
    good = [(one.task_id, pin.generation) for one, pin in stored if pin and one.state == COMPLETED]
    last = record.last_completed
    assert ((last.task_id, last.generation) if last else None) == (good[-1] if good else None)
    waiting = plan.waiting if plan.waiting in {one.task_id for one in kept} else None
    assert (record.active.task_id if record.active else None) == waiting


def test_a_failed_task_keeps_its_last_words_and_says_why():
    old, new = entry("old", WAITS, 1), entry("new", WAITS, 2)
    runs = entry("runs", TaskState.TASK_STATE_WORKING, 3)
    plan = planned("", "c", [runs, new, old])
    for one, why in ((old, SUPERSEDED), (runs, RAN)):
        after = migrated(plan, one, task(one))
        assert after.status.state == TaskState.TASK_STATE_FAILED
        assert after.status.message.parts[0].text == why
        assert [message.parts[0].text for message in after.history] == ["which?"]
        assert after == migrated(plan, one, task(one))
    assert migrated(plan, new, task(new)) == task(new)


def test_a_body_is_the_same_in_every_process():
    many = {"id": "t", "contextId": "c", "metadata": {f"k{n}": {"a": 1, "b": {"c": 2, "d": 3}} for n in range(20)}}
    script = DUMPED.format(many=many)
    bodies = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(bodies) == 1
    body = body_of(ParseDict(many, Task()), {"later": {"z": 1, "a": 2}}).decode()
    assert body.index('"id"') < body.index('"contextId"') < body.index('"metadata"') < body.index('"later"')
    assert body.index('"z"') < body.index('"a": 2')
