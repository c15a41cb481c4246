"""A host of its own sends OpenTelemetry what happened, to the last span before it ends, and serves its metrics."""

import re

import httpx
import pytest

from tests.support.a2a_grpc import GrpcClient
from tests.support.a2a_http import A2AClient
from tests.support.collector import collecting
from tests.support.places import Place

TRACE, OVER_GRPC = "4bf92f3577b34da6a3ce929d0e0e4736", "105445aa7843bc8bf206b12000100000"
PARENT = "00f067aa0ba902b7"


@pytest.fixture
def collector():
    with collecting() as collector:
        yield collector


def tree(spans, trace_id):
    """The names of a trace's storage spans, each with those of its ancestors up to the request."""
    of_trace = {span.span_id: span for span in spans if span.trace_id.hex() == trace_id}
    found = {}
    for span in of_trace.values():
        if span.name.startswith("storage."):
            above, at = [], span
            while (at := of_trace.get(at.parent_span_id)) is not None:
                above.append(at.name)
            pattern = next(a.value.string_value for a in span.attributes if a.key == "a2a_gcs.key_pattern")
            found[span.name, pattern] = above
    return found


async def test_traces_and_metrics_reach_a_collector(collector, hosts, make_place):
    """From the caller's span over the SDK's down to each request to the bucket, over HTTP and gRPC; and the metrics."""
    place = make_place("gcs")
    env = {**place.env, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "tested"}
    host = hosts(Place(place.uri, env), grpc_port=0, metrics_port=0)
    async with A2AClient(host.url) as client:
        client.http.headers["traceparent"] = f"00-{TRACE}-{PARENT}-01"
        await client.send("hello", context="traced-1")
    async with GrpcClient(host.grpc_target, metadata=[("traceparent", f"00-{OVER_GRPC}-{PARENT}-01")]) as client:
        await client.send("hello", context="traced-2")
    port = re.search(r'"metrics.listening".*"port": (\d+)', host.errors())[1]
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        beside = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    assert 'a2a_gcs_task_transitions_total{state="TASK_STATE_COMPLETED"} 2.0' in beside
    assert host.terminate() == 0  # what was recorded last is sent before the end

    claim = tree(collector.spans(), TRACE)["storage.put", "contexts/*/context.json"]
    assert claim[-1] == "HTTP POST"
    assert any("JsonRpcDispatcher" in name for name in claim)
    assert any("DefaultRequestHandlerV2" in name for name in claim)
    written = set(tree(collector.spans(), TRACE))
    assert {("storage.put", "tasks/*/contextId.txt"), ("storage.put", "contexts/*/*/task.json")} <= written
    archive = tree(collector.spans(), TRACE)["storage.put_stream", "contexts/*/*/workspace.tar.gz"]
    assert "workspace.snapshot" in archive
    over_grpc = tree(collector.spans(), OVER_GRPC)["storage.put", "contexts/*/context.json"]
    assert over_grpc[-1] == "lf.a2a.v1.A2AService/SendMessage"
    requests = [span for span in collector.spans() if span.name == "HTTP POST"]
    assert [span.parent_span_id.hex() for span in requests] == [PARENT]
    assert collector.services() == {"tested"}
    assert {"a2a_gcs.task.transitions", "a2a_gcs.storage.requests", "a2a_gcs.turns.ended"} <= collector.instruments()
    stored = {span.trace_id.hex() for span in collector.spans() if span.name.startswith("storage.")}
    assert stored == {TRACE, OVER_GRPC}  # heartbeat, watch and sweep leave no traces
    assert not [span.name for span in collector.spans() if "traced-" in span.name]


def test_an_exporter_that_is_not_installed_is_a_usage_error(hosts, make_place):
    """The message says what to install, before anything is served."""
    env = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(AssertionError, match=r"pip install 'a2a-gcs\[otel\]'"):
        hosts(Place(make_place("file").uri, env))
