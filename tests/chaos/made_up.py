"""Traces made by hand, a write a call, for the tests of the checker.

made = MadeUp()
made.run("t1", chunks=3)                  # a whole task, from its claim to its end
made.claim("t2"); made.pointer("t2"); made.task("t2", "working")
made.trace()
"""

from __future__ import annotations

import base64
import io
import json
import tarfile

CONTEXT = "ctx"
STRIDE = 2**32


class MadeUp:
    """A history that grows by the calls; a second passes with each."""

    def __init__(self):
        self.now = 1000.0
        self.writes, self.calls, self.agents, self.events = [], [], [], []
        self.notes = {}
        self.lines = []
        self.last = None
        self._seqs = {}

    def trace(self):
        return {
            "lease": 4, "writes": self.writes, "calls": self.calls, "agents": self.agents, "events": self.events,
            **self.notes,
        }  # fmt: skip

    def wait(self, seconds):
        self.now += seconds
        return self

    # ------------------------------------------------------------------ writes

    def put(self, key, body="", *, metadata=None, archive=None, deleted=False):
        self.now += 1.0
        write = {
            "seq": len(self.writes) + 1, "time": self.now, "key": key, "generation": 100 + len(self.writes),
            "deleted": deleted, "metadata": metadata or {},
        }  # fmt: skip
        if not deleted:
            write |= {"archive": archive} if archive is not None else {"body": body}
        self.writes.append(write)
        return write["generation"]

    def delete(self, key):
        return self.put(key, deleted=True)

    def beat(self, host="h", *, every=1.0, times=1):
        for _ in range(times):
            self.now += every - 1.0
            self.put(f"hosts/{host}.json", "{}")

    def claim(self, task, owner="h/1", *, last="latest"):
        body = {"active": {"taskId": task, "owner": owner}, "lastCompleted": self.last if last == "latest" else last}
        return self.put(f"contexts/{CONTEXT}/context.json", json.dumps(body))

    def release(self):
        return self.put(f"contexts/{CONTEXT}/context.json", json.dumps({"active": None, "lastCompleted": self.last}))

    def pointer(self, task):
        return self.put(f"tasks/{task}/contextId.txt", CONTEXT)

    def task(
        self, task, state, *, turn=1, opened=None, owner="h/1", chunks=0, run=1, pin=0, journal=0, foreign=False,
        patience=0, seq=None, artifacts=None, stamp=None,
    ):  # fmt: skip
        opened = state == "working" if opened is None else opened
        seq = seq or (turn + 1 if foreign else turn) * STRIDE + self._seqs.setdefault(task, 0) + 1
        self._seqs[task] += 1
        held = {f"chunks-{run}": shown(run, chunks)} if chunks else {}
        body = {
            "id": task,
            "status": {"state": f"TASK_STATE_{_name(state)}", "timestamp": stamp or self.stamp()},
            "artifacts": [
                {"artifactId": name, "parts": [{"text": text}]} for name, text in {**held, **(artifacts or {})}.items()
            ],
        }
        metadata = {
            "state": f"TASK_STATE_{_name(state)}", "owner": owner, "turn": str(turn), "open": "1" if opened else "0",
            "seq": str(seq), "journal": str(journal), "pin-generation": str(pin), "patience": str(patience),
        }  # fmt: skip
        return self.put(f"contexts/{CONTEXT}/{task}/task.json", json.dumps(body), metadata=metadata)

    def archive(self, task, lines=None, *, saver=None):
        archive = packed([*self.lines, task] if lines is None else lines)
        metadata = {"saved-by": saver} if saver else {}
        return self.put(f"contexts/{CONTEXT}/{task}/workspace.tar.gz", archive=archive, metadata=metadata)

    def batch(self, task, number, *, events=()):
        body = {"events": [{"seq": 1, "event": event} for event in events]}
        return self.put(f"contexts/{CONTEXT}/{task}/{number}.events.json", json.dumps(body))

    def begin(self, task, owner="h/1"):
        self.claim(task, owner)
        self.pointer(task)
        self.task(task, "working", owner=owner)

    def run(self, task, owner="h/1", *, state="completed", chunks=0):
        """A whole task; the next one starts from it if it completes. The generation of its archive."""
        self.begin(task, owner)
        pin = self.archive(task)
        lineage = {"lineage-1": " ".join([*self.lines, task])}
        self.task(task, state, owner=owner, chunks=chunks, pin=pin, artifacts=lineage)
        if state == "completed":
            self.lines.append(task)
            self.last = {"taskId": task, "generation": pin}
        return pin

    def park(self, task, owner="h/1", **options):
        self.begin(task, owner)
        pin = self.archive(task)
        self.task(task, "input-required", owner=owner, pin=pin, **options)
        return pin

    # ------------------------------------------------------------------ what clients were told

    def stamp(self):
        return f"2030-01-01T00:00:{self.now:012.6f}Z"

    def call(self, kind="get", *told, host="a", ended=True, error=None, sent=None, **asked):
        """A call that was told these things, a tenth of a second apart."""
        call = {
            "kind": kind, "host": host, "phase": "run", "sent": self.now if sent is None else sent, "told": [],
            "error": error, "broken": None, "ended": ended and error is None, "left": False, "context": CONTEXT,
            "task": None, "message_id": "m", "text": "work 1", **asked,
        }  # fmt: skip
        for one in told:
            self.now += 0.1
            call["told"].append({"at": self.now, **one})
        call["done"] = self.now
        self.calls.append(call)
        return call

    def agent(self, what, task, *, host="a", run=1, **more):
        self.now += 0.1
        self.agents.append({"at": self.now, "what": what, "task": task, "host": host, "run": run, **more})


def whole(task, state, *, chunks=0, run=1, stamp=None):
    held = {f"chunks-{run}": shown(run, chunks)} if chunks else {}
    return {"kind": "task", "task": task, "context": CONTEXT, "state": state, "timestamp": stamp, "artifacts": held}


def status(task, state, stamp=None):
    return {"kind": "status", "task": task, "state": state, "timestamp": stamp}


def chunk(task, i, run=1):
    return {"kind": "artifact", "task": task, "artifact": f"chunks-{run}", "append": i > 1, "text": f"[{run}.{i}]"}


def shown(run, count):
    return "".join(f"[{run}.{i}]" for i in range(1, count + 1))


def packed(lines):
    """An archive that holds a lineage."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("lineage.txt")
        text = "".join(f"{line}\n" for line in lines).encode()
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return base64.b64encode(out.getvalue()).decode()


def _name(state):
    return state.upper().replace("-", "_")
