"""Ids are opaque: each has its own place below the root, or is refused; none is a path."""

from urllib.parse import unquote

import pytest

from tests.support.a2a_http import JSONRPC_10, REST_10, Refused
from tests.support.untouched import at_rest, changed, untouched

TAKEN = {
    "..": "%2E.",
    "../../x": "%2E.%2F..%2Fx",
    "a/b": "a%2Fb",
    "%2F": "%252F",
    "context.json": "%63ontext.json",
    "parts": "%70arts",
    "spaces in it": "spaces%20in%20it",
    ".hidden": "%2Ehidden",
    "emoji \N{OCTOPUS}": "emoji%20%F0%9F%90%99",
    "b" * 240: "b" * 240,
}
REFUSED = ["a" * 2000, "a" * 241, "two\nlines", "nul\0", "\N{OCTOPUS}" * 21]


@pytest.mark.parametrize("context", TAKEN, ids=lambda c: ascii(c)[:20])
async def test_an_unusual_context_id_has_its_own_place(shared, connect, context):
    """Two tasks share it, under its encoded name alone; nothing else in the bucket changes."""
    client = connect(shared)
    before = await at_rest(shared.place)
    first = await client.send("hello", context=context)
    second = await client.send("hello", context=context)
    assert [(t.context_id, t.state) for t in (first, second)] == [(context, "completed")] * 2
    assert second.text == "journal.md holds 2 messages"
    assert (await client.get(first.id)).raw == first.raw
    assert {t["id"] for t in (await client.list(contextId=context))["tasks"]} == {first.id, second.id}
    segment = TAKEN[context]
    assert unquote(segment) == context
    assert set(changed(before, await shared.place.objects())) == {
        f"contexts/{segment}/context.json",
        *(f"contexts/{segment}/{t.id}/task.json" for t in (first, second)),
        *(f"contexts/{segment}/{t.id}/workspace.tar.gz" for t in (first, second)),
        *(f"tasks/{t.id}/contextId.txt" for t in (first, second)),
    }


@pytest.mark.parametrize("context", REFUSED, ids=lambda c: ascii(c)[:20])
async def test_an_impossible_context_id_is_refused(shared, connect, context):
    """-32602, in sends, streams and listings, and no object is touched."""
    client = connect(shared)
    async with untouched(shared.place):
        calls = [
            client.send("hello", context=context),
            anext(client.stream("hello", context=context)),
            client.list(contextId=context),
        ]
        for call in calls:
            with pytest.raises(Refused) as refused:
                await call
            assert refused.value.code == -32602


HOSTILE = [
    "../../x",
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fx",
    "a/../../b",
    "x" * 2000,
    "two\nlines",
    "nul\0",
    "context.json",
]


@pytest.mark.parametrize("binding", [JSONRPC_10, REST_10])
@pytest.mark.parametrize("task_id", HOSTILE, ids=lambda c: ascii(c)[:20])
async def test_a_hostile_task_id_reaches_nothing(shared, connect, fresh, binding, task_id):
    """Get, cancel, subscribe and send: -32001 or -32602 (over REST also: no such route); no object is touched."""
    client = connect(shared, binding)
    async with untouched(shared.place):
        calls = [
            client.get(task_id),
            client.cancel(task_id),
            anext(client.subscribe(task_id)),
            client.send("hello", task=task_id, context=fresh),
        ]
        for call in calls:
            with pytest.raises(Refused) as refused:
                await call
            no_route = binding == REST_10 and refused.value.status in (404, 405)
            assert refused.value.code in (-32001, -32602) or no_route, refused.value
