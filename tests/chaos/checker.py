"""Verifies the invariants of a run from what was committed to the bucket and what clients were told.

It imports nothing of a2a_gcs: it knows the layout and the meaning of metadata from the design
alone. `python -m tests.chaos.checker TRACE.json` checks a trace that a failed run has left behind.

    I1  at most one non-terminal task per context; a context changes hands only over an ended task
    I2  what was told is stored, and neither reverted nor lost: parked and terminal states, artifacts
    I3  every task.json has its pointer
    I4  a completed or parked task's archive is stored before the state that pins it
    I5  every task starts from the workspace of the last completed one
    I6  once the hosts are dead every context takes a new task in time
    I7  task.json never goes backwards; nothing rewrites an ended task, its archive, or a journal batch
    S   every stream of a task carries the same events in the same order, none missing, none twice
    R   a repeated message starts nothing twice, and is never told of a task that does not exist
    M   a Message is told only once its context is free
    N   nobody ends the task of a host that lives and renews
    A   an agent stops soon after its task was ended by somebody else
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.history import INTERRUPTED, TERMINAL, History, chunks_in, chunks_of, gap_in

FLUSH_RACE_SECONDS = 3.0
"""A batch that is stored this shortly before somebody else ends its task may miss the fold: the unflushed moment."""

UNFLUSHED_SECONDS = 8.0
"""What an agent has said this long ago, and goes on, is stored: a quarter of a second, and a request's retries."""

STOP_SECONDS = 12.0
"""What an agent may take to stop under chaos: a watch (1 s) whose request stalls, and the patience of the host."""

BLOCKED_SECONDS = 60.0 / 30.0
"""I6 in leases: nobody is blocked for more than 60 s of a lease of 30 s."""

SLACK_SECONDS = 15.0
"""What I6 allows besides: a busy machine, and one write a second to an object."""


@dataclass(frozen=True)
class Violation:
    rule: str
    where: str
    what: str

    def __str__(self):
        return f"{self.rule} {self.where}: {self.what}"


def check(trace, *, only=(), stop_seconds=STOP_SECONDS):
    """Every violation in a trace (`World.trace`), in no particular order; `only` some rules."""
    history = History(trace)
    told = Told(trace["calls"])
    found = itertools.chain(
        one_task_at_a_time(history),
        told_is_stored(history, told),
        stored_is_kept(history),
        artifacts_are_kept(history, told, trace),
        pointers(history),
        archives_before_states(history),
        resume_rule(history),
        contexts_are_free(history, trace),
        never_backwards(history),
        journals(history),
        streams(history, trace["calls"]),
        repeats(trace),
        messages(history, trace),
        healthy_runs(history, trace),
        agents_stop(history, trace, stop_seconds),
    )
    return [v for v in found if not only or v.rule in only]


class Told:
    """What clients were told of tasks, each with when the call was sent and when the answer came."""

    def __init__(self, calls):
        self.states = defaultdict(list)
        self.artifacts = defaultdict(list)
        for call in calls:
            for told in call["told"]:
                task = told.get("task")
                if task and told.get("state"):
                    self.states[task].append((told, call))
                if task and (told["kind"] == "artifact" or told.get("artifacts")):
                    self.artifacts[task].append((told, call))


# ---------------------------------------------------------------------- I1


def one_task_at_a_time(history):
    """I1, at every point of the history."""
    for context in history.contexts:
        yield from _hand_overs(history, context)
    alive = defaultdict(set)
    for record in sorted(itertools.chain(*history.tasks.values()), key=lambda r: r.seq):
        here = alive[record.context]
        (here.discard if record.terminal else here.add)(record.task)
        if len(here) > 1:
            yield Violation("I1", record.context, f"at #{record.seq} its tasks {sorted(here)} are all not ended")
    for task, records in history.tasks.items():
        for before, now in itertools.pairwise(records):
            if now.turn > before.turn and before.open:
                yield Violation("I1", task, f"turn {now.turn} was claimed at #{now.seq} over {before}")


