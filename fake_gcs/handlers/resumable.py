"""Resumable uploads: bytes are gathered here, and stored as one upload when they are complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_gcs.api import ApiError, Call, Reply, from_rule
from fake_gcs.handlers.objects import conditions_of, shown
from fake_gcs.handlers.uploads import metadata_headers, name_of, store
from fake_gcs.rules import checksums, resumable
from fake_gcs.rules.preconditions import NONE, ConditionNotMet, NotModified
from fake_gcs.rules.problems import Invalid
from fake_gcs.sessions import Session
from fake_gcs.spool import Spool

if TYPE_CHECKING:
    from fake_gcs.rules.resumable import Chunk
    from fake_gcs.state import State

_CANCELLED = 499


async def start(state: State, call: Call) -> Reply:
    """Opens a session. Conditions are kept for the end: they are checked when the upload is finalized."""
    wanted = await call.json()
    name = name_of(call, wanted)
    if "contentType" not in wanted and "X-Upload-Content-Type" in call.headers:
        wanted["contentType"] = call.headers["X-Upload-Content-Type"]
    if "contentEncoding" in call.params:
        wanted["contentEncoding"] = call.params["contentEncoding"]
    conditions = conditions_of(call)
    state.commits.check_new(call.bucket, name, wanted, NONE)
    length = call.headers.get("X-Upload-Content-Length", "")
    session = Session(
        bucket=call.bucket,
        name=name,
        wanted=wanted,
        conditions=conditions,
        declared=checksums.declared(wanted, call.headers),
        total=int(length) if length.isdigit() else None,
        spool=Spool(state.folder),
        born=state.sessions.now(),
    )
    upload_id = state.sessions.add(session)
    location = f"{call.base_url}/upload/storage/v1/b/{call.bucket}/o?uploadType=resumable&upload_id={upload_id}"
    return Reply(200, {"Location": location, "X-GUploader-UploadID": upload_id})


async def resume(state: State, call: Call) -> Reply:
    """Serves objects.resume: a chunk, a status query, or the request that completes the upload."""
    session = state.sessions.get(call.params["upload_id"])
    async with session.lock:
        if session.outcome is None:
            await _advance(state, call, session)
        await call.drain()
    if isinstance(session.outcome, ApiError):
        raise session.outcome
    if session.outcome is not None:
        return Reply(document=shown(call, session.outcome))
    persisted = session.spool.size
    return Reply(308, {"Range": f"bytes=0-{persisted - 1}"} if persisted else {})


async def cancel(state: State, call: Call) -> Reply:
    session = state.sessions.get(call.params["upload_id"])
    async with session.lock:
        if session.outcome is None:
            session.end(ApiError(_CANCELLED, "cancelled", "The upload was cancelled."))
    return Reply(_CANCELLED)


async def _advance(state: State, call: Call, session: Session) -> None:
    chunk = resumable.parse(call.headers.get("Content-Range"))
    if chunk.total is not None:
        if session.total not in {None, chunk.total}:
            raise Invalid(f"The object's size was declared as {session.total}, not {chunk.total}.")
        session.total = chunk.total
    final = False
    if chunk.start is not None:
        final = await _take(state, call, session, chunk)
    elif not state.rules["resumable"]:
        final = True  # as fake-gcs-server 1.54.0 has it: measured, `bytes */*` finishes the upload
    if final or (chunk.start is None and chunk.total is not None and session.spool.size == chunk.total):
        await _finish(state, call, session)


async def _take(state: State, call: Call, session: Session, chunk: Chunk) -> bool:
    """Appends a chunk's new bytes, and answers whether the object is complete."""
    assert chunk.start is not None
    before = session.spool.size
    if chunk.start > before and state.rules["resumable"]:
        raise Invalid(f"The chunk starts at {chunk.start}, but only {before} bytes are persisted.")
    skip = before - chunk.start if state.rules["resumable"] else 0
    length = 0
    try:
        async for piece in call.pieces():
            length += len(piece)
            session.spool.write(piece[skip:])
            skip = max(0, skip - len(piece))
    except OSError:
        session.spool.truncate(max(before, session.spool.size - session.spool.size % resumable.QUANTUM))
        raise
    whole = "Content-Range" not in call.headers
    if chunk.end is not None and length != chunk.end - chunk.start + 1:
        session.spool.truncate(before)
        raise Invalid(f"The chunk has {length} bytes, not the {chunk.end - chunk.start + 1} of its Content-Range.")
    final = whole or (chunk.total is not None and chunk.start + length == chunk.total)
    try:
        accepted = resumable.accepted(before, session.spool.size, final=final) if state.rules["resumable"] else None
    except Invalid:
        session.spool.truncate(before)
        raise
    session.spool.truncate(session.spool.size if accepted is None else max(before, accepted))
    return final


async def _finish(state: State, call: Call, session: Session) -> None:
    """Stores the object. A failed condition ends the upload; after a 429 or 5xx the client may ask again."""
    if session.total is not None and session.total != session.spool.size:
        raise Invalid(f"The object's size was declared as {session.total}, but it has {session.spool.size} bytes.")
    metadata = metadata_headers(call)
    wanted = {**session.wanted, "metadata": {**session.wanted.get("metadata", {}), **metadata}}
    wanted = wanted if wanted["metadata"] else session.wanted
    declared = {**session.declared, **checksums.declared({}, call.headers)}
    try:
        session.end(
            await store(
                state,
                session.bucket,
                session.name,
                wanted,
                declared=declared,
                conditions=session.conditions,
                spool=session.spool,
            )
        )
    except (ConditionNotMet, NotModified, Invalid) as problem:
        session.end(from_rule(problem))
