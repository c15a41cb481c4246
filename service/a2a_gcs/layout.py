"""Ids to keys and back (service/docs/bucket.md has the keys); pure, and the only module that formats or parses keys.

Below a root:

    tasks/<task>/contextId.txt              pointer
    contexts/<ctx>/context.json             the context's ledger record
    contexts/<ctx>/<task>/task.json         the A2A Task
    contexts/<ctx>/<task>/workspace.tar.gz  its workspace
    contexts/<ctx>/<task>/<n>.events.json   journal of a turn, n = turn * 10^6 + batch
    contexts/<ctx>/<task>/files/<sha256>    content that is too large for task.json (decision 0006)
    contexts/<ctx>/<task>/push/<id>.json    push-notification configuration
    contexts/<ctx>/<task>/push/owed/<n>.json  a state that task.json does not tell any more, to be notified
    contexts/<ctx>/parts/<sha256>.part      what large workspaces are composed of (decision 0004)

At the bucket prefix instead of a root:

    hosts/<host>.json                       heartbeat
    push/<root>/<task>.json                 marks a task that has push configurations, for hosts that look for work
    doctor/<name>.probe                     what `a2a-gcs doctor` tries permissions on

Ids are opaque text. A path segment keeps `[A-Za-z0-9_-]` and a `.` that does
not lead; every other byte of the UTF-8 form is percent-encoded, and so is the
first letter of a name that a neighbour already has. That is reversible, so two
ids never share a key, and no id is a path.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from a2a_gcs.errors import InvalidId

MAX_SEGMENT_BYTES = 240
"""Longest encoded id; a file name on most file systems holds 255 bytes, the rest is for suffixes."""

BATCHES_PER_TURN = 10**6

_ITSELF = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,239}")
_RESERVED = frozenset({"context.json", "parts"})
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
_POINTER = re.compile(r"tasks/([^/]+)/contextId\.txt")
_PART = re.compile(r"contexts/[^/]+/parts/([0-9a-f]+)\.part")
_TASK = re.compile(r"contexts/([^/]+)/([^/]+)/task\.json")
_WORKSPACE = re.compile(r"contexts/([^/]+)/([^/]+)/workspace\.tar\.gz")
_BELOW_CONTEXT = re.compile(r"contexts/([^/]+)/")
_CONTEXT = re.compile(r"contexts/([^/]+)/context\.json")
_FILE = re.compile(r"files/([0-9a-f]{64})")
_PUSH_CONFIG = re.compile(r"contexts/[^/]+/[^/]+/push/([^/]+)\.json")
_BELONGS = re.compile(
    r"contexts/([^/]+)/(?:parts/[0-9a-f]+\.part|context\.json|([^/]+)/"
    r"(?:task\.json|workspace\.tar\.gz|\d+\.events\.json|files/[0-9a-f]{64}|push/(?:owed/)?[^/]+\.json))"
)
_OWED = re.compile(r"contexts/[^/]+/[^/]+/push/owed/(\d+)\.json")
_PUSH_MARK = re.compile(r"push/(?:(.+)/)?([^/]+)\.json")

AGENTS, TENANTS, USERS = "agents", "tenants", "users"
"""First segments of roots, beside `tasks`, `contexts` and `hosts`."""

_FIXED = frozenset({AGENTS, TENANTS, USERS, "tasks", "contexts", "hosts", ""}) | frozenset(
    {"parts", "push", "owed", "files", "contextId.txt", "context.json", "task.json", "workspace.tar.gz"}
)

POINTERS_PREFIX = "tasks/"
CONTEXTS_PREFIX = "contexts/"
HOSTS_PREFIX = "hosts/"
PUSH_PREFIX = "push/"
PROBES_PREFIX = "doctor/"
"""What `a2a-gcs doctor` tries permissions on; an object stays there only if it may not be deleted."""


class TaskRef(NamedTuple):
    """Where a task lives."""

    context_id: str
    task_id: str


def encode_segment(value: str) -> str:
    """Turns an id into one path segment.

    Raises:
        InvalidId: Empty, holding control characters or lone surrogates, or over 240 bytes once encoded.
    """
    if not value:
        raise InvalidId(value, "is empty")
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in value):
        raise InvalidId(value, "holds control characters")
    raw = value.encode()
    parts = [chr(b) if b in _PLAIN else f"%{b:02X}" for b in raw]
    if raw[:1] == b"." or value in _RESERVED:
        parts[0] = f"%{raw[0]:02X}"
    segment = "".join(parts)
    if len(segment) > MAX_SEGMENT_BYTES:
        raise InvalidId(value, f"takes {len(segment)} bytes once encoded; {MAX_SEGMENT_BYTES} are allowed")
    return segment


def decode_segment(segment: str) -> str | None:
    """The id behind a segment, or None if `encode_segment` never makes such a one."""
    if _ITSELF.fullmatch(segment) and segment not in _RESERVED:  # nearly all of them; a listing meets 100,000
        return segment
    try:
        value = unquote_to_bytes(segment).decode()
        return value if encode_segment(value) == segment else None
    except (UnicodeError, InvalidId):
        return None


def root_of(*, agent: str = "", tenant: str = "", owner: str = "") -> str:
    """The root of a call: path segments without a `/` at the end; empty for the bucket's prefix itself.

    Args:
        agent: Name of the agent, where a host has several.
        tenant: The tenant that the call names.
        owner: Who calls, where callers are authenticated.

    Raises:
        InvalidId: One of them cannot be a path segment.
    """
    parts = ((AGENTS, agent), (TENANTS, tenant), (USERS, owner))
    return "/".join(f"{kind}/{encode_segment(value)}" for kind, value in parts if value)


def parse_root(text: str) -> str:
    """A root as `root_of` writes it, from what somebody has typed: slashes around it count for nothing.

    Raises:
        InvalidId: It is no root; the reason tells the form.
    """
    root = text.strip("/")
    parts = root.split("/") if root else []
    kinds, names = parts[::2], parts[1::2]
    if len(kinds) != len(names) or kinds != [kind for kind in (AGENTS, TENANTS, USERS) if kind in kinds] or "" in names:
        raise InvalidId(text, "is no root: agents/<agent>, tenants/<tenant>, users/<owner>, in this order, or / alone")
    for name in names:
        if decode_segment(name) is None:
            raise InvalidId(text, f"is no root: it is stored with {encode_segment(name)} in place of {name}")
    return root


def callers_of(root: str) -> tuple[str, str, str]:
    """Agent, tenant and owner of a root that `root_of` made; each empty where it has none."""
    parts = root.split("/")
    named = {kind: decode_segment(name) or "" for kind, name in zip(parts[::2], parts[1::2], strict=False)}
    return named.get(AGENTS, ""), named.get(TENANTS, ""), named.get(USERS, "")


def root_above(key: str) -> str:
    """The root that a key of the bucket is below; empty for the bucket's prefix itself."""
    parts = key.split("/")
    depth = 0
    while depth + 2 < len(parts) and parts[depth] in {AGENTS, TENANTS, USERS}:
        depth += 2
    return "/".join(parts[:depth])


