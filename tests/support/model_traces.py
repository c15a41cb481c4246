"""The shortest traces in which the protocol model, with one rule left out, violates an invariant.

    python -m tests.support.model_traces PATH_TO_MODEL

writes them to tests/unit/core/model_traces.json; `tests.support.replay` replays them on the real ledger and store.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

COMMITTED = Path(__file__).parents[1] / "unit" / "core" / "model_traces.json"


@dataclass(frozen=True)
class Trace:
    """What the model does without one of its rules.

    Attributes:
        rule: The rule that was left out.
        scenario: The requests that were tried.
        violation: What the last step breaks.
        threads: The requests by number: host, program, arguments.
        steps: What happens, as the model prints it.
    """

    rule: str
    scenario: str
    violation: str
    threads: list[list]
    steps: list[str]


def committed() -> list[Trace]:
    return [Trace(**trace) for trace in json.loads(COMMITTED.read_text(encoding="utf-8"))]


def generated(model_file: Path) -> list[Trace]:
    """One trace for every rule."""
    model = _load(model_file)
    scenarios = {config.name: config for config in model.SCENARIOS}
    traces = []
    for rule in model.FIXES:
        config = scenarios[model.SEEN_IN.get(rule, "claims")]
        violation, steps, _, _ = model.explore(config._replace(fixes=frozenset(model.FIXES) - {rule}))
        threads = json.loads(json.dumps(config.threads))
        traces.append(Trace(rule, config.name, violation, threads, steps))
    return traces


def _load(model_file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("protocol_model", model_file)
    assert spec is not None
    assert spec.loader is not None
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    successors = model.Model.successors
    model.Model.successors = lambda self, state: sorted(successors(self, state), key=_order)
    return model


def _order(successor: tuple) -> tuple[int, str]:
    """The model's own order, but for what it takes from sets of names: that differs from run to run."""
    label = successor[0]
    if label.endswith(" looks dead from now on"):
        return 1, label
    if label.endswith(" CRASHES"):
        return 2, label
    return (3, "") if label.startswith("write in flight") else (0, "")


if __name__ == "__main__":
    found = [asdict(trace) for trace in generated(Path(sys.argv[1]))]
    COMMITTED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
