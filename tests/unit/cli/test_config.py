"""config show: what serve would use, and from where."""

import inspect
import json
import tempfile
from pathlib import Path

import pytest

from a2a_gcs.cli.serve import serve
from a2a_gcs.host.settings import Settings
from a2a_gcs.workspaces.ignore import CREDENTIALS


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
        'max_parts = 7\nmax_wait_seconds = 60\n[[agents]]\nname = "writer"\nagent = "demo"\n'
        '[[agents]]\nname = "critic"\nagent = "demo"\npath = "/c"\nmax_run_seconds = 600\n'
    )
    lines = [" ".join(line.split()) for line in run("config", "show", "--config", str(file)).stdout.splitlines()]
    assert [line for line in lines if line.startswith("agents")] == [
        "agents.writer agent=demo file",
        "agents.critic agent=demo max_run_seconds=600.0 path=/c file",
    ]
    value, _ = shown(run("config", "show", "--json", "--config", str(file)))["agents"]
    assert [(one["max_wait_seconds"], one["max_run_seconds"]) for one in value] == [(60, None), (60, 600)]


@pytest.mark.parametrize("as_json", [True, False])
def test_what_applies_is_shown_where_nothing_is_set(run, as_json):
    """The patterns that keep credentials out of snapshots, and the directory that tasks work in."""
    result = run("config", "show", *(["--json"] if as_json else []))
    assert result.exit_code == 0
    if as_json:
        assert shown(result)["workspace_ignore"] == (list(CREDENTIALS), "default")
        assert shown(result)["work_dir"] == (str(Path(tempfile.gettempdir()) / "a2a-gcs"), "default")
    else:
        said = "".join(result.stdout.split())  # a long cell has several lines
        assert all(pattern in said for pattern in CREDENTIALS)
        assert f"work_dir{Path(tempfile.gettempdir()) / 'a2a-gcs'}default" in said


@pytest.mark.parametrize(("value", "told"), [('["*.o", "b/"]', '["*.o", "b/"]'), ("[]", "[]")])
def test_patterns_are_shown_as_they_are_set(run, tmp_path, value, told):
    """Also those of an agent of its own, and none at all is no dash: that keeps nothing out."""
    lines = [
        line.split(maxsplit=1) for line in run("config", "show", A2A_GCS_WORKSPACE_IGNORE=value).stdout.splitlines()
    ]
    assert ["workspace_ignore", f"{told}"] in [[name, rest.rpartition(" ")[0].strip()] for name, rest in lines]
    file = tmp_path / "a.toml"
    file.write_text(f'[[agents]]\nname = "writer"\nagent = "demo"\nworkspace_ignore = {value}\n')
    assert f"agent=demo workspace_ignore={told} " in run("config", "show", "--config", str(file)).stdout


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