def first_after(folder: str) -> str:
    """The first key that a listing has after everything below `folder`, which ends with a `/`."""
    return f"{folder[:-1]}{chr(ord('/') + 1)}"


def pointer_key(task_id: str) -> str:
    return f"{POINTERS_PREFIX}{encode_segment(task_id)}/contextId.txt"


def context_prefix(context_id: str) -> str:
    return f"{CONTEXTS_PREFIX}{encode_segment(context_id)}/"


def context_key(context_id: str) -> str:
    return f"{context_prefix(context_id)}context.json"


def task_key(ref: TaskRef) -> str:
    return f"{context_prefix(ref.context_id)}{encode_segment(ref.task_id)}/task.json"


def workspace_key(ref: TaskRef) -> str:
    return f"{context_prefix(ref.context_id)}{encode_segment(ref.task_id)}/workspace.tar.gz"


def part_key(workspace: str, name: str) -> str:
    """Where a part of archives of one context is kept.

    Args:
        workspace: Key of any workspace.tar.gz of the context.
        name: SHA-256 of the part's bytes in hexadecimal.
    """
    return f"{parts_prefix(workspace)}{name}.part"


def parts_prefix(workspace: str) -> str:
    """What the keys of all parts of a workspace.tar.gz's context begin with."""
    contexts, context, _ = workspace.split("/", 2)
    return f"{contexts}/{context}/parts/"


def parse_part(key: str) -> str | None:
    """The name of a part by its key; None for any other key."""
    match = _PART.fullmatch(key)
    return match[1] if match else None


def journal_key(ref: TaskRef, turn: int, batch: int) -> str:
    """Numbered by turn, so that a stale host of an earlier turn blocks nobody (rule *jturn*)."""
    return (
        f"{context_prefix(ref.context_id)}{encode_segment(ref.task_id)}/{turn * BATCHES_PER_TURN + batch}.events.json"
    )


def key_pattern(key: str) -> str:
    """A key, or a prefix of keys, with `*` for each id and number: what traces may say without growing for ever."""
    return "/".join(_segment_pattern(segment) for segment in key.split("/"))


