"""Every metric of the package, and its tracer, defined once (decision 0007).

They speak OpenTelemetry's API alone. Until something sets a provider, which `host/telemetry`
does for `a2a-gcs serve`, and a server of one's own for the library, they do nothing. No label ever
holds an id: of every metric there are a few dozen series at most.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.trace import Status, StatusCode

from a2a_gcs.clock import boottime

SCOPE = "a2a_gcs"
tracer = trace.get_tracer(SCOPE)
_meter = metrics.get_meter(SCOPE)

_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ARCHIVE_SECONDS = (0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)
_LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Observed:
    """A gauge that is read when somebody asks: what each source says, combined.

    Args:
        name: Name of the metric.
        unit: Its unit, as UCUM has it.
        description: What it tells.
        combine: Makes one number of those of all hosts in this process; there is one, outside of tests.
    """

    def __init__(self, name: str, unit: str, description: str, combine: Callable[[Iterable[float]], float]) -> None:
        self._sources: list[Callable[[], float]] = []
        self._combine = combine
        _meter.create_observable_gauge(name, callbacks=[self._observe], unit=unit, description=description)

    def add(self, source: Callable[[], float]) -> Callable[[], None]:
        """Reads `source` from now on, from any thread. Returns what takes it out again."""
        self._sources.append(source)
        return lambda: self._sources.remove(source)

    def _observe(self, _options: CallbackOptions) -> Iterable[Observation]:
        if sources := list(self._sources):
            yield Observation(self._combine(source() for source in sources))


class Tally:
    """A counter that adds up by itself and is read when somebody asks: the SDK's takes 50 times as long for each `add`.

    Args:
        name: Name of the metric.
        unit: Its unit, as UCUM has it.
        description: What it tells.
    """

    def __init__(self, name: str, unit: str, description: str) -> None:
        self._lock = threading.Lock()  # the heartbeat's thread counts too
        self._totals: Counter[tuple[tuple[str, str], ...]] = Counter()
        _meter.create_observable_counter(name, callbacks=[self._observe], unit=unit, description=description)

    def add(self, amount: int, labels: Mapping[str, str]) -> None:
        """Counts. Labels are named in the same order by all callers."""
        key = tuple(labels.items())
        with self._lock:
            self._totals[key] += amount

    def _observe(self, _options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            totals = dict(self._totals)
        for labels, total in totals.items():
            yield Observation(total, dict(labels))


running_turns = Observed("a2a_gcs.turns.running", "{turn}", "Turns that this host holds now", sum)
heartbeat_age = Observed(
    "a2a_gcs.heartbeat.age", "s", "Since the last renewal of the heartbeat that was acknowledged, by its sending", max
)

task_transitions = Tally("a2a_gcs.task.transitions", "{task}", "Task states that this host has stored, by state")
turns_ended = Tally("a2a_gcs.turns.ended", "{turn}", "Turns that this host held, by what they ended with")
claims_refused = Tally("a2a_gcs.claims.refused", "{message}", "Messages that started nothing, by the reason told")
settlements = Tally("a2a_gcs.settlements", "{task}", "Tasks of dead hosts, or overdue ones, that this host has failed")
save_seconds = _meter.create_histogram(
    "a2a_gcs.task.save.duration",
    unit="s",
    description="Writing a state that somebody waits for, retries and what comes before it included",
    explicit_bucket_boundaries_advisory=_REQUEST_SECONDS,
)
snapshot_seconds = _meter.create_histogram(
    "a2a_gcs.workspace.snapshot.duration",
    unit="s",
    description="Saving a workspace",
    explicit_bucket_boundaries_advisory=_ARCHIVE_SECONDS,
)
restore_seconds = _meter.create_histogram(
    "a2a_gcs.workspace.restore.duration",
    unit="s",
    description="Restoring a workspace, from the bucket or a directory that was kept",
    explicit_bucket_boundaries_advisory=_ARCHIVE_SECONDS,
)
storage_requests = Tally(
    "a2a_gcs.storage.requests",
    "{request}",
    "Requests to the bucket, tries of retries included, by the class that they are billed as",
)
storage_seconds = _meter.create_histogram(
    "a2a_gcs.storage.duration",
    unit="s",
    description="One try of a call to the bucket",
    explicit_bucket_boundaries_advisory=_REQUEST_SECONDS,
)
storage_bytes = Tally("a2a_gcs.storage.transferred", "By", "Bytes of object bodies, written to the bucket or read")
storage_retries = Tally(
    "a2a_gcs.storage.retries", "{try}", "Further tries of calls to the bucket, by why they were made"
)
push_deliveries = Tally(
    "a2a_gcs.push.deliveries", "{delivery}", "Push notifications sent, by outcome; each try that failed counts"
)
open_streams = _meter.create_up_down_counter(
    "a2a_gcs.streams.open", unit="{stream}", description="Streams of events that clients have open"
)
loop_lag = _meter.create_histogram(
    "a2a_gcs.event_loop.lag",
    unit="s",
    description="How late the event loop comes to a call that is due, looked at twice a second",
    explicit_bucket_boundaries_advisory=_LAG_SECONDS,
)


@contextlib.contextmanager
def measured(name: str, histogram: Histogram) -> Iterator[None]:
    """Records how long the body takes, and a span of this name below the current one, with its outcome."""
    began, outcome = boottime(), "error"
    with child_span(name):
        try:
            yield
            outcome = "ok"
        finally:
            histogram.record(boottime() - began, {"outcome": outcome})


def recording() -> bool:
    """Whether this belongs to a trace that is recorded. Its span may have ended: runs outlive what started them."""
    around = trace.get_current_span().get_span_context()
    return around.is_valid and around.trace_flags.sampled


@contextlib.contextmanager
def child_span(name: str, *, current: bool = True, **attributes: str | int) -> Iterator[None]:
    """A span below the one that is recorded now; without such a one nothing is recorded.

    So what a host does by itself, such as its heartbeat, leaves no traces of one span.

    Args:
        name: Its name, without ids.
        current: Spans inside of the body are below it. Not for a body that hands control to others in between.
        attributes: What it says besides, each as `a2a_gcs.<name>`.
    """
    if not recording():
        yield
        return
    span = tracer.start_span(name, attributes={f"{SCOPE}.{key}": value for key, value in attributes.items()})
    body = trace.use_span(span, record_exception=False, set_status_on_exception=False)
    try:
        with body if current else contextlib.nullcontext():
            yield
    except Exception as error:
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))  # its text may quote what users say
        raise
    finally:
        span.end()