def _hand_overs(history, context):
    """From one active task to the next: the one before has ended by then."""
    active = None
    for write in history.by_key[f"contexts/{context}/context.json"]:
        before, active = active, write.json.get("active")
        if before and active and before["taskId"] != active["taskId"]:
            ended = _last_before(history, before["taskId"], write.seq)
            if ended is None or not ended.terminal:
                state = ended or "no task.json"
                over = f"{active['taskId']} took over from {before['taskId']} ({state})"
                yield Violation("I1", context, f"at #{write.seq} {over}")


# ---------------------------------------------------------------------- I2


def told_is_stored(history, told):
    """Nobody hears of a parked or terminal state before it is stored, nor of another one afterwards."""
    for task, states in told.states.items():
        records = history.tasks.get(task, [])
        known = []
        for entry, call in sorted(states, key=lambda pair: pair[0]["at"]):
            state, at = entry["state"], entry["at"]
            if state in TERMINAL or state == "input-required":
                fits = [r for r in records if r.state == state and r.at <= at and _same_moment(r, entry)]
                if not fits:
                    yield Violation(
                        "I2", task, f"{call['kind']} on {call['host']} was told {state} before it was stored"
                    )
                    continue
                known.append((at, fits[-1]))
            yield from _never_older(task, entry, call, records, known)


def _same_moment(record, entry):
    return not entry.get("timestamp") or _millis(entry["timestamp"]) == _millis(record.timestamp)


def _millis(text):
    """A timestamp down to the milliseconds, whatever digits it is written with."""
    head, _, fraction = text.rstrip("Z").partition(".")
    return f"{head}.{fraction.ljust(3, '0')[:3]}"


def _never_older(task, entry, call, records, known):
    """A call that was sent after somebody was told of a state hears of nothing that came before it."""
    before = [record for at, record in known if at < call["sent"]]
    if not before:
        return
    newest = max(before, key=lambda r: r.seq)
    state = entry["state"]
    if newest.terminal and state != newest.state:
        yield Violation("I2", task, f"{call['kind']} on {call['host']} was told {state} after {newest.state}")
    if newest.terminal or state in TERMINAL:
        return
    turns = [r for r in records if r.at <= entry["at"] and r.turn > newest.turn]
    if newest.parked and not turns and state != newest.state:
        yield Violation("I2", task, f"{call['kind']} on {call['host']} was told {state} while {newest} was parked")


def stored_is_kept(history):
    """Ended tasks stay as they are; parked ones are answered or canceled, or fail once they have waited too long."""
    for task, records in history.tasks.items():
        for before, now in itertools.pairwise(records):
            if before.terminal:
                yield Violation("I2", task, f"{before} was overwritten by {now}")
            elif before.parked:
                late = 0 < before.patience <= now.at - before.at
                answered = now.turn > before.turn and now.open
                if not (answered or now.state == "canceled" or (now.state == "failed" and late)):
                    yield Violation("I2", task, f"{before} was parked, and became {now}")
            elif len(set(before.chunks) - set(now.chunks)):
                lost = sorted(set(before.chunks) - set(now.chunks))
                yield Violation("I2", task, f"{now} has lost {lost}, which {before} holds")
        for write in history.by_key[records[0].write.key]:
            if write.deleted:
                yield Violation("I2", task, f"task.json was deleted at #{write.seq}")


def artifacts_are_kept(history, told, trace):
    """Every chunk that somebody was told of is in the last record, but for the last moment of a run that was lost."""
    at_work = {(e["task"], e["run"]): e["at"] for e in trace["agents"]}
    for task, records in history.tasks.items():
        last = records[-1]
        for record in records:
            if problem := gap_in(record.chunks):
                yield Violation("I2", task, f"{record}: {problem}")
        if last.open:
            continue  # nobody has touched it since its host went
        wanted, durable = _first_told(told.artifacts.get(task, [])), history.durable(task)
        for chunk in sorted((wanted.keys() | durable.keys()) - set(last.chunks)):
            stored = durable.get(chunk)
            if stored is not None:
                excused = stored > last.at - FLUSH_RACE_SECONDS
            else:
                excused = at_work.get((task, chunk[0]), 0) < wanted[chunk] + UNFLUSHED_SECONDS
            if not (last.foreign and excused):
                when = "never stored" if stored is None else f"stored {last.at - stored:.1f} s before"
                yield Violation("I2", task, f"chunk {chunk} was told or {when}, and {last} does not hold it")


