"""Where metrics and traces of `a2a-gcs serve` go: Prometheus, and OTLP by OpenTelemetry's own variables.

The SDK is imported only if one of them is on. Decision 0007 tells why this combination.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import structlog
from opentelemetry import metrics, trace

from a2a_gcs.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

    from a2a_gcs.host.settings import Settings

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 1.0
"""What the last export may take once all is stored: on Cloud Run SIGKILL comes 10 s after SIGTERM."""

SDK_SPANS = "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"
"""a2a-sdk's own variable, which wins over what is decided here."""

_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def configure_telemetry(settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
    """Sets the providers of this process, once; one that is there already, as of an auto-instrumentation, stays.

    Args:
        settings: Whether metrics are kept, and on which port besides.
        environ: OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER (otlp, console, none),
            OTEL_EXPORTER_OTLP_ENDPOINT and its likes; exporters and the SDK read further ones by themselves.

    Raises:
        ConfigError: An exporter is asked for that is not installed, or the port cannot be had.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
        _keep_traces(_exporter("traces", environ))
        _keep_metrics(_exporter("metrics", environ), prometheus=settings.metrics)
    if settings.metrics_port is not None:
        _serve_metrics(settings.metrics_port)


def import_sdk() -> None:
    """Imports a2a-sdk, without its spans where nothing collects any; to be called before anything else imports it.

    The SDK decides at its import whether it makes them, and each one costs though nothing records it: a fifth of what a
    short task takes. Programs that agents run find the environment as it was.
    """
    unset = isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) and SDK_SPANS not in os.environ
    if unset:
        os.environ[SDK_SPANS] = "false"
    try:
        import a2a.utils.telemetry  # noqa: F401, PLC0415
    finally:
        if unset:
            del os.environ[SDK_SPANS]


def flush_telemetry() -> None:
    """Sends what has not been sent yet, for a second at most; without exporters that takes no time."""
    flushing = [
        threading.Thread(target=provider.force_flush, args=(int(FLUSH_SECONDS * 1000),), daemon=True)
        for provider in (trace.get_tracer_provider(), metrics.get_meter_provider())
        if hasattr(provider, "force_flush")
    ]
    for thread in flushing:
        thread.start()
    for thread in flushing:
        thread.join(FLUSH_SECONDS)


def exposition() -> tuple[bytes, str]:
    """All metrics of the process in Prometheus's text format, and its content type."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - only where metrics are kept

    return generate_latest(), CONTENT_TYPE_LATEST


def samples() -> list[tuple[str, Mapping[str, str], float]]:
    """The same as numbers: name, labels and value of every series."""
    from prometheus_client import REGISTRY  # noqa: PLC0415 - only where metrics are kept

    return [(one.name, one.labels, one.value) for metric in REGISTRY.collect() for one in metric.samples]


def _keep_traces(exporter: Any | None) -> None:
    if exporter is None:
        return
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter()))
    trace.set_tracer_provider(provider)


def _keep_metrics(exporter: Any | None, *, prometheus: bool) -> None:
    if exporter is None and not prometheus:
        return
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    if isinstance(metrics.get_meter_provider(), MeterProvider):
        return
    readers: list[MetricReader] = []
    if prometheus:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415

        readers.append(PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False))
    if exporter is not None:
        readers.append(PeriodicExportingMetricReader(exporter()))
    metrics.set_meter_provider(MeterProvider(readers, resource=_resource(), shutdown_on_exit=False))


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    name = os.environ.get("OTEL_SERVICE_NAME") or os.environ.get("K_SERVICE") or "a2a-gcs"
    return Resource.create({"service.name": name})


def _exporter(signal: str, environ: Mapping[str, str]) -> Any | None:
    """The exporter's class that the environment asks for; None where it asks for none."""
    upper = signal.upper()
    endpoint = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get(f"OTEL_EXPORTER_OTLP_{upper}_ENDPOINT")
    name = environ.get(f"OTEL_{upper}_EXPORTER") or ("otlp" if endpoint else "none")
    if name in {"none", "prometheus"}:
        return None
    protocol = (
        environ.get(f"OTEL_EXPORTER_OTLP_{upper}_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=_entry(name, protocol)))
    if not found:
        raise ConfigError(
            f"OTEL_{upper}_EXPORTER={name} over {protocol} is not installed: pip install 'a2a-gcs[otel]' brings otlp "
            "over http/protobuf; set it to none to do without"
        )
    return found[0].load()


def _entry(name: str, protocol: str) -> str:
    return _PROTOCOLS.get(protocol, protocol) if name == "otlp" else name


def _serve_metrics(port: int) -> None:
    from prometheus_client import start_http_server  # noqa: PLC0415

    try:
        server, _ = start_http_server(port, addr="127.0.0.1")
    except OSError as e:
        raise ConfigError(f"metrics cannot be served on 127.0.0.1:{port}: {e.strerror}; see --metrics-port") from e
    log.info("metrics.listening", host="127.0.0.1", port=server.server_port)