def _segment_pattern(segment: str) -> str:
    if segment in _FIXED:
        return segment
    return next((f"*{end}" for end in (".events.json", ".part", ".json") if segment.endswith(end)), "*")


def file_key(ref: TaskRef, name: str) -> str:
    """Where content beside a task is kept.

    Args:
        ref: The task.
        name: SHA-256 of the content in hexadecimal.
    """
    return f"{context_prefix(ref.context_id)}{encode_segment(ref.task_id)}/{file_reference(name)}"


def file_reference(name: str) -> str:
    """How task.json refers to such content: relative to its own key."""
    return f"files/{name}"


def parse_file_reference(url: str) -> str | None:
    """The name in a reference of task.json to content beside it; None for any other URL."""
    match = _FILE.fullmatch(url)
    return match[1] if match else None


def push_prefix(ref: TaskRef) -> str:
    """What the keys of all that is about a task's push notifications begin with."""
    return f"{context_prefix(ref.context_id)}{encode_segment(ref.task_id)}/push/"


def push_config_key(ref: TaskRef, config_id: str) -> str:
    return f"{push_prefix(ref)}{encode_segment(config_id)}.json"


def parse_push_config(key: str) -> str | None:
    """The id of a push configuration by its key; None for any other key."""
    match = _PUSH_CONFIG.fullmatch(key)
    return decode_segment(match[1]) if match else None


def owed_key(ref: TaskRef, notice: int) -> str:
    """Where a state is kept that has to be notified and that task.json does not tell any more."""
    return f"{push_prefix(ref)}owed/{notice}.json"


def parse_owed(key: str) -> int | None:
    """The number of a kept notice by its key; None for any other key."""
    match = _OWED.fullmatch(key)
    return int(match[1]) if match else None


def push_mark_key(root: str, task_id: str) -> str:
    """The mark of a task that has push configurations; at the bucket prefix, as heartbeats are."""
    return (
        f"{PUSH_PREFIX}{root}/{encode_segment(task_id)}.json"
        if root
        else f"{PUSH_PREFIX}{encode_segment(task_id)}.json"
    )


def parse_push_mark(key: str) -> tuple[str, str] | None:
    """Root and task id of a mark's key; None for any other key."""
    match = _PUSH_MARK.fullmatch(key)
    task_id = decode_segment(match[2]) if match else None
    return (match[1] or "", task_id) if match and task_id is not None else None


class Belongs(NamedTuple):
    """Whose an object below `contexts/` is.

    Attributes:
        context_id: The context.
        task_id: The task; empty for what all tasks of the context share.
    """

    context_id: str
    task_id: str


def parse_belongs(key: str) -> Belongs | None:
    """Whose an object is by its key; None for pointers, and for whatever is not one of the forms above."""
    match = _BELONGS.fullmatch(key)
    if match is None:
        return None
    context_id, task_id = decode_segment(match[1]), decode_segment(match[2]) if match[2] else ""
    return Belongs(context_id, task_id) if context_id is not None and task_id is not None else None


def is_batch(key: str) -> bool:
    return key.endswith(".events.json") and parse_belongs(key) is not None


def heartbeat_key(host: str) -> str:
    return f"{HOSTS_PREFIX}{encode_segment(host)}.json"


def parse_pointer(key: str) -> str | None:
    """The task id of a pointer's key; None for any other key."""
    match = _POINTER.fullmatch(key)
    return decode_segment(match[1]) if match else None


def probe_key(name: str) -> str:
    return f"{PROBES_PREFIX}{encode_segment(name)}.probe"


def parse_task(key: str) -> TaskRef | None:
    """Context and task id of a task.json's key; None for any other key."""
    return _ref(_TASK.fullmatch(key))


def parse_workspace(key: str) -> TaskRef | None:
    """Context and task id of a workspace.tar.gz's key; None for any other key."""
    return _ref(_WORKSPACE.fullmatch(key))


def _ref(match: re.Match[str] | None) -> TaskRef | None:
    if not match:
        return None
    context_id, task_id = decode_segment(match[1]), decode_segment(match[2])
    return TaskRef(context_id, task_id) if context_id is not None and task_id is not None else None


def context_above(key: str) -> str | None:
    """The id of the context that a key is below; None for a key that is below none."""
    match = _BELOW_CONTEXT.match(key)
    return decode_segment(match[1]) if match else None


def parse_context(key: str) -> str | None:
    """The context id of a context.json's key; None for any other key."""
    match = _CONTEXT.fullmatch(key)
    return decode_segment(match[1]) if match else None