def _first_told(entries):
    """When somebody first heard of each chunk."""
    found = {}
    for entry, _ in entries:
        here = chunks_in(entry["text"]) if entry["kind"] == "artifact" else chunks_of(entry["artifacts"])
        for chunk in here:
            found[chunk] = min(found.get(chunk, entry["at"]), entry["at"])
    return found


# ---------------------------------------------------------------------- I3, I4, I5


def pointers(history):
    """I3: written before task.json, and there for as long as it."""
    for task, records in history.tasks.items():
        key, first = f"tasks/{task}/contextId.txt", records[0]
        pointer = history.at(key, first.seq)
        if pointer is None or pointer.text != records[0].context:
            what = "no pointer" if pointer is None else f"a pointer to {pointer.text}"
            yield Violation("I3", task, f"task.json was created at #{first.seq} with {what}")
        for write in history.by_key.get(key, []):
            if write.deleted and write.seq > first.seq:
                yield Violation("I3", task, f"its pointer was deleted at #{write.seq}")


def archives_before_states(history):
    """I4: what a state pins is stored by then, and live."""
    for task, records in history.tasks.items():
        for record in records:
            pinning = record.state == "completed" or (record.parked and record.state == "input-required")
            if not pinning:
                continue
            live = history.at(f"contexts/{record.context}/{task}/workspace.tar.gz", record.seq)
            if not record.pin:
                yield Violation("I4", task, f"{record} pins no workspace")
            elif live is None or live.generation != record.pin:
                is_there = "nothing" if live is None else f"generation {live.generation}"
                yield Violation("I4", task, f"{record} pins generation {record.pin}, and there is {is_there}")


def resume_rule(history):
    """I5: by context.json at every claim, and by what the agent found in its workspace."""
    for context in history.contexts:
        last, base = None, []
        bases, order = {}, []
        active = None
        for write in history.by_key[f"contexts/{context}/context.json"]:
            now = write.json.get("active")
            if now is None or now == active:
                active = now
                continue
            before = order[-1] if order else None
            if before and (ended := _last_before(history, before, write.seq)) and ended.state == "completed":
                last, base = ended, _expected(history, ended, bases[before])
            named = write.json.get("lastCompleted")
            if (named or {}).get("generation") != (last.pin if last else None):
                yield Violation(
                    "I5", context, f"{now['taskId']} was claimed at #{write.seq} to start from {named}, not {last}"
                )
            active = now
            order.append(now["taskId"])
            bases[now["taskId"]] = base
        for task in order:
            yield from _lineage(history, task, bases[task])


def _last_before(history, task, seq):
    return next((r for r in reversed(history.tasks.get(task, [])) if r.seq < seq), None)


def _expected(history, ended, base):
    archive = history.pinned(ended)
    runs = (archive.file("lineage.txt") or "").split().count(ended.task) if archive else 0
    return [*base, *[ended.task] * runs]


def _lineage(history, task, base):
    """What the agent found when it started, and what it left."""
    for record in history.tasks.get(task, []):
        for name, text in record.artifacts.items():
            if name.startswith("lineage-"):
                wanted = [*base, *[task] * int(name.removeprefix("lineage-"))]
                if text.split() != wanted:
                    yield Violation("I5", task, f"run {name[8:]} started from {text.split()}, not from {wanted}")
        if record.pin and not record.open and (archive := history.pinned(record)):
            lines = (archive.file("lineage.txt") or "").split()
            runs = len(lines) - len(base)
            if lines != [*base, *[task] * runs] or runs < 1:
                yield Violation("I5", task, f"the archive of {record} holds {lines}, not {base} and {task}")


