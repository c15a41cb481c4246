"""`bucket apply` against the emulator: what it shows, changes, and leaves to others."""

import json
import re
from pathlib import Path

import pytest

from a2a_gcs.objectstore import bucket_settings
from a2a_gcs.objectstore.bucket_settings import differences, wanted
from a2a_gcs.objectstore.gcs_bucket import client
from a2a_gcs.objectstore.gcs_control import BucketControl
from fake_gcs.faults import Fault

_BLOCKS = re.DOTALL | re.MULTILINE
TERRAFORM = Path(__file__).parents[3] / "infra" / "terraform"


@pytest.fixture
def emulator(fake_gcs_server, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs_server.url)
    return fake_gcs_server


@pytest.fixture
def name(emulator):
    return emulator.create_bucket()


def handle(name):
    bucket = client().bucket(name)
    bucket.reload()
    return bucket


def state(name):
    return BucketControl(name).state()


def test_a_dry_run_shows_the_difference_and_changes_nothing(run, name):
    """A table of what is and would be, status 1, and the bucket as it was."""
    before = state(name)
    result = run("bucket", "apply", "--store", f"gs://{name}", "--dry-run")
    assert result.exit_code == 1
    rows = {line.split("│")[1].strip(): line for line in result.stdout.splitlines() if line.startswith("│")}
    assert {"uniform access", "public access", "soft delete days", "lifecycle"} <= rows.keys()
    assert [cell.strip() for cell in rows["soft delete days"].split("│")[2:4]] == ["7", "0"]
    assert "Delete *.events.json after 7 days" in result.stdout
    assert "managed by nobody" in result.stdout
    assert state(name) == before


