"""Objects without their bodies: get, patch, update, delete, compose, copy, rewrite, move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fake_gcs import resources
from fake_gcs.api import ApiError, Call, Reply
from fake_gcs.commits import facts_of
from fake_gcs.rules import preconditions
from fake_gcs.rules.preconditions import Preconditions, Version
from fake_gcs.rules.problems import Invalid

if TYPE_CHECKING:
    from fake_gcs.catalogue import Stored
    from fake_gcs.state import State

Json = dict[str, Any]

MAX_SOURCES = 32


def conditions_of(call: Call, prefix: str = "if") -> Preconditions:
    """Answers a call's conditions, from query parameters or, for the XML API, headers."""
    return preconditions.parse_xml(call.headers) if call.xml else preconditions.parse(call.params, prefix)


def shown(call: Call, resource: Json) -> Json:
    return resources.shown_object(resource, call.base_url, full=call.params.get("projection") == "full")


async def get(state: State, call: Call) -> Reply:
    found = state.commits.find(call.bucket, call.name, call.params.get("generation"))
    state.commits.check_read(found, conditions_of(call))
    return Reply(document=shown(call, found.resource))


async def change(state: State, call: Call) -> Reply:
    """Serves objects.patch and objects.update."""
    wanted = await call.json()
    resource = state.commits.change(
        call.operation,
        call.bucket,
        call.name,
        wanted,
        generation=call.params.get("generation"),
        conditions=conditions_of(call),
    )
    return Reply(document=shown(call, resource))


async def delete(state: State, call: Call) -> Reply:
    state.commits.delete(
        call.bucket, call.name, generation=call.params.get("generation"), conditions=conditions_of(call)
    )
    state.blobs.collect()
    return Reply(204)


async def compose(state: State, call: Call) -> Reply:
    body = await call.json()
    wanted = resources.writable(body.get("destination") or {})
    conditions = conditions_of(call)
    state.commits.check_new(call.bucket, call.name, wanted, conditions)
    sources = _sources(state, call, body.get("sourceObjects") or [])
    if sources and "contentType" not in wanted and "contentType" in sources[0].resource:
        wanted["contentType"] = sources[0].resource["contentType"]
    with state.blobs.reserve(call.bucket, call.name) as blob:
        facts = await state.blobs.compose(blob, [source.blob for source in sources])
        facts["componentCount"] = sum(int(source.resource.get("componentCount", 1)) for source in sources)
        resource = state.commits.insert(
            call.operation, call.bucket, call.name, wanted, facts=facts, blob=blob, conditions=conditions
        )
    return Reply(document=shown(call, resource))


def _sources(state: State, call: Call, named: list[Json]) -> list[Stored]:
    """Finds the sources of a compose and checks the condition of each (rule compose_sources)."""
    if state.rules["compose_sources"] and not 1 <= len(named) <= MAX_SOURCES:
        raise Invalid(f"The number of source components provided ({len(named)}) must be between 1 and {MAX_SOURCES}.")
    found = []
    for source in named:
        generation = source.get("generation")
        stored = state.commits.find(
            call.bucket, source.get("name", ""), None if generation is None else str(generation)
        )
        wanted = (source.get("objectPreconditions") or {}).get("ifGenerationMatch")
        if wanted is not None and state.rules["preconditions"]:
            Preconditions(generation_match=int(wanted)).check(Version(stored.version.generation))
        found.append(stored)
    return found


async def copy(state: State, call: Call) -> Reply:
    """Serves objects.copy and objects.rewrite, which finishes in one call, as within one location."""
    wanted = resources.writable(await call.json())
    source = state.commits.find(call.bucket, call.name, call.params.get("sourceGeneration"))
    if state.rules["preconditions"]:
        conditions_of(call, "ifSource").check(source.version)
    bucket, name = call.target
    wanted = wanted or resources.writable(source.resource)
    conditions = conditions_of(call)
    state.commits.check_new(bucket, name, wanted, conditions)
    with state.blobs.reserve(bucket, name) as blob:
        await state.blobs.copy(blob, source.blob)
        resource = state.commits.insert(
            call.operation, bucket, name, wanted, facts=facts_of(source.resource), blob=blob, conditions=conditions
        )
    if call.operation == "objects.copy":
        return Reply(document=shown(call, resource))
    size = resource["size"]
    return Reply(
        document={
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": size,
            "objectSize": size,
            "done": True,
            "resource": shown(call, resource),
        }
    )


async def move(state: State, call: Call) -> Reply:
    if call.name == call.target[1]:
        raise ApiError(400, "invalid", "The source and the destination of a move are the same object.")
    resource = state.commits.move(
        call.bucket,
        call.name,
        call.target[1],
        source_conditions=conditions_of(call, "ifSource"),
        conditions=conditions_of(call),
    )
    state.blobs.collect()
    return Reply(document=shown(call, resource))
