"""What is stored beside the A2A Task: the JSON records and task.json's metadata (service/docs/bucket.md); pure.

Every record carries a schema version. Fields that this version does not know
are kept and written back, so that two releases can share a bucket. The schema
changes only when an earlier release would misread a record: such a one refuses
it, and never writes over it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from a2a_gcs.errors import CorruptRecord

SCHEMA = 1
REMEMBERED_MESSAGES = 32
"""How many message ids a context remembers, for recognising repeats (service/docs/limits.md)."""

_EMPTY = "empty"

START_FROM = "a2a-gcs/startFrom"
"""Key in a message's metadata: the id of an earlier task of the same context whose workspace to start from."""

REMEMBERED_TURNS = 16
"""Of how many turns a task's metadata tells when they ran: the first one, and the latest."""

MIGRATING = "migrating"
"""Metadata name of a context.json that no host can read on purpose: `a2a-gcs migrate --from` is not done with it."""

TURN_STRIDE = 2**32
"""seq = turn * 2^32 + k: a later turn is always newer, whoever runs it."""

_LAST_MILLIS = 253_402_300_799_999
"""The end of the year 9999 in Unix milliseconds, which is where dates end."""


class Record(BaseModel):
    """A JSON record: camelCase on disk, unknown fields kept."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True)

    @classmethod
    def parse(cls, key: str, body: bytes) -> Self:
        """Reads a record. Raises CorruptRecord, also where a later release has changed what it means."""
        try:
            record = cls.model_validate_json(body)
        except ValidationError as e:
            _refuse_newer(key, _schema_of(body))  # a record that cannot be parsed for that reason is not damaged
            raise CorruptRecord(key, e) from e
        _refuse_newer(key, getattr(record, "schema_version", SCHEMA))
        return record

    def to_bytes(self) -> bytes:
        return self.model_dump_json(by_alias=True, indent=2).encode() + b"\n"


class Owner(Record):
    """Who holds a claim: the n-th claim of one host process. Written `<host>/<n>`."""

    host: str
    n: int

    def __str__(self) -> str:
        return f"{self.host}/{self.n}"

    @classmethod
    def from_text(cls, text: str) -> Owner | None:
        host, _, n = text.rpartition("/")
        return cls(host=host, n=int(n)) if host and n.isdecimal() else None


class Ran(NamedTuple):
    """When one turn of a task ran, in Unix milliseconds; `until` is 0 while it runs. Written `<since>+<length>`."""

    since: int
    until: int = 0

    def __str__(self) -> str:
        return f"{self.since}+{self.until - self.since}" if self.until else str(self.since)


def parse_turns(text: str) -> tuple[Ran, ...]:
    """Reads what `TaskMeta.turns` is written as; nothing of it where any of it is not that.

    Nothing is decided by it, so one that is damaged does not hide its task, as a number does that the ledger needs.
    """
    parts = [one.partition("+") for one in text.split(",") if one]
    try:
        turns = tuple(Ran(int(since), int(since) + int(length) if plus else 0) for since, plus, length in parts)
    except ValueError:
        return ()
    known = all(0 < since <= until <= _LAST_MILLIS for since, until in ((r.since, r.until or r.since) for r in turns))
    return turns if known else ()


@dataclass(frozen=True, slots=True)
class Pin:
    """A snapshot by the very bytes that were written.

    Attributes:
        generation: Version of the workspace.tar.gz object.
        crc32c: Its checksum, as in `ObjectInfo.crc32c`.
    """

    generation: int
    crc32c: str


@dataclass(frozen=True, slots=True)
class Base:
    """The workspace that a task started from.

    A generation is not kept, as it changes when an archive moves; its bytes do not.

    Attributes:
        task_id: Whose it was; empty for an empty workspace.
        crc32c: Of that archive.
    """

    task_id: str = ""
    crc32c: str = ""

    @classmethod
    def from_text(cls, text: str) -> Base | None:
        """As in metadata; None where nothing was recorded. Raises ValueError."""
        if text in {"", _EMPTY}:
            return cls() if text else None
        task_id, crc32c = text.split(" ")
        return cls(unquote(task_id, errors="strict"), crc32c)

    def __str__(self) -> str:
        return f"{quote(self.task_id, safe='')} {self.crc32c}" if self.task_id else _EMPTY


class LastCompleted(Record):
    """The snapshot that the context's next task starts from, and whose it is."""

    task_id: str
    generation: int
    crc32c: str = Field(alias="crc32c")  # to_camel would make it crc32C

    @property
    def pin(self) -> Pin:
        return Pin(generation=self.generation, crc32c=self.crc32c)


