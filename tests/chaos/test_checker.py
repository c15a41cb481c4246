"""The checker against histories made by hand: what it must flag, and what it must not."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import checker, history
from tests.chaos.checker import check
from tests.chaos.made_up import CONTEXT, MadeUp, chunk, status, whole

STAMP = "2030-01-01T00:00:00.123Z"


@pytest.mark.parametrize("module", [checker, history])
def test_the_checker_imports_nothing_of_the_product(module):
    """A checker that shared code with the product would share its mistakes."""
    tree = ast.parse(Path(module.__file__).read_text())
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in names if name.split(".")[0] in ("a2a_gcs", "a2a")]
    code = f"import sys, {module.__name__}; print([m for m in sys.modules if m.split('.')[0] in ('a2a_gcs', 'a2a')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------- what is in order


def tasks_in_a_row(made):
    made.run("t1", chunks=3)
    made.run("t2", state="failed")
    made.run("t3")
    made.call("get", whole("t1", "completed", chunks=3))


def two_turns(made):
    made.park("t1", chunks=2)
    made.task("t1", "input-required", turn=2, opened=True, owner="i/1", chunks=2, pin=made.writes[-1]["generation"] - 1)
    made.task("t1", "working", turn=2, owner="i/1", chunks=2, pin=made.writes[-2]["generation"] - 1)
    pin = made.archive("t1", ["t1", "t1"])
    made.task("t1", "completed", turn=2, owner="i/1", chunks=2, pin=pin)


def released_claim(made):
    made.claim("t1")
    made.pointer("t1")
    made.release()
    made.delete("tasks/t1/contextId.txt")
    made.agent("start", "t1", message="m")
    made.call("send", {"kind": "message", "text": "hi"})
    made.run("t2")


def settled_after_death(made):
    made.begin("t1")
    made.batch("t1", 1000001, events=[_artifact(1)])
    made.wait(10).task("t1", "failed", foreign=True, chunks=1)
    made.run("t2", "i/1")


def unflushed_moment_lost(made):
    made.begin("t1")
    made.call("stream", whole("t1", "working"), chunk("t1", 1), chunk("t1", 2), ended=False)
    made.task("t1", "canceled", foreign=True, opened=False)


def overdue(made):
    made.park("t1", patience=5)
    made.wait(6).task("t1", "failed", foreign=True, pin=0)


def saved_again_by_the_same_claim(made):
    made.begin("t1")
    made.archive("t1", saver="h/1")
    made.task("t1", "completed", pin=made.archive("t1", saver="h/1"))


def two_subscribers(made):
    made.begin("t1")
    first = made.call("stream", whole("t1", "working"), *(chunk("t1", i) for i in (1, 2, 3)), ended=False)
    pin = made.archive("t1")
    made.task("t1", "completed", chunks=3, pin=pin, stamp=STAMP)
    first["told"].append({"at": made.now + 0.1, **status("t1", "completed", STAMP)})
    first["ended"] = True
    made.call(
        "subscribe", whole("t1", "working", chunks=1), chunk("t1", 2), chunk("t1", 3), status("t1", "completed", STAMP)
    )


def said_after_the_cancel(made):
    made.begin("t1")
    here = made.call("stream", whole("t1", "working"), chunk("t1", 1), chunk("t1", 2), ended=False)
    made.task("t1", "canceled", foreign=True, opened=False, chunks=1, stamp=STAMP)
    here["told"].append({"at": made.now + 0.1, **status("t1", "canceled", STAMP)})
    made.call("subscribe", whole("t1", "working"), chunk("t1", 1), status("t1", "canceled", STAMP))


def agent_stops_in_time(made):
    made.begin("t1")
    made.agent("start", "t1")
    made.task("t1", "canceled", foreign=True, opened=False)
    made.agent("tick", "t1")


def repeat_of_a_surrendered_start(made):
    made.run("t1")
    made.agent("start", "t1", message="m")
    made.call("send", whole("t1", "completed"))
    made.call("send", whole("t1", "completed"))


@pytest.mark.parametrize(
    "tell",
    [
        tasks_in_a_row, two_turns, released_claim, settled_after_death, unflushed_moment_lost, overdue,
        saved_again_by_the_same_claim, said_after_the_cancel,
        two_subscribers, agent_stops_in_time, repeat_of_a_surrendered_start,
    ],
)  # fmt: skip
def test_what_is_in_order_is_not_flagged(tell):
    """The checker says nothing of a history that keeps the rules."""
    made = MadeUp()
    tell(made)
    assert check(made.trace()) == []


# ---------------------------------------------------------------------- what is not


def i1_two_at_once(made):
    made.begin("t1")
    made.begin("t2", "i/1")


def i1_taken_over_without_a_tombstone(made):
    made.claim("t1")
    made.claim("t2", "i/1")


def i1_turn_over_an_open_turn(made):
    made.begin("t1")
    made.task("t1", "working", turn=2, owner="i/1")


def i2_told_before_stored(made):
    made.begin("t1")
    made.call("send", whole("t1", "completed"))
    made.task("t1", "completed", pin=made.archive("t1"))


def i2_never_stored(made):
    made.begin("t1")
    made.call("get", whole("t1", "canceled"))


def i2_other_moment(made):
    made.begin("t1")
    made.task("t1", "completed", pin=made.archive("t1"), stamp=STAMP)
    made.call("get", whole("t1", "completed", stamp="2030-01-01T00:00:00.124Z"))


def i2_terminal_reverted(made):
    made.run("t1")
    made.task("t1", "working", turn=2)


def i2_read_goes_back(made):
    made.run("t1")
    made.call("get", whole("t1", "completed"))
    made.wait(1).call("get", whole("t1", "working"))


def i2_parked_read_as_running(made):
    made.park("t1")
    made.call("get", whole("t1", "input-required"))
    made.wait(1).call("get", whole("t1", "working"))


def i2_parked_task_settled(made):
    made.park("t1")
    made.task("t1", "failed", foreign=True)


def i2_stored_chunk_lost(made):
    made.begin("t1")
    made.task("t1", "working", chunks=3)
    made.task("t1", "working", chunks=2)


def i2_told_chunk_lost(made):
    made.begin("t1")
    made.call("stream", whole("t1", "working"), chunk("t1", 1), chunk("t1", 2), ended=False)
    made.task("t1", "completed", chunks=1, pin=made.archive("t1"))


def i2_journaled_chunk_lost(made):
    made.begin("t1")
    made.batch("t1", 1000001, events=[_artifact(1)])
    made.wait(5).task("t1", "failed", foreign=True)


def i2_told_chunk_never_stored(made):
    made.begin("t1")
    made.agent("start", "t1")
    made.call("stream", whole("t1", "working"), chunk("t1", 1), ended=False)
    made.wait(10).agent("tick", "t1")
    made.task("t1", "failed", foreign=True)


def i2_chunk_doubled(made):
    made.begin("t1")
    made.task("t1", "completed", pin=made.archive("t1"), artifacts={"chunks-1": "[1.1][1.1]"})


def i2_record_deleted(made):
    made.run("t1")
    made.delete(f"contexts/{CONTEXT}/t1/task.json")


def i3_no_pointer(made):
    made.claim("t1")
    made.task("t1", "working")


def i3_pointer_late(made):
    made.claim("t1")
    made.task("t1", "working")
    made.pointer("t1")


def i3_pointer_deleted(made):
    made.run("t1")
    made.delete("tasks/t1/contextId.txt")


def i4_state_before_archive(made):
    made.begin("t1")
    made.task("t1", "completed", pin=104)
    made.archive("t1")


def i4_nothing_pinned(made):
    made.begin("t1")
    made.archive("t1")
    made.task("t1", "completed")


def i4_parked_on_another_generation(made):
    made.begin("t1")
    pin = made.archive("t1")
    made.task("t1", "input-required", pin=pin + 7)


def i5_from_a_failed_one(made):
    made.run("t1")
    pin = made.run("t2", state="failed")
    made.claim("t3", last={"taskId": "t2", "generation": pin})


def i5_from_nothing(made):
    made.run("t1")
    made.claim("t2", last=None)


def i5_agent_found_another_workspace(made):
    made.run("t1")
    made.begin("t2")
    pin = made.archive("t2", ["t2"])
    made.task("t2", "completed", pin=pin, artifacts={"lineage-1": "t2"})


def i5_archive_of_another_run(made):
    made.run("t1")
    made.begin("t2")
    made.task("t2", "completed", pin=made.archive("t2", ["t1", "t9", "t2"]), artifacts={"lineage-1": "t1 t2"})


def i6_blocked(made):
    made.run("t1")
    made.notes["ended_at"] = made.now
    made.call("send", error={"code": -32004, "data": {}, "message": "busy"}, phase="after")


def i6_too_late(made):
    made.run("t1")
    made.notes["ended_at"] = made.now
    made.wait(60).run("t2")
    made.call("send", whole("t2", "completed"), phase="after")


def i7_version_goes_back(made):
    made.begin("t1")
    made.task("t1", "working", seq=2**32)


def i7_foreign_owner(made):
    made.begin("t1")
    made.task("t1", "working", owner="i/1")


def i7_archive_after_completed(made):
    made.run("t1")
    made.archive("t1")


def i7_archive_while_parked(made):
    made.park("t1")
    made.archive("t1")


def i7_archive_twice(made):
    made.begin("t1")
    made.archive("t1")
    made.archive("t1")


def i7_archive_of_two_claims(made):
    made.begin("t1")
    made.archive("t1", saver="h/1")
    made.archive("t1", saver="i/1")


def i7_batch_twice(made):
    made.begin("t1")
    made.batch("t1", 1000001)
    made.batch("t1", 1000001)


def i7_batch_after_the_end(made):
    made.run("t1")
    made.batch("t1", 1000001)


def i7_end_in_a_batch(made):
    made.begin("t1")
    made.batch("t1", 1000001, events=[{"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}}])


def i7_batch_of_no_turn(made):
    made.begin("t1")
    made.batch("t1", 1)


def s_gap(made):
    made.begin("t1")
    made.call("stream", whole("t1", "working"), chunk("t1", 1), chunk("t1", 3), ended=False)


def s_twice(made):
    made.begin("t1")
    made.call("subscribe", whole("t1", "working", chunks=2), chunk("t1", 2), ended=False)


def s_end_without_the_last_chunk(made):
    made.begin("t1")
    made.task("t1", "completed", chunks=2, pin=made.archive("t1"))
    made.call("subscribe", whole("t1", "working", chunks=1), status("t1", "completed"))


def s_more_than_is_stored(made):
    made.begin("t1")
    made.task("t1", "completed", chunks=1, pin=made.archive("t1"))
    made.call("subscribe", whole("t1", "working", chunks=1), chunk("t1", 2), status("t1", "completed"))


def s_closed_without_an_end(made):
    made.begin("t1")
    made.call("subscribe", whole("t1", "working"), chunk("t1", 1))


def s_another_order(made):
    made.begin("t1")
    events = [status("t1", "working", STAMP), chunk("t1", 1)]
    made.call("subscribe", whole("t1", "working"), *events, ended=False)
    made.call("subscribe", whole("t1", "working"), *reversed(events), ended=False, host="b")


def s_only_one_has_it(made):
    made.begin("t1")
    between = status("t1", "working", STAMP)
    made.call("subscribe", whole("t1", "working"), chunk("t1", 1), between, chunk("t1", 2), ended=False)
    made.call("subscribe", whole("t1", "working"), chunk("t1", 1), chunk("t1", 2), ended=False, host="b")


def s_whole_task_in_the_middle(made):
    made.begin("t1")
    made.call("subscribe", whole("t1", "working"), whole("t1", "working", chunks=2), ended=False)


def s_whole_task_at_the_end(made):
    made.begin("t1")
    made.task("t1", "completed", chunks=2, pin=made.archive("t1"))
    made.call("subscribe", whole("t1", "working"), whole("t1", "completed", chunks=2))


def r_started_twice(made):
    made.agent("start", "t1", message="m")
    made.agent("start", "t2", message="m")


def r_missing_task(made):
    made.call("send", error={"code": -32001, "data": {}, "message": "not found"})


def m_context_not_free(made):
    made.claim("t1")
    made.agent("start", "t1", message="m")
    made.call("send", {"kind": "message", "text": "hi"})


def m_task_after_all(made):
    made.claim("t1")
    made.agent("start", "t1", message="m")
    made.release()
    made.call("send", {"kind": "message", "text": "hi"})
    made.pointer("t1")
    made.task("t1", "failed", foreign=True)


def n_healthy_run_killed(made):
    made.notes["lease"] = 8
    made.begin("t1")
    made.beat()
    made.agent("start", "t1")
    made.task("t1", "failed", foreign=True)
    made.beat()
    made.agent("tick", "t1")


def a_goes_on(made):
    made.begin("t1")
    made.agent("start", "t1")
    made.task("t1", "canceled", foreign=True, opened=False)
    made.wait(20).agent("tick", "t1")


WRONG = [function for name, function in list(globals().items()) if re.match(r"(i[1-7]|[srmna])_", name)]


@pytest.mark.parametrize("tell", WRONG)
def test_what_breaks_a_rule_is_flagged_by_its_name(tell):
    """Every rule has histories that break it, and the checker names the rule."""
    made = MadeUp()
    tell(made)
    assert tell.__name__.partition("_")[0].upper() in {v.rule for v in check(made.trace())}


def test_every_rule_is_tried():
    """No rule of the checker is without a history that breaks it."""
    ruled = {line.split()[0] for line in checker.__doc__.splitlines() if line.startswith("    ") and line.strip()}
    assert {tell.__name__.partition("_")[0].upper() for tell in WRONG} == ruled


def test_a_trace_from_a_file(tmp_path):
    """`python -m tests.chaos.checker TRACE` prints the violations and ends with 1, or with 0 and nothing."""
    made = MadeUp()
    made.run("t1")
    good = tmp_path / "good.json"
    good.write_text(json.dumps(made.trace()))
    made.delete("tasks/t1/contextId.txt")
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(made.trace()))
    runs = [
        subprocess.run([sys.executable, "-m", "tests.chaos.checker", path], capture_output=True, text=True, check=False)
        for path in (good, bad)
    ]
    assert [(run.returncode, run.stdout.count("\n")) for run in runs] == [(0, 0), (1, 1)]
    assert runs[1].stdout.startswith("I3 t1: ")


def _artifact(i):
    return {"artifactUpdate": {"artifact": {"artifactId": "chunks-1", "parts": [{"text": f"[1.{i}]"}]}}}
