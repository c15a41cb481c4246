"""From SPEC to executor: what is accepted, and what each refusal says."""

import sys

import pytest

from a2a_gcs.errors import ConfigError
from a2a_gcs.executors.demo import DemoAgent
from a2a_gcs.executors.spec import load_agent

MODULE = """
from a2a.server.agent_execution import AgentExecutor

class Mine(AgentExecutor):
    async def execute(self, context, event_queue): ...
    async def cancel(self, context, event_queue): ...

class Half(AgentExecutor):
    async def execute(self, context, event_queue): ...

class Holder:
    inner = Mine()

class Greedy(Mine):
    def __init__(self, model): ...

instance = Mine()
number = 7
def factory(): return Mine()
def needy(model): return Mine()
def wrong(): return "an agent"
def broken(): raise RuntimeError("no key")
async def slow(): return Mine()
later = lambda: slow()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current directory of its own, on a sys.path and in a module table that are put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def agents(here):
    (here / "my_agents.py").write_text(MODULE)
    return here


def test_demo_is_the_demo_agent():
    """`demo` needs no module."""
    assert isinstance(load_agent("demo"), DemoAgent)


@pytest.mark.parametrize("attribute", ["instance", "Mine", "factory", "Holder.inner"])
def test_an_instance_a_class_and_a_factory_are_taken_from_the_current_directory(agents, attribute):
    """Each of the three forms gives an executor, also below another name; the module is found beside the user."""
    assert type(load_agent(f"my_agents:{attribute}")).__name__ == "Mine"


def test_a_module_in_a_package_is_found(here):
    """`package.module:attribute` works for namespace packages too."""
    (here / "team").mkdir()
    (here / "team" / "agent.py").write_text(MODULE)
    assert type(load_agent("team.agent:Mine")).__name__ == "Mine"


@pytest.mark.parametrize("spec", ["", "Demo", "my_agents", "my_agents:", ":x", "a-b:c", ".mine:x", "a:b:c", "a/b.py:x"])
def test_another_form_is_refused_and_the_accepted_ones_are_named(spec):
    """Whatever is neither `demo` nor module:attribute is answered with the three forms."""
    with pytest.raises(
        ConfigError, match=r"is not understood; an agent is `demo`, `command:PROGRAM ARGUMENTS` or `package\.module"
    ):
        load_agent(spec)


def test_a_command_line_is_a_command_agent_of_its_host():
    """`command:` takes any program; without a host there is nothing to run it under."""
    with pytest.raises(ConfigError, match="needs a host that it runs under"):
        load_agent("command:cat {text}")
    with pytest.raises(ConfigError, match="there is no program 'no-such-program' on PATH"):
        load_agent("command:no-such-program")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("no_such_module:x", r"module no_such_module was not found"),
        ("my_agents.deeper:x", r"module my_agents\.deeper was not found .*'my_agents' is not a package"),
        ("my_agents:nothing", r"my_agents has no attribute 'nothing'"),
        ("my_agents:Holder.outer", r"my_agents\.Holder has no attribute 'outer'"),
        ("my_agents:number", r"is a int, not an AgentExecutor"),
        ("my_agents:Holder", r"class Holder is not an a2a-sdk AgentExecutor"),
        ("my_agents:Half", r"creating it failed: TypeError: .*abstract.*cancel"),
        ("my_agents:Greedy", r"must be callable without arguments: missing a required argument: 'model'"),
        ("my_agents:needy", r"must be callable without arguments: missing a required argument: 'model'"),
        ("my_agents:wrong", r"returned a str, not an AgentExecutor"),
        ("my_agents:broken", r"creating it failed: RuntimeError: no key \(my_agents\.py:\d+\)"),
        ("my_agents:slow", r"is an async function"),
        ("my_agents:later", r"returned a coroutine"),
    ],
)
def test_a_refusal_says_which_step_failed(agents, spec, says):
    """Missing module, missing attribute, wrong type and a failing factory read differently."""
    with pytest.raises(ConfigError, match=says):
        load_agent(spec)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import not_installed_here\n", r"failed inside it: ModuleNotFoundError: No module named 'not_installed_here'"),
        ("import broken_agent.part\n", r"failed inside it: ModuleNotFoundError: .*broken_agent\.part"),
        ("\n1 / 0\n", r"failed inside it: ZeroDivisionError: division by zero \(broken_agent\.py:2\)"),
        ("def (\n", r"failed inside it: SyntaxError: .*broken_agent\.py, line 1"),
        ("raise SystemExit(3)\n", r"failed inside it: SystemExit: 3"),
    ],
)
def test_an_error_inside_the_module_is_not_a_missing_module(here, source, says):
    """A module that exists and fails is reported with its own error and place."""
    (here / "broken_agent.py").write_text(source)
    with pytest.raises(ConfigError, match=says):
        load_agent("broken_agent:agent")
