"""config show: what serve would use, and from where."""

import inspect
import json

import pytest

from a2a_gcs.cli.serve import serve
from a2a_gcs.host.settings import Settings


def shown(result):
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {one["name"]: (one["value"], one["source"]) for one in found}


def test_every_setting_comes_from_where_it_was_set(run, tmp_path):
    """Option, then environment, then file, then default; the environment's PORT is one too."""
    file = tmp_path / "a.toml"
    file.write_text('store = "file:x"\nlease_seconds = 60\nmax_parts = 7\nport = 1\n')
    found = shown(
        run(
            "config", "show", "--json", "--config", str(file), "--lease-seconds", "90",
            A2A_GCS_MAX_PARTS="8", A2A_GCS_LEASE_SECONDS="70", A2A_GCS_ANSWERS="", PORT="2",
        )
    )  # fmt: skip
    assert set(found) == set(Settings.model_fields)
    assert found["lease_seconds"] == (90, "option")
    assert found["max_parts"] == (8, "env")
    assert found["port"] == (2, "env")
    assert found["store"] == ("file:x", "file")
    assert found["answers"] == ("task", "default")


def test_secrets_are_masked(run, tmp_path):
    """From the environment and from a file."""
    secret = "alice:very-secret-token"
    file = tmp_path / "a.toml"
    file.write_text(f'auth = "tokens"\ntokens = "{secret}"\n')
    for result in (
        run("config", "show", "--config", str(file)),
        run("config", "show", "--json", "--auth", "tokens", A2A_GCS_TOKENS=secret),
    ):
        assert result.exit_code == 0
        assert "tokens" in result.stdout
        assert "very-secret" not in result.output


def test_agents_come_from_the_file(run, tmp_path):
    """They can come from nowhere else."""
    file = tmp_path / "a.toml"
    file.write_text('[[agents]]\nname = "writer"\nagent = "demo"\n')
    value, source = shown(run("config", "show", "--json", "--config", str(file)))["agents"]
    assert (value[0]["name"], source) == ("writer", "file")


def test_people_read_of_an_agent_what_is_its_own(run, tmp_path):
    """A line each, without what is as for the host."""
    file = tmp_path / "a.toml"
    file.write_text(
        'max_parts = 7\n[[agents]]\nname = "writer"\nagent = "demo"\n'
        '[[agents]]\nname = "critic"\nagent = "demo"\npath = "/c"\nmax_run_seconds = 600\n'
    )
    lines = [" ".join(line.split()) for line in run("config", "show", "--config", str(file)).stdout.splitlines()]
    assert [line for line in lines if line.startswith("agents")] == [
        "agents.writer agent=demo file",
        "agents.critic agent=demo max_run_seconds=600.0 path=/c file",
    ]


def test_it_takes_every_option_of_serve(run):
    """So a command line can be tried by writing `config show` for `serve`."""
    text = run("config", "show", "--help").stdout
    for name in inspect.signature(serve).parameters:
        assert f"--{name.replace('_', '-')}" in text


@pytest.mark.parametrize("arguments", [("--lease-seconds", "1"), ("--host", "0.0.0.0"), ("--config", "/nowhere")])
def test_settings_that_cannot_be_used_are_refused_as_by_serve(run, arguments):
    """Status 2, and what is wrong."""
    result = run("config", "show", *arguments)
    assert result.exit_code == 2
    assert "error:" in result.stderr
