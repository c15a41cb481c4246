"""Whose trace a request continues, what is recorded below it, and what its log lines say of it."""

import io
import json
import logging

import httpx
import pytest
import structlog
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_gcs import telemetry
from a2a_gcs.errors import NotFound, Unavailable
from a2a_gcs.host.app import create_app
from a2a_gcs.host.logging import configure_logging
from a2a_gcs.host.request_trace import RequestTrace, trace_context
from a2a_gcs.host.settings import Settings
from a2a_gcs.layout import key_pattern
from a2a_gcs.objectstore import OVERWRITE, InstrumentedStore, MemoryStore, RetryingStore
from tests.support.faulty_store import FaultyStore

TRACE = "105445aa7843bc8bf206b12000100000"
SPAN = "00f067aa0ba902b7"
OTHER = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def spans(monkeypatch):
    """Every span that ends, as the package's tracer records it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "tracer", provider.get_tracer("a2a_gcs"))
    return exporter.get_finished_spans


@pytest.fixture
def logged():
    """Everything that is logged, as Cloud Logging gets it."""
    root = logging.getLogger()
    before = root.handlers, root.level
    out = io.StringIO()
    configure_logging("debug", out, project="my-project")
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    root.handlers, level = before
    root.setLevel(level)
    structlog.reset_defaults()


def named(context):
    span = trace.get_current_span(context).get_span_context()
    return trace.format_trace_id(span.trace_id), trace.format_span_id(span.span_id), span.trace_flags.sampled


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"traceparent": f"00-{OTHER}-{SPAN}-01"}, (OTHER, SPAN, True)),
        ({"traceparent": f"00-{OTHER}-{SPAN}-00"}, (OTHER, SPAN, False)),
        ({"x-cloud-trace-context": f"{TRACE}/255;o=1"}, (TRACE, "00000000000000ff", True)),
        ({"x-cloud-trace-context": f"{TRACE}/18446744073709551615"}, (TRACE, "f" * 16, False)),
        ({"x-cloud-trace-context": f"{TRACE}/1;o=0"}, (TRACE, "0" * 15 + "1", False)),
        (
            {"traceparent": f"00-{OTHER}-{SPAN}-01", "x-cloud-trace-context": f"{TRACE}/1;o=1"},
            (OTHER, SPAN, True),
        ),
        ({"traceparent": "nonsense", "x-cloud-trace-context": f"{TRACE}/1;o=1"}, (TRACE, "0" * 15 + "1", True)),
    ],
)
def test_a_request_continues_the_trace_that_it_names(headers, expected):
    """W3C's header first; Google's own, with the span in decimal, otherwise."""
    assert named(trace_context(headers)) == expected


@settings(max_examples=40)
@given(st.text(max_size=80))
def test_what_is_no_trace_is_as_good_as_absent(text):
    """Anybody may send these headers."""
    for header in ("traceparent", "x-cloud-trace-context"):
        trace_context({header: text})
    assert not trace.get_current_span(trace_context({"x-cloud-trace-context": f"{text}!"})).get_span_context().is_valid


async def test_storage_calls_are_spans_below_the_request(spans):
    """Verb, the key without its ids, the version, and how many tries came before; a refusal is an error."""

    async def at_once(_seconds):
        pass

    faulty = FaultyStore(MemoryStore())
    store = RetryingStore(InstrumentedStore(faulty, pattern=key_pattern), sleep=at_once)
    key = "users/alice/contexts/c-1/t-1/task.json"
    async with faulty:
        faulty.fail("put", "*", error=Unavailable)
        with telemetry.tracer.start_as_current_span("request") as request:
            info = await store.put(key, b"body", OVERWRITE)
            await store.get(key, version=info.version)
            assert [chunk async for chunk in store.stream(key)] == [b"body"]
            with pytest.raises(NotFound):
                await store.head("hosts/h-1.json")
        await store.get(key)  # without a request around it: no span
    found = [span for span in spans() if span.name.startswith("storage.")]
    assert {span.parent.span_id for span in found} == {request.get_span_context().span_id}
    pattern = "users/*/contexts/*/*/task.json"
    told = [(s.name, s.attributes["a2a_gcs.key_pattern"], s.attributes["a2a_gcs.retries"]) for s in found]
    assert told == [
        ("storage.put", pattern, 0),
        ("storage.put", pattern, 1),
        ("storage.get", pattern, 0),
        ("storage.stream", pattern, 0),
        ("storage.head", "hosts/*.json", 0),
    ]
    assert found[2].attributes["a2a_gcs.version"] == info.version
    errors = [span.status.description for span in found if span.status.status_code is StatusCode.ERROR]
    assert errors == ["Unavailable", "NotFound"]


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        ("tasks/t/contextId.txt", "tasks/*/contextId.txt"),
        ("contexts/c/context.json", "contexts/*/context.json"),
        ("contexts/c/t/1000001.events.json", "contexts/*/*/*.events.json"),
        ("contexts/c/parts/0af3.part", "contexts/*/parts/*.part"),
        ("agents/a/tenants/b/users/c/contexts/", "agents/*/tenants/*/users/*/contexts/"),
        ("", ""),
    ],
)
def test_the_pattern_of_a_key_has_no_ids(key, pattern):
    """So there are only a few."""
    assert key_pattern(key) == pattern


async def test_a_failed_request_is_logged_with_its_trace(logged, spans):
    """As Cloud Logging has it: httpRequest, and the trace of the project; the query is not told."""

    async def fail(_request):
        return PlainTextResponse("no", status_code=503)

    app = RequestTrace(Starlette(routes=[Route("/tasks/{id}", fail)]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
        await client.get("/tasks/t-1?said=secret", headers={"X-Cloud-Trace-Context": f"{TRACE}/255;o=1"})
    (line,) = [line for line in logged() if line["message"] == "http.request"]
    (span,) = spans()
    assert line["severity"] == "ERROR"
    assert line["logging.googleapis.com/trace"] == f"projects/my-project/traces/{TRACE}"
    assert line["logging.googleapis.com/spanId"] == trace.format_span_id(span.context.span_id)
    assert line["logging.googleapis.com/trace_sampled"] is True
    request = line["httpRequest"]
    assert (request["requestMethod"], request["requestUrl"], request["status"]) == ("GET", "/tasks/t-1", 503)
    assert request["latency"].endswith("s")
    assert "secret" not in json.dumps(logged())
    assert (span.parent.span_id, span.status.status_code) == (255, StatusCode.ERROR)
    assert span.attributes["http.response.status_code"] == 503
    assert "time" in line
    assert "timestamp" not in line


class Talkative(AgentExecutor):
    """Logs, as agents do, and says nothing of whose task it is."""

    async def execute(self, context, event_queue):
        logging.getLogger("my_agent").warning("working")
        task = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
        await task.complete()

    async def cancel(self, context, event_queue):
        pass


async def test_lines_of_an_agent_name_its_task_and_its_trace(logged, tmp_path):
    """Without a word in the agent, and though it runs in tasks of the SDK's; traces need no SDK for that."""
    app = create_app(Settings(agent=f"{__name__}:Talkative", work_dir=tmp_path), store=MemoryStore())
    message = {"messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "secret"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"A2A-Version": "1.0", "traceparent": f"00-{OTHER}-{SPAN}-01"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client,
    ):
        answer = (await client.post("/", json=body, headers=headers)).json()["result"]["task"]
        assert (await client.get("/health")).status_code == 200
    (line,) = [line for line in logged() if line.get("logger") == "my_agent"]
    assert (line["task_id"], line["context_id"]) == (answer["id"], "c")
    assert line["logging.googleapis.com/trace"] == f"projects/my-project/traces/{OTHER}"
    requests = [line["httpRequest"]["requestUrl"] for line in logged() if line["message"] == "http.request"]
    assert requests == ["/"]  # probes are not told
    assert "secret" not in json.dumps(logged())