# ---------------------------------------------------------------------- I6


def contexts_are_free(history, trace):
    """I6: a task of every context was accepted and completed soon after the end."""
    if "ended_at" not in trace:
        return
    limit = BLOCKED_SECONDS * trace["lease"] + SLACK_SECONDS
    for context in history.contexts:
        calls = [c for c in trace["calls"] if c["phase"] == "after" and c.get("context") == context]
        done = [
            told["at"]
            for c in calls
            if c["kind"] == "send" and not c.get("task")
            for told in c["told"]
            if told.get("state") == "completed"
        ]
        if not done or min(done) > trace["ended_at"] + limit:
            said = next((c["error"] or c["broken"] for c in reversed(calls) if c["error"] or c["broken"]), "nothing")
            yield Violation("I6", context, f"took no new task within {limit:.0f} s; it said last: {said}")


# ---------------------------------------------------------------------- I7


def never_backwards(history):
    """I7 for task.json and archives."""
    for task, records in history.tasks.items():
        for before, now in itertools.pairwise(records):
            if (now.turn, now.version) <= (before.turn, before.version):
                yield Violation("I7", task, f"{before} (seq {before.version}) became {now} (seq {now.version})")
            if now.owner != before.owner and now.turn != before.turn + 1:
                yield Violation("I7", task, f"{now} wrote into the turn of {before}")
        context = records[0].context
        for previous, write in itertools.pairwise([None, *history.archives(context, task)]):
            record = _last_before(history, task, write.seq)
            stored = previous.generation if previous and not previous.deleted else 0
            if record is None or record.state in ("failed", "canceled", "rejected"):
                continue
            if record.state == "completed":
                yield Violation("I7", task, f"its archive was written at #{write.seq}, after {record}")
            elif record.parked:
                yield Violation("I7", task, f"its archive was written at #{write.seq}, while it was parked: {record}")
            elif stored != record.pin and not _same_saver(previous, write):
                yield Violation(
                    "I7", task, f"its archive was written twice in turn {record.turn}, again at #{write.seq}"
                )


def _same_saver(previous, write):
    """A claim may save again over what it has saved itself."""
    saver = write.metadata.get("saved-by")
    return previous is not None and saver is not None and previous.metadata.get("saved-by") == saver


def journals(history):
    """I7 for batches: created once, in the turn that they are of, and never the place of an end."""
    for task, records in history.tasks.items():
        written = {}
        for number, write in history.batches(records[0].context, task):
            if write.deleted:
                continue
            if number in written:
                yield Violation("I7", task, f"batch {number} was written at #{written[number]} and at #{write.seq}")
            written[number] = write.seq
            turn, batch = divmod(number, 10**6)
            if turn < 1:
                yield Violation("I7", task, f"batch {number} is of no turn")
            end = next((r for r in records if r.turn == turn and not r.open), None)
            if end is not None and not end.foreign and batch > end.journal:
                yield Violation("I7", task, f"batch {number} came at #{write.seq}, after its turn ended with {end}")
            for event in write.json["events"]:
                state = event["event"].get("statusUpdate", {}).get("status", {}).get("state", "")
                if state.removeprefix("TASK_STATE_").lower() in TERMINAL | {"input_required"}:
                    yield Violation("I7", task, f"batch {number} holds {state}, which is not stored by then")


# ---------------------------------------------------------------------- S


def streams(history, calls):
    """Each stream by itself, against what was stored, and every two of a task against each other."""
    by_task = defaultdict(list)
    for call in calls:
        if call["kind"] in ("stream", "subscribe") and call["told"]:
            task = next((t["task"] for t in call["told"] if t.get("task")), None)
            if task:
                by_task[task].append(call)
    for task, followed in by_task.items():
        records = history.tasks.get(task, [])
        for call in followed:
            yield from _one_stream(task, call, records)
        for one, other in itertools.combinations(followed, 2):
            yield from _two_streams(task, *(_events(call, records) for call in (one, other)), (one, other))


