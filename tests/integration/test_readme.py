"""The README's commands, as written: on the default ports, in one shell, one after the other."""

import os
import re
import subprocess

import pytest

from tests.support.host_process import COMMAND, REPOSITORY, CommandProcess

README = (REPOSITORY / "README.md").read_text("utf-8")


@pytest.fixture
def dev(tmp_path):
    """`a2a-gcs dev` with all its defaults, in an empty directory; it needs ports 8080 and 4443."""
    process = CommandProcess(["dev"], log=tmp_path / "dev.log", cwd=tmp_path)
    yield process.start()
    process.terminate()


def test_the_shell_commands_do_what_the_readme_says(dev, tmp_path):
    """A message, a second one whose journal holds both, the bucket's keys, and tar opening the archive."""
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    assert script.count("curl") == 4
    shell = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={"PATH": os.pathsep.join([str(COMMAND.parent), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert shell.returncode == 0, shell.stderr
    assert shell.stdout.count('"state": "TASK_STATE_COMPLETED"') == 2
    assert shell.stdout.endswith("1. hello\n2. read journal.md\n")
    assert (tmp_path / "journal.md").read_text() == "1. hello\n2. read journal.md\n"
    keys = re.findall(r"^(?:contexts|tasks|hosts)/\S+$", shell.stdout, re.MULTILINE)
    forms = sorted(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<task>", key) for key in keys)
    assert [form for form in forms if not form.startswith("hosts/") and not form.endswith(".events.json")] == [
        *2 * ["contexts/readme/<task>/task.json"],
        *2 * ["contexts/readme/<task>/workspace.tar.gz"],
        "contexts/readme/context.json",
        *2 * ["tasks/<task>/contextId.txt"],
    ]
