"""What the host page makes of the metrics."""

import math

from a2a_gcs.console.host_page import rows
from a2a_gcs.console.measures import Measures


def requests(billed, outcome, value):
    return ("a2a_gcs_storage_requests_total", {"class": billed, "outcome": outcome, "verb": "get"}, value)


def took(bound, value, verb="get"):
    return ("a2a_gcs_storage_duration_seconds_bucket", {"le": bound, "verb": verb}, value)


def test_requests_are_added_up_by_class_and_by_error():
    found = Measures.of([requests("A", "ok", 1e6), requests("B", "ok", 2e6), requests("B", "NotFound", 5e5)])
    assert (found.requests, found.failures) == ({"A": 1_000_000, "B": 2_500_000}, {"NotFound": 500_000})
    assert found.dollars == 6.0  # $5 per million of class A, $0.40 of class B


def test_buckets_count_what_lies_between_their_bounds():
    """Prometheus's count all that lies below; series of several verbs are one; empty ends are left out."""
    get = [took("0.1", 0), took("0.5", 2), took("1.0", 5), took("5.0", 6), took("+Inf", 6)]
    put = [
        took("0.1", 0, "put"),
        took("0.5", 0, "put"),
        took("1.0", 1, "put"),
        took("5.0", 1, "put"),
        took("+Inf", 1, "put"),
    ]
    assert Measures.of([*put, *get]).latency == [(0.5, 2), (1.0, 4), (5.0, 1)]
    assert Measures.of([took("0.1", 0), took("+Inf", 3)]).latency == [(math.inf, 3)]
    assert Measures.of([]).latency == []


def test_bytes_and_states():
    name = "a2a_gcs_storage_transferred_bytes_total"
    moved = [(name, {"direction": "in"}, 7.0), (name, {"direction": "out"}, 9.0)]
    states = [("a2a_gcs_task_transitions_total", {"state": "TASK_STATE_FAILED"}, 2.0), ("process_open_fds", {}, 1.0)]
    found = Measures.of([*moved, *states])
    assert (found.bytes_in, found.bytes_out, found.states) == (7, 9, {"TASK_STATE_FAILED": 2})


def test_the_longest_bar_is_the_whole_width():
    assert [(row.value, row.length) for row in rows([("a", 5), ("b", 20), ("c", 0)])] == [
        (5, 25.0),
        (20, 100.0),
        (0, 0.0),
    ]
    assert [row.length for row in rows([("a", 0)])] == [0.0]