def _one_stream(task, call, records):
    who = f"{call['kind']} on {call['host']}"
    seen = []
    for i, told in enumerate(call["told"]):
        if told["kind"] == "task":
            held = chunks_of(told["artifacts"] or {})
            if not (set(held) >= set(seen) or _of_lost_run(records)):
                yield Violation("S", task, f"{who} was sent {seen}, then a task with {held}")
            if i > 0 and not _may_be_whole(told, records):
                yield Violation("S", task, f"{who} was sent a whole task ({told['state']}) in place of its events")
            seen = held
        elif told["kind"] == "artifact":
            seen = seen + chunks_in(told["text"])
    if problem := gap_in(seen):
        yield Violation("S", task, f"{who}: {problem}")
    if call["ended"]:
        yield from _end_of_stream(task, call, records, seen)


def _end_of_stream(task, call, records, seen):
    """A stream that the server has closed in order ends with the end of a turn, and holds all of it."""
    who, last = f"{call['kind']} on {call['host']}", call["told"][-1]
    if last.get("state") not in TERMINAL | INTERRUPTED:
        yield Violation("S", task, f"{who} was closed in order without an end: {last}")
        return
    end = next((r for r in records if r.state == last["state"] and not r.open and _same_moment(r, last)), None)
    if end is None:
        return
    due = set(end.chunks)
    if call["told"][0]["kind"] != "task":  # the stream of an answer has its own turn alone
        due -= {c for r in records if r.turn < end.turn for c in r.chunks}
    if missing := sorted(due - set(seen)):
        yield Violation("S", task, f"{who} ended with {last['state']} and without {missing}")
    if not end.foreign and (extra := sorted(set(seen) - set(end.chunks))):
        yield Violation("S", task, f"{who} was sent {extra}, which {end} does not hold")


def _may_be_whole(told, records):
    """A stream may go over to the whole task only where a run was lost, or canceled, with which no event comes."""
    return told["state"] == "canceled" or (told["state"] in TERMINAL and _of_lost_run(records))


def _of_lost_run(records):
    return bool(records) and records[-1].foreign


def _two_streams(task, left, right, calls):
    """What both carry stands in one order, and nothing that one has in between is missing in the other."""
    where = " and ".join(f"{call['kind']} on {call['host']}" for call in calls)
    common = [e for e in left if e in set(right)]
    if [e for e in right if e in set(left)] != common:
        yield Violation("S", task, f"{where} disagree about the order of {common}")
    elif common:
        middle = [events[events.index(common[0]) : events.index(common[-1]) + 1] for events in (left, right)]
        if middle[0] != middle[1]:
            odd = sorted(set(middle[0]) ^ set(middle[1]))
            yield Violation("S", task, f"of {where} only one has {odd}")


def _events(call, records):
    """The events after the snapshot, by what tells them apart.

    Where somebody else has ended the task, what its host said after that, and had not heard of it, is left out: it
    is no part of the task, and I2 says how much of that there may be.
    """
    lost = records and records[-1].foreign
    found = []
    for told in call["told"]:
        if told["kind"] == "status" and told.get("timestamp"):
            found.append(("status", told["state"], _millis(told["timestamp"])))
        elif told["kind"] == "artifact" and not (lost and set(chunks_in(told["text"])) - set(records[-1].chunks)):
            found.append(("artifact", told["artifact"], told["text"]))
    return found


# ---------------------------------------------------------------------- R, M, N, A


def repeats(trace):
    """A message that is sent again starts at most one run, and a new task is never "not found"."""
    started = defaultdict(set)
    for entry in trace["agents"]:
        if entry["what"] == "start" and entry["run"] == 1 and entry.get("message"):
            started[entry["message"]].add(entry["task"])
    for message, tasks in started.items():
        if len(tasks) > 1:
            yield Violation("R", message, f"the message started the tasks {sorted(tasks)}")
    for call in trace["calls"]:
        if call["kind"] in ("send", "stream") and not call.get("task") and (call["error"] or {}).get("code") == -32001:
            yield Violation("R", call["message_id"], f"{call['kind']} on {call['host']} was told of a missing task")