class Active(Record):
    """The task that a context's newest claim is for."""

    task_id: str
    owner: str


class SeenMessage(Record):
    """A message that started a task: its id, a digest of its content, and the task."""

    id: str
    digest: str
    task_id: str


class ContextRecord(Record):
    """context.json: the ledger record of one context. Never deleted while its context lives."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    context_id: str
    epoch: int = 0
    active: Active | None = None
    last_completed: LastCompleted | None = None
    messages: tuple[SeenMessage, ...] = ()
    removing: int | None = None

    @property
    def being_removed(self) -> bool:
        """Somebody removes what it held, and nobody has claimed it since; a claim begins anew all the same."""
        return self.removing == self.epoch and self.active is None

    def emptied(self) -> ContextRecord:
        """The record once it is decided that the context goes: what it names is as good as gone."""
        changes = {"active": None, "last_completed": None, "messages": ()}
        return self.model_copy(update={"epoch": self.epoch + 1, "removing": self.epoch + 1, **changes})

    def claimed(self, active: Active, last: LastCompleted | None, message: SeenMessage | None) -> ContextRecord:
        """The record once a new task has claimed the context."""
        seen = (*self.messages, message) if message else self.messages
        return self.model_copy(
            update={
                "epoch": self.epoch + 1,
                "active": active,
                "last_completed": last,
                "messages": seen[-REMEMBERED_MESSAGES:],
            }
        )

    def repinned(self, old: Pin, new: Pin) -> ContextRecord:
        """The record once the archive of its last completed task has moved; a pin of anything else stays as it is."""
        if self.last_completed is None or self.last_completed.pin != old:
            return self
        moved = self.last_completed.model_copy(update={"generation": new.generation, "crc32c": new.crc32c})
        return self.model_copy(update={"last_completed": moved})

    def released(self) -> ContextRecord:
        """The record once the active claim has ended without a task."""
        gone = self.active.task_id if self.active else None
        return self.model_copy(
            update={
                "epoch": self.epoch + 1,
                "active": None,
                "messages": tuple(m for m in self.messages if m.task_id != gone),
            }
        )


class OpenClaim(Record):
    """A claim on a heartbeat's list: its number, and the task that a sweep has to end if the host dies."""

    n: int
    context_id: str
    task_id: str
    root: str = ""


class HeartbeatRecord(Record):
    """hosts/<host>.json: which claims a living host process still holds.

    Attributes:
        lease_seconds: Age at which this heartbeat means that its host is dead.
        next: Number that the process gives to its next claim.
        open: Numbers below `next` whose outcome is not durable yet.
        claims: What they are for; a hint for the sweep, which decides nothing.
    """

    schema_version: int = Field(default=SCHEMA, alias="schema")
    host: str
    lease_seconds: float
    next: int = 1
    open: tuple[int, ...] = ()
    claims: tuple[OpenClaim, ...] = ()

    def renewed(
        self,
        following: int,
        still_open: Mapping[int, tuple[str, str]],
        roots: Mapping[int, str] = MappingProxyType({}),
    ) -> Self:
        """The record of this moment: the next number, and the open ones with the task and root they are for."""
        claims = tuple(
            OpenClaim(n=n, context_id=context_id, task_id=task_id, root=roots.get(n, ""))
            for n, (context_id, task_id) in still_open.items()
        )
        return self.model_copy(update={"next": following, "open": tuple(still_open), "claims": claims})

    def lists(self, n: int) -> bool:
        """Whether claim n may still be running, as far as this heartbeat can tell (rule *openlist*)."""
        return n >= self.next or n in self.open


