"""What is set for one of several agents, and what it takes over from the host."""

import pytest
from pydantic import ValidationError

from a2a_gcs.host.settings import AgentOptions, Settings, load_settings
from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_http import A2AClient
from tests.support.host_thread import serve_in_thread

CONFIG = """
max_wait_seconds = 60
command_env = "HOST_*"

[[agents]]
name = "a"
agent = "demo"
command_env = "OPENAI_*"
max_workspace_bytes = 1000

[[agents]]
name = "b"
agent = "demo"
"""


def test_a_table_overrides_the_host(tmp_path, monkeypatch):
    """And takes over the rest, from the file, the environment and the command line alike."""
    config = tmp_path / "agents.toml"
    config.write_text(CONFIG)
    monkeypatch.setenv("A2A_GCS_MAX_WORKSPACE_BYTES", "5000")
    a, b = load_settings(config, {"max_workspace_files": 7}).hosted()
    assert (a.command_env, b.command_env) == ("OPENAI_*", "HOST_*")
    assert (a.max_workspace_bytes, b.max_workspace_bytes) == (1000, 5000)
    assert (a.max_workspace_files, b.max_workspace_files) == (7, 7)
    assert (a.max_wait_seconds, b.max_wait_seconds) == (60, 60)


def test_a_table_can_set_what_the_host_has_back_to_its_default():
    """None, where that is the default, is no less a value."""
    settings = Settings(max_run_seconds=5, agents=[{"name": "a", "agent": "demo", "max_run_seconds": None}])
    assert settings.hosted()[0].max_run_seconds is None


def test_the_only_agent_has_all_settings_of_the_host():
    [only] = Settings(agent="demo", on_shutdown="fail", max_workspace_files=3).hosted()
    assert (only.agent, only.on_shutdown, only.max_workspace_files) == ("demo", "fail", 3)
    assert only.model_fields_set >= AgentOptions.model_fields.keys()


@pytest.mark.parametrize("wrong", [{"lease_seconds": 5}, {"max_workspace_bytes": 0}, {"command_home": "here"}], ids=str)
def test_a_table_holds_nothing_else(wrong):
    """What is the host's alone, and values that the host would refuse."""
    with pytest.raises(ValidationError):
        Settings(agents=[{"name": "a", "agent": "demo", **wrong}])


async def test_each_agent_works_within_its_own_limits(tmp_path):
    """One agent's workspace is too large for it; the other's, with the same files, is not."""
    agents = ({"name": "small", "agent": "demo", "max_workspace_bytes": 10}, {"name": "large", "agent": "demo"})
    said = {}
    with serve_in_thread(MemoryStore(), work_dir=tmp_path, agents=agents) as host:
        for name in ("small", "large"):
            async with A2AClient(f"{host.url}/{name}") as client:
                said[name] = await client.send("write file.txt more than ten bytes")
    assert (said["small"].state, said["large"].state) == ("failed", "completed")
    assert "more than 10 bytes of content" in said["small"].text