def messages(history, trace):
    """A Message comes once the claim behind it is given back; no task comes of it afterwards."""
    runs = {e["message"]: e["task"] for e in trace["agents"] if e["what"] == "start" and e.get("message")}
    for call in trace["calls"]:
        for told in call["told"]:
            task = runs.get(call.get("message_id"))
            if told["kind"] != "message" or task is None:
                continue
            stored = [w for w in history.by_key[f"contexts/{call['context']}/context.json"] if w.at <= told["at"]]
            active = stored[-1].json.get("active") if stored else None
            if active and active["taskId"] == task:
                yield Violation("M", call["context"], f"a Message was told while {task} still held the context")
            if task in history.tasks:
                yield Violation("M", task, "a Message was told, and there is a task all the same")


def healthy_runs(history, trace):
    """A task whose agent runs, on a host whose heartbeat was renewed in time all along, is ended by nobody else."""
    runs = _runs(trace)
    for task, records in history.tasks.items():
        end = records[-1]
        if end.state != "failed" or not end.foreign or (records[-2:-1] and records[-2].parked):
            continue
        running = [r for r in runs.get(task, []) if r["from"] < end.at and r["to"] > end.at + 0.2]
        host = end.owner.rpartition("/")[0]
        if running and _renewed_in_time(history, host, running[0]["from"], end.at, trace["lease"]):
            yield Violation("N", task, f"{end}, while its agent ran on {running[0]['host']}, whose heartbeat was fresh")


def _runs(trace):
    found = defaultdict(list)
    for entry in trace["agents"]:
        if entry["what"] == "start":
            found[entry["task"]].append({**entry, "from": entry["at"], "to": entry["at"]})
        else:
            for run in found[entry["task"]]:
                if (run["host"], run["run"]) == (entry["host"], entry["run"]):
                    run["to"] = entry["at"]
    return found


def _renewed_in_time(history, host, since, until, lease):
    """Whether the host's heartbeat never came close to the age at which its claims lapse."""
    writes = history.by_key.get(f"hosts/{host}.json", [])
    if any(w.deleted for w in writes if w.at <= until):
        return False
    times = [w.at for w in writes]
    before = [t for t in times if t <= since]
    during = [t for t in times if since < t <= until]
    after = [t for t in times if t > until][:1]
    if not before or not after:
        return False
    points = [before[-1], *during, *after]
    return all(b - a < lease / 2 for a, b in itertools.pairwise(points))


def agents_stop(history, trace, seconds):
    """An agent whose task was ended under it does not go on, unless its host was suspended meanwhile."""
    frozen = _frozen(trace)
    for entry in trace["agents"]:
        if entry["what"] != "tick" or entry["task"] not in history.tasks:
            continue
        end = history.tasks[entry["task"]][-1]
        if not end.terminal or entry["at"] <= end.at + seconds:
            continue
        if not any(host == entry["host"] and a < entry["at"] and b > end.at - seconds for host, a, b in frozen):
            yield Violation(
                "A", entry["task"], f"its agent still works on {entry['host']} {entry['at'] - end.at:.1f} s after {end}"
            )
            return


def _frozen(trace):
    """Stretches in which a host was suspended or cut off, and a while after: (host, from, to)."""
    since, found = {}, []
    for event in trace["events"]:
        if event["what"] in ("stop", "cut"):
            since[event["host"]] = event["at"]
        elif event["what"] in ("cont", "heal", "kill", "ended") and event["host"] in since:
            found.append((event["host"], since.pop(event["host"]), event["at"] + STOP_SECONDS))
    return [*found, *((host, at, float("inf")) for host, at in since.items())]


def main():
    """Checks the trace that is named on the command line; status 1 if it shows a violation."""
    found = check(json.loads(Path(sys.argv[1]).read_text()))
    for violation in found:
        print(violation)  # noqa: T201 - what the command is for
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