class PushConfigRecord(Record):
    """push/<id>.json: where the news of one task go, and how far they have come.

    Attributes:
        id: Names it among those of its task.
        url: Where it goes.
        token: Sent as `X-A2A-Notification-Token`; empty for none.
        scheme: Scheme of the `Authorization` header, such as `Bearer`; empty for none.
        credentials: What follows the scheme.
        protocol: Version of A2A that it was registered with, which is what its receiver understands.
        delivered: The last notice that needs no delivery any more (`TaskMeta.notice`).
        deliverer: The host that delivers now, so that hosts do not overtake each other; empty for none.
    """

    schema_version: int = Field(default=SCHEMA, alias="schema")
    id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    protocol: Literal["1.0", "0.3"] = "1.0"
    delivered: int = 0
    deliverer: str = ""


class OwedRecord(Record):
    """push/owed/<n>.json: a state that has to be notified and that task.json does not tell any more."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    status: dict[str, Any]


Flag = Literal["0", "1"]


def repinned(metadata: Mapping[str, str], old: Pin, new: Pin) -> dict[str, str]:
    """task.json's metadata once its archive has moved from `old` to `new`; a pin of anything else stays as it is."""
    pinned = (metadata.get("pin-generation"), metadata.get("pin-crc32c"))
    changed = {"pin-generation": str(new.generation), "pin-crc32c": new.crc32c}
    return {**metadata, **(changed if pinned == (str(old.generation), old.crc32c) else {})}


