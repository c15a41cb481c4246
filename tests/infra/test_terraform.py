"""infra/terraform parses, is documented, and says what a2a-gcs needs of Google Cloud."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import pytest
import structlog
from typer.testing import CliRunner

from a2a_gcs.cli.main import app
from a2a_gcs.objectstore import bucket_settings, open_store
from a2a_gcs.objectstore.port import IF_ABSENT
from tests.infra.terraform_module import TERRAFORM, blocks, dynamic, parsed, resource, text_of_module, variables
from tests.infra.tools import INFRA

LEAST_OF_THE_BUCKET = {"roles/storage.objectUser", "roles/storage.legacyBucketReader"}


def test_every_variable_tells_its_type_and_what_it_is_for():
    assert len(variables()) > 20
    lacking = [name for name, body in variables().items() if not (body.get("type") and body.get("description"))]
    assert lacking == []


def test_variables_are_all_used_and_all_declared():
    used = set(re.findall(r"\bvar\.(\w+)", text_of_module()))
    assert used == variables().keys()


def test_every_reference_is_to_a_resource_that_exists():
    there = {
        (type_, name)
        for kind in ("resource", "data")
        for block in blocks(kind)
        for type_, names in block.items()
        for name in names
    }
    used = set(re.findall(r"\b(google_\w+)\.(\w+)", text_of_module()))
    assert used - there == set()
    assert len(there) > 15


def test_the_example_gives_each_required_variable_and_no_unknown_one():
    given = parsed()["terraform.tfvars.example"]
    shown = re.findall(r"^# (\w+) +=", (TERRAFORM / "terraform.tfvars.example").read_text(), flags=re.MULTILINE)
    required = {name for name, body in variables().items() if "default" not in body}
    assert required == {"project", "region", "bucket", "image"}
    assert required <= given.keys()
    assert {*given, *shown} <= variables().keys()


def test_outputs_say_what_they_are():
    outputs = {name: body for block in blocks("output") for name, body in block.items()}
    assert {"url", "grpc_target", "store", "service_account", "gc_job"} == outputs.keys()
    assert all(body["description"] for body in outputs.values())


def test_nobody_can_make_the_bucket_public_and_only_leftovers_are_deleted_by_age():
    bucket = resource("google_storage_bucket", "store")
    assert bucket["uniform_bucket_level_access"] is True
    assert bucket["public_access_prevention"] == "enforced"
    assert bucket["force_destroy"] is False
    assert bucket["soft_delete_policy"] == [{"retention_duration_seconds": "${var.soft_delete_days * 86400}"}]
    deletions = [rule["condition"] for rule in bucket["lifecycle_rule"] if rule["action"] == [{"type": "Delete"}]]
    assert [[condition["matches_suffix"] for condition in found] for found in deletions] == [[[".events.json"]]]


def as_the_api_has_it(rule):
    """A lifecycle rule of Terraform in the words of the JSON API."""
    words = {re.sub("_(.)", lambda m: m[1].upper(), name): value for name, value in rule["condition"][0].items()}
    return {"action": rule["action"][0], "condition": words}


def test_terraform_and_bucket_apply_want_the_same_of_a_bucket():
    """Settings, lifecycle rules, defaults and the label that says whose they are."""
    bucket, want = resource("google_storage_bucket", "store"), bucket_settings.wanted()
    assert bucket["uniform_bucket_level_access"] is want.uniform_access
    assert bucket["public_access_prevention"] == want.public_access
    assert variables()["soft_delete_days"]["default"] == want.soft_delete_days
    assert variables()["versioning"]["default"] is want.versioning
    rules = [as_the_api_has_it(rule) for rule in bucket["lifecycle_rule"]]
    assert rules == [dict(rule) for rule in want.lifecycle]

    (kept,) = (as_the_api_has_it(rule) for rule in dynamic(bucket, "lifecycle_rule"))
    assert kept["condition"] == {"daysSinceNoncurrentTime": "${lifecycle_rule.value}"}
    kept["condition"] = {"daysSinceNoncurrentTime": variables()["noncurrent_days"]["default"]}
    assert [*rules, kept] == [dict(rule) for rule in bucket_settings.wanted(versioning=True).lifecycle]
    assert bucket["labels"] == "${local.labels}"
    (labels,) = (block["labels"] for block in blocks("locals") if "labels" in block)
    assert labels[bucket_settings.MANAGED_BY] == "terraform"


def test_the_service_account_has_the_least_that_works():
    granted = {
        body["role"]
        for block in blocks("resource")
        for body in block.get("google_storage_bucket_iam_member", {}).values()
    }
    assert granted == LEAST_OF_THE_BUCKET
    types = {type_ for block in blocks("resource") for type_ in block}
    assert not [type_ for type_ in types if re.match(r"google_project_iam_(member|binding|policy)", type_)]
    sign = resource("google_project_iam_custom_role", "sign")
    assert sign["permissions"] == ["iam.serviceAccounts.signBlob"]
    assert sign["count"] == "${var.signed_urls ? 1 : 0}"


@pytest.fixture
def logging_kept():
    """Puts the process's logging back, which commands set up."""
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    root.handlers, level = before
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.usefixtures("logging_kept")
def test_gc_takes_the_arguments_that_it_is_given(monkeypatch, tmp_path):
    """Terraform's, those of the commands without Terraform, and the example's."""
    monkeypatch.setenv("COLUMNS", "200")
    (template,) = resource("google_cloud_run_v2_job", "gc")["template"][0]["template"]
    fixed = re.search(r"concat\((\[.*?\]),", template["containers"][0]["args"])[1]
    readme = re.search(r'--args="([^"]*)"', (INFRA / "README.md").read_text())[1]
    example = (TERRAFORM / "terraform.tfvars.example").read_text()
    more = json.loads(re.search(r"^# gc_args += (\[.*\])", example, flags=re.MULTILINE)[1])
    place = f"file:{tmp_path}"
    asyncio.run(_used(place))
    for words in (json.loads(fixed.replace("local.store", '"gs://b"')) + more, readme.split(",")):
        result = CliRunner().invoke(app, [place if word.startswith("gs://") else word for word in words])
        assert result.exit_code == 0, result.output
        assert words[0] == "gc"


async def _used(place):
    """Makes a store that a host has been on: a directory that nobody has used is refused."""
    async with open_store(place) as store:
        await store.put("hosts/gone.json", b"{}", IF_ABSENT)
        await store.delete("hosts/gone.json")


def test_gc_runs_in_a_job_that_its_own_account_starts():
    (template,) = resource("google_cloud_run_v2_job", "gc")["template"][0]["template"]
    assert template["containers"][0]["args"] == '${concat(["gc", "--store", local.store, "--all-roots"], var.gc_args)}'
    target = resource("google_cloud_scheduler_job", "gc")["http_target"][0]
    assert target["uri"].endswith("${google_cloud_run_v2_job.gc[0].id}:run")
    assert "scheduler" in target["oauth_token"][0]["service_account_email"]
