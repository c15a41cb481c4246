"""The control API under /_fake_gcs/: what was asked of the emulator, and what it is to do next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fake_gcs.api import ApiError, Call, Reply
from fake_gcs.faults import ACTIONS, Fault
from fake_gcs.latency import profile
from fake_gcs.rules import RULES
from fake_gcs.state import State

Json = dict[str, Any]
Handler = Callable[[State, Call], Awaitable[Json]]


async def run(state: State, call: Call, method: str, path: str) -> Reply:
    """Answers a request below /_fake_gcs/; `path` is what comes after it."""
    if path.startswith("faults/"):
        return Reply(document=await _one_fault(state, method, path.removeprefix("faults/")))
    handler = _ROUTES.get((method, path))
    if handler is None:
        raise ApiError(404, "notFound", f"No {method} /_fake_gcs/{path}; GET /_fake_gcs/ shows what there is.")
    return Reply(document=await handler(state, call))


async def _index(_state: State, _call: Call) -> Json:
    return {
        "GET stats": "requests by class, operation and key pattern, bytes, dollars, round trips; ?bucket=&pattern=",
        "GET requests": "the requests themselves; ?bucket=&after=SEQ",
        "GET history": "committed writes in order; ?bucket=&prefix=&after=SEQ",
        "POST reset": "forget stats, history, faults and write limits, and hold the default rules and settings again",
        "GET rules": "the rules and whether they hold; PATCH {name: true|false} switches",
        "GET settings": "write_limit_burst, write_limit_refill (per second), latency; PATCH changes",
        "GET faults": "scripted faults with matched, hit and served; POST adds one, DELETE removes all",
        "GET faults/ID": "one fault; DELETE removes it",
        "actions": ACTIONS,
    }


async def _stats(state: State, call: Call) -> Json:
    patterns = [pattern for pattern in call.params.get("pattern", "").split(",") if pattern]
    return state.meter.stats(bucket=call.params.get("bucket", ""), patterns=patterns)


async def _requests(state: State, call: Call) -> Json:
    return {"requests": state.meter.requests(bucket=call.params.get("bucket", ""), after=_after(call))}


async def _history(state: State, call: Call) -> Json:
    bucket, prefix = call.params.get("bucket", ""), call.params.get("prefix", "")
    return {"writes": state.history.writes(bucket=bucket, prefix=prefix, after=_after(call))}


async def _reset(state: State, _call: Call) -> Json:
    state.meter.reset()
    state.history.reset()
    state.faults.clear()
    state.rules.reset()
    state.limit.reset()
    state.limit.burst, state.limit.refill = state.default_burst, state.default_refill
    state.latency = profile(state.default_latency)
    return {}


async def _rules(state: State, _call: Call) -> Json:
    return {
        name: {"on": on, "states": RULES[name].states, "source": RULES[name].source}
        for name, on in state.rules.states().items()
    }


async def _switch_rules(state: State, call: Call) -> Json:
    wanted = await call.json()
    unknown = set(wanted) - set(RULES)
    if unknown or not all(isinstance(on, bool) for on in wanted.values()):
        raise ApiError(400, "invalid", f"No such rules, or not true or false: {sorted(unknown) or wanted}")
    for name, on in wanted.items():
        state.rules.switch(name, on=on)
    return await _rules(state, call)


async def _settings(state: State, _call: Call) -> Json:
    return {
        "write_limit_burst": state.limit.burst,
        "write_limit_refill": state.limit.refill,
        "latency": state.latency.name,
    }


async def _change_settings(state: State, call: Call) -> Json:
    wanted = await call.json()
    unknown = set(wanted) - {"write_limit_burst", "write_limit_refill", "latency"}
    if unknown:
        raise ApiError(400, "invalid", f"No such settings: {sorted(unknown)}")
    try:
        state.latency = profile(wanted.get("latency", state.latency.name))
        state.limit.burst = float(wanted.get("write_limit_burst", state.limit.burst))
        state.limit.refill = float(wanted.get("write_limit_refill", state.limit.refill))
    except (TypeError, ValueError) as error:
        raise ApiError(400, "invalid", str(error)) from error
    return await _settings(state, call)


async def _faults(state: State, _call: Call) -> Json:
    return {"faults": [scripted.to_json() for scripted in state.faults.all()]}


async def _add_fault(state: State, call: Call) -> Json:
    try:
        fault = Fault.from_json(await call.json())
    except (TypeError, ValueError) as error:
        raise ApiError(400, "invalid", str(error)) from error
    return state.faults.add(fault).to_json()


async def _clear_faults(state: State, _call: Call) -> Json:
    state.faults.clear()
    return {}


async def _one_fault(state: State, method: str, text: str) -> Json:
    scripted = state.faults.get(int(text)) if text.isascii() and text.isdigit() else None
    if scripted is None or method not in {"GET", "DELETE"}:
        raise ApiError(404, "notFound", f"No fault {text}")
    if method == "DELETE":
        state.faults.remove(scripted.id)
    return scripted.to_json()


def _after(call: Call) -> int:
    text = call.params.get("after", "0")
    if not (text.isascii() and text.isdigit()):
        raise ApiError(400, "invalid", f"after is a seq, not {text!r}")
    return int(text)


_ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", ""): _index,
    ("GET", "stats"): _stats,
    ("GET", "requests"): _requests,
    ("GET", "history"): _history,
    ("POST", "reset"): _reset,
    ("GET", "rules"): _rules,
    ("PATCH", "rules"): _switch_rules,
    ("GET", "settings"): _settings,
    ("PATCH", "settings"): _change_settings,
    ("GET", "faults"): _faults,
    ("POST", "faults"): _add_fault,
    ("DELETE", "faults"): _clear_faults,
}