@dataclass(frozen=True, slots=True)
class TaskMeta:
    """task.json's custom metadata: what the ledger needs to know without reading the body.

    Attributes:
        owner: `<host>/<n>` of the claim that holds or held the task; empty for a task written by something else.
        turn: Counts the executions of the agent, from 1.
        open: A turn is claimed or running. Never inferred from the state (rule *turnflag*).
        seq: Version for the SDK, turn * 2^32 + k.
        state: Name of the task's state, such as `TASK_STATE_WORKING`.
        status_time: Its timestamp in Unix milliseconds; the order of listings.
        journal: Last batch of this turn that the body holds.
        was: The state that the turn before parked in; empty if there was none.
        was_seq: The `seq` that it parked with; 0 if there was none, or an earlier version began this turn.
        was_journal: The last batch of that turn.
        pin: The snapshot that goes with this state.
        patience: Seconds that a parked task waits for an answer before it fails, by the store's clock; 0: for ever.
        turns: When its turns ran, by the clocks of their hosts; for people, nothing is decided by them.
        base: The workspace that the task started from; None where an earlier version wrote it.
        push: There may be push configurations; without it nobody looks for any.
        notice: The seq with which the state of this very record was entered, if it is one that push tells of (terminal
            or interrupted) and is not kept in `push/owed/` yet; 0 for none.
        extra: Metadata that this version does not know.
    """

    owner: str = ""
    turn: int = 0
    open: bool = False
    seq: int = 0
    state: str = ""
    status_time: int = 0
    journal: int = 0
    was: str = ""
    was_seq: int = 0
    was_journal: int = 0
    pin: Pin | None = None
    patience: int = 0
    turns: tuple[Ran, ...] = ()
    base: Base | None = None
    push: bool = False
    notice: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)

    _NAMES = frozenset(
        {"schema", "owner", "turn", "open", "seq", "state", "status-time", "journal", "was", "patience", "turns"}
        | {"was-seq", "was-journal"}
        | {"push", "notice", "base"}
        | {"pin-generation", "pin-crc32c"}
        | {"write-id"}  # the store's own, fresh with every write
    )

    @classmethod
    def from_metadata(cls, key: str, raw: Mapping[str, str]) -> TaskMeta:
        """Reads the metadata.

        Raises:
            CorruptRecord: A number is none, a count is negative, or a later release has changed what it means.
        """
        try:
            _refuse_newer(key, _count(raw, "schema"))
            generation = _count(raw, "pin-generation")
            return cls(
                owner=raw.get("owner", ""),
                turn=_count(raw, "turn"),
                open=raw.get("open") == "1",
                seq=_count(raw, "seq"),
                state=raw.get("state", ""),
                status_time=int(raw.get("status-time", "0")),
                journal=int(raw.get("journal", "0")),
                was=raw.get("was", ""),
                was_seq=_count(raw, "was-seq"),
                was_journal=_count(raw, "was-journal"),
                pin=Pin(generation=generation, crc32c=raw.get("pin-crc32c", "")) if generation else None,
                patience=int(raw.get("patience", "0")),
                turns=parse_turns(raw.get("turns", "")),
                base=Base.from_text(raw.get("base", "")),
                push=raw.get("push") == "1",
                notice=_count(raw, "notice"),
                extra={k: v for k, v in raw.items() if k not in cls._NAMES},
            )
        except ValueError as e:
            raise CorruptRecord(key, f"its metadata is not ours: {e}") from e

    def to_metadata(self) -> dict[str, str]:
        known = {
            "schema": str(SCHEMA),
            "owner": self.owner,
            "turn": str(self.turn),
            "open": "1" if self.open else "0",
            "seq": str(self.seq),
            "state": self.state,
            "status-time": str(self.status_time),
            "journal": str(self.journal),
            "was": self.was,
        }
        if self.was_seq:
            known |= {"was-seq": str(self.was_seq), "was-journal": str(self.was_journal)}
        if self.patience:
            known["patience"] = str(self.patience)
        if self.turns:
            known["turns"] = ",".join(map(str, self.turns))
        if self.base:
            known["base"] = str(self.base)
        if self.push:
            known["push"] = "1"
        if self.notice:
            known["notice"] = str(self.notice)
        if self.pin:
            known |= {"pin-generation": str(self.pin.generation), "pin-crc32c": self.pin.crc32c}
        return {**self.extra, **known}

    def foreign_seq(self) -> int:
        """Version for a write by somebody who does not hold the turn: newer than all that its holder writes."""
        return max(self.seq + 1, (self.turn + 1) * TURN_STRIDE)

    def timed(self, now: int) -> TaskMeta:
        """The metadata with what a write at this moment (Unix milliseconds) tells about the turns."""
        ran = list(self.turns)
        if self.open and (not ran or ran[-1].until):
            ran.append(Ran(now))
        elif not self.open and ran and not ran[-1].until:
            ran[-1] = Ran(ran[-1].since, max(now, ran[-1].since))
        if len(ran) > REMEMBERED_TURNS:
            del ran[1]
        return self.with_(turns=tuple(ran))

    def with_(self, **changes: object) -> TaskMeta:
        return replace(self, **changes)  # type: ignore[arg-type]


def _refuse_newer(key: str, schema: int) -> None:
    if schema > SCHEMA:
        why = f"a later release wrote it (schema {schema}; this one knows {SCHEMA}); upgrade this host"
        raise CorruptRecord(key, why, newer=True)


def _schema_of(body: bytes) -> int:
    """The schema of a record that could not be parsed otherwise; 0 where it tells none."""
    try:
        schema = json.loads(body).get("schema", 0)
    except (ValueError, AttributeError, RecursionError):
        return 0
    return schema if isinstance(schema, int) else 0


def _count(raw: Mapping[str, str], name: str) -> int:
    value = int(raw.get(name, "0"))
    if value < 0:
        raise ValueError(f"{name} is {value}")
    return value
