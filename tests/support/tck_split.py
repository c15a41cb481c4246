"""How the conformance kit's results divide among the bindings: `python -m tests.support.tck_split REPORT`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from xml.etree import ElementTree as ET

BINDINGS = {"jsonrpc": "JSON-RPC", "http_json": "REST", "grpc": "gRPC"}
NAMES = {"JsonRpc": "JSON-RPC", "HttpJson": "REST", "Rest": "REST", "Grpc": "gRPC"}


def split(report):
    """Outcomes by binding, and the failed tests by binding; what concerns no binding is `card and others`."""
    outcomes, failed = defaultdict(Counter), []
    for case in ET.parse(report).iter("testcase"):
        binding, outcome = binding_of(case), outcome_of(case)
        outcomes[binding][outcome] += 1
        if outcome == "failed":
            failed.append((binding, case.get("name")))
    return outcomes, failed


def binding_of(case):
    """The kit names it in the parameters of a test, in its package, in its class, or at the end of its name."""
    name, place = case.get("name"), case.get("classname")
    for word, binding in BINDINGS.items():
        if name.rstrip("]").endswith(word) or f".{word}." in place:
            return binding
    return next((binding for word, binding in NAMES.items() if word in place), "card and others")


def outcome_of(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def told(report):
    """The split as a table."""
    outcomes, failed = split(report)
    lines = [f"{'binding':16} {'passed':>7} {'failed':>7} {'skipped':>8}"]
    for binding, counts in sorted(outcomes.items()):
        lines.append(f"{binding:16} {counts['passed']:7} {counts['failed']:7} {counts['skipped']:8}")
    return "\n".join([*lines, *(f"failed: {binding}: {name}" for binding, name in failed)])


if __name__ == "__main__":
    print(told(sys.argv[1]))  # noqa: T201 - what it is for