def test_logs_are_no_part_of_what_it_prints(run, monkeypatch):
    """Nobody answers: that is told on stderr alone, and stdout is left to JSON."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    result = run("bucket", "apply", "--store", "gs://some-bucket", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot be reached" in result.stderr


def test_it_applies_once(run, name):
    """What it wants is there afterwards, with its label; another run finds nothing and changes nothing."""
    assert run("bucket", "apply", "--store", f"gs://{name}").exit_code == 0
    after = state(name)
    assert differences(after.settings, wanted()) == []
    assert after.labels == {"managed-by": "a2a-gcs"}
    again = run("bucket", "apply", "--store", f"gs://{name}")
    assert again.stdout == f"bucket {name} is as it should be (managed by a2a-gcs)\n"
    assert state(name) == after
    assert run("bucket", "apply", "--store", f"gs://{name}", "--dry-run").exit_code == 0


def test_drift_shows(run, name):
    """What somebody changed by hand is the difference of the next dry run, as JSON too."""
    run("bucket", "apply", "--store", f"gs://{name}")
    bucket = handle(name)
    bucket.versioning_enabled = True
    bucket.patch()
    result = run("bucket", "apply", "--store", f"gs://{name}", "--dry-run", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        1,
        {
            "bucket": name,
            "managedBy": "a2a-gcs",
            "differences": [{"setting": "versioning", "now": "on", "wanted": "off"}],
            "applied": False,
        },
    )


def test_soft_delete_and_versioning_are_set_on_purpose(run, name):
    """As the options say, with a rule that removes old versions; days that Cloud Storage does not have are refused."""
    uri = f"gs://{name}"
    assert run("bucket", "apply", "--store", uri, "--soft-delete-days", "14", "--versioning").exit_code == 0
    settings = state(name).settings
    assert (settings.soft_delete_days, settings.versioning) == (14, True)
    assert bucket_settings.OLD_VERSIONS in settings.lifecycle
    refused = run("bucket", "apply", "--store", uri, "--soft-delete-days", "3")
    assert (refused.exit_code, "7 to 90 days, or 0" in refused.stderr) == (2, True)


@pytest.mark.parametrize(("prefix", "stays"), [("", False), ("/agents", True)])
def test_rules_of_others_stay_where_others_use_the_bucket(run, name, prefix, stays):
    """With a prefix; without one the bucket is ours, and no rule may delete what we keep."""
    bucket = handle(name)
    bucket.add_lifecycle_delete_rule(age=30)
    bucket.patch()
    assert run("bucket", "apply", "--store", f"gs://{name}{prefix}").exit_code == 0
    foreign = {"action": {"type": "Delete"}, "condition": {"age": 30}}
    rules = state(name).settings.lifecycle
    assert (foreign in rules) == stays
    assert bucket_settings.JOURNAL_LEFTOVERS in rules


def test_what_terraform_manages_is_left_to_terraform(run, name):
    """The difference is shown and nothing changed, unless --force takes it over."""
    bucket = handle(name)
    bucket.labels = {"managed-by": "terraform", "team": "x"}
    bucket.patch()
    before = state(name)
    refused = run("bucket", "apply", "--store", f"gs://{name}")
    assert refused.exit_code == 1
    assert "are terraform's" in refused.stderr
    assert "soft delete days" in refused.stdout
    assert state(name) == before
    assert run("bucket", "apply", "--store", f"gs://{name}", "--force").exit_code == 0
    assert state(name).labels == {"managed-by": "a2a-gcs", "team": "x"}


def test_a_change_by_somebody_else_in_between_is_not_overwritten(run, name, emulator):
    """The change holds only for the bucket that was looked at."""
    control = BucketControl(name)
    seen = control.state()
    bucket = handle(name)
    bucket.labels = {"team": "x"}
    bucket.patch()
    with pytest.raises(Exception, match="was changed meanwhile"):
        control.apply(wanted(), {}, seen=seen)
    assert state(name).labels == {"team": "x"}


@pytest.mark.parametrize("status", [403, 404])
def test_what_cannot_be_done_is_said_in_a_line(run, name, emulator, status):
    """Without a traceback, with the permission that lacks or the command that creates the bucket."""
    uri = f"gs://{name}" if status == 403 else "gs://no-such-bucket-here"
    if status == 403:
        with emulator.faults(Fault("status", operation="buckets.patch", status=403)):
            result = run("bucket", "apply", "--store", uri)
        assert "storage.buckets.update" in result.stderr
    else:
        result = run("bucket", "apply", "--store", uri)
        assert "gcloud storage buckets create gs://no-such-bucket-here" in result.stderr
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert run("bucket", "apply", "--store", "file:here").exit_code == 2


def test_terraform_wants_the_same():
    """infra/terraform's bucket has the settings of `bucket_settings`: by its own defaults, rule for rule."""
    text = (TERRAFORM / "bucket.tf").read_text()
    variables = re.findall(r'^variable "(\w+)" {(.*?)^}', (TERRAFORM / "variables.tf").read_text(), _BLOCKS)
    defaults = {name: found[1] for name, body in variables if (found := re.search(r"default\s*=\s*(\S+)", body))}
    want = wanted()
    assert re.search(r"uniform_bucket_level_access\s*=\s*true", text)
    assert re.search(rf'public_access_prevention\s*=\s*"{want.public_access}"', text)
    assert "retention_duration_seconds = var.soft_delete_days * 86400" in text
    assert float(defaults["soft_delete_days"]) == want.soft_delete_days
    assert (defaults["versioning"] == "true") == want.versioning
    assert int(defaults["noncurrent_days"]) == bucket_settings.LEFTOVER_DAYS
    rules = re.findall(r'^  lifecycle_rule {.*?type = "(\w+)".*?condition {(.*?)}', text, _BLOCKS)
    assert [(kind, *_condition(body)) for kind, body in rules] == [
        (r["action"]["type"], r["condition"]["age"], r["condition"].get("matchesSuffix", [])) for r in want.lifecycle
    ]


def _condition(body):
    suffixes = re.search(r"matches_suffix = (\[.*?\])", body)
    return int(re.search(r"age\s*=\s*(\d+)", body)[1]), json.loads(suffixes[1]) if suffixes else []
