"""What a trace says, sorted: writes by object and by task, what clients were told. Imports nothing of a2a_gcs."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

TERMINAL = {"completed", "failed", "canceled", "rejected"}
INTERRUPTED = {"input-required", "auth-required"}
STRIDE = 2**32
_CHUNK = re.compile(r"\[(\d+)\.(\d+)\]")


@dataclass(frozen=True)
class Write:
    """One committed write; seq is its place in the history of the bucket."""

    seq: int
    at: float
    key: str
    generation: int
    deleted: bool
    metadata: dict
    raw: dict

    @cached_property
    def json(self):
        return json.loads(self.raw["body"])

    @property
    def text(self):
        return self.raw["body"]

    def file(self, name):
        """A file of an archive; None if it is not in it."""
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(self.raw["archive"])), mode="r:gz") as archive:
            try:
                return archive.extractfile(name).read().decode()
            except KeyError:
                return None


@dataclass(frozen=True)
class TaskWrite:
    """One committed task.json, by its metadata; what only the body tells is read when asked for."""

    write: Write
    context: str
    task: str

    @property
    def seq(self):
        return self.write.seq

    @property
    def at(self):
        return self.write.at

    @cached_property
    def state(self):
        return state_name(self.write.metadata.get("state", ""))

    @property
    def open(self):
        return self.write.metadata.get("open") == "1"

    @property
    def owner(self):
        return self.write.metadata.get("owner", "")

    @property
    def turn(self):
        return int(self.write.metadata.get("turn", "0"))

    @property
    def version(self):
        return int(self.write.metadata.get("seq", "0"))

    @property
    def journal(self):
        return int(self.write.metadata.get("journal", "0"))

    @property
    def patience(self):
        return int(self.write.metadata.get("patience", "0"))

    @property
    def pin(self):
        return int(self.write.metadata.get("pin-generation", "0"))

    @property
    def terminal(self):
        return self.state in TERMINAL

    @property
    def parked(self):
        return not self.terminal and not self.open

    @property
    def foreign(self):
        """Whether it was written by somebody who did not hold the turn: settled, or canceled from elsewhere."""
        return self.version // STRIDE > self.turn

    @property
    def body(self):
        return self.write.json

    @property
    def timestamp(self):
        return self.body.get("status", {}).get("timestamp")

    @cached_property
    def artifacts(self):
        return {a["artifactId"]: parts_text(a) for a in self.body.get("artifacts", [])}

    @cached_property
    def chunks(self):
        return chunks_of(self.artifacts)

    def __str__(self):
        flag = "open" if self.open else "closed"
        return f"#{self.seq} {self.state} turn {self.turn} {flag} by {self.owner or 'nobody'}"


class History:
    """The committed writes of one bucket, in their order."""

    def __init__(self, trace):
        self.writes = [
            Write(w["seq"], w["time"], w["key"], w["generation"], w["deleted"], w["metadata"], w)
            for w in trace["writes"]
        ]
        self.by_key = defaultdict(list)
        for write in self.writes:
            self.by_key[write.key].append(write)
        self.tasks = defaultdict(list)
        for write in self.writes:
            parts = write.key.split("/")
            if len(parts) == 4 and parts[0] == "contexts" and parts[3] == "task.json" and not write.deleted:
                self.tasks[parts[2]].append(TaskWrite(write, parts[1], parts[2]))
        self.contexts = [key.split("/")[1] for key in self.by_key if re.fullmatch(r"contexts/[^/]+/context\.json", key)]

    def archives(self, context, task):
        return self.by_key.get(f"contexts/{context}/{task}/workspace.tar.gz", [])

    def pinned(self, record):
        """The archive that a record pins; None if it was never written."""
        found = self.archives(record.context, record.task)
        return next((w for w in found if w.generation == record.pin and not w.deleted), None)

    def batches(self, context, task):
        """The journal of a task: (number, write), in the order of writing."""
        for key, writes in self.by_key.items():
            match = re.fullmatch(rf"contexts/{re.escape(context)}/{re.escape(task)}/(\d+)\.events\.json", key)
            if match:
                yield from ((int(match[1]), w) for w in writes)

    def at(self, key, seq):
        """What was stored under a key just before a write; None if nothing."""
        live = None
        for write in self.by_key.get(key, []):
            if write.seq >= seq:
                break
            live = None if write.deleted else write
        return live

    def durable(self, task):
        """When each chunk of a task was first stored, in a batch or in task.json."""
        found = {}
        for record in self.tasks.get(task, []):
            for chunk in record.chunks:
                found[chunk] = min(found.get(chunk, record.at), record.at)
        context = self.tasks[task][0].context if self.tasks.get(task) else ""
        for _, write in self.batches(context, task):
            if not write.deleted:
                for chunk in _CHUNK.findall(write.text):
                    key = tuple(map(int, chunk))
                    found[key] = min(found.get(key, write.at), write.at)
        return found


def state_name(raw):
    return raw.removeprefix("TASK_STATE_").lower().replace("_", "-")


def parts_text(holder):
    return "".join(part.get("text", "") for part in holder.get("parts", []))


def chunks_of(artifacts):
    """The numbered chunks in artifacts, in order: (run, i)."""
    return [
        tuple(map(int, chunk))
        for name in sorted(artifacts, key=_run_of)
        if name.startswith("chunks-")
        for chunk in _CHUNK.findall(artifacts[name])
    ]


def chunks_in(text):
    return [tuple(map(int, chunk)) for chunk in _CHUNK.findall(text)]


def _run_of(name):
    number = name.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, name)


def gap_in(chunks):
    """What is wrong with a sequence of chunks: lost, doubled or out of order. "" if nothing."""
    for before, here in zip([None, *chunks], chunks, strict=False):
        first = before is None or here[0] != before[0]
        wanted = (here[0], 1) if first else (before[0], before[1] + 1)
        if here != wanted:
            return f"{_show(wanted)} was due, {_show(here)} is there"
    return ""


def _show(chunk):
    return f"[{chunk[0]}.{chunk[1]}]"
