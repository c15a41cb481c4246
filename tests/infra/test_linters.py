"""hadolint and checkov have nothing to say about infra/, and would if there was something."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.infra.tools import INFRA, output, tool

CHECKOV_SECONDS = 300
OPEN_BUCKET = """
resource "google_storage_bucket" "open" {
  name     = "open"
  location = "EU"
}
"""


def checkov(directory):
    """The reports of checkov by framework; it is kept from asking its makers' service."""
    done = output(
        tool("checkov", "checkov"),
        *("--directory", directory, "--framework", "terraform", "dockerfile", "secrets"),
        *("--skip-download", "--output", "json"),
    )
    reports = json.loads(done.stdout)
    found = {report["check_type"]: report for report in (reports if isinstance(reports, list) else [reports])}
    return done.returncode, found


def test_hadolint_accepts_the_dockerfile():
    done = output(tool("infra-tools", "hadolint"), INFRA / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_sees_a_base_image_without_a_version(tmp_path):
    planted = tmp_path / "Dockerfile"
    planted.write_text((INFRA / "Dockerfile").read_text().replace(":${PYTHON_VERSION}-slim-bookworm\n", ":latest\n"))
    done = output(tool("infra-tools", "hadolint"), planted)
    assert done.returncode == 1
    assert "DL3007" in done.stdout


@pytest.mark.timeout(CHECKOV_SECONDS)
def test_checkov_accepts_all_of_infra_and_each_skip_tells_its_reason():
    status, reports = checkov(INFRA)
    assert status == 0
    assert reports.keys() >= {"terraform", "dockerfile"}
    for report in reports.values():
        assert report["summary"]["failed"] == 0, report["results"]["failed_checks"]
        assert report["summary"]["parsing_errors"] == 0, report["results"]["parsing_errors"]
        assert report["summary"]["passed"] > 0
    reasons = [
        check["check_result"]["suppress_comment"]
        for report in reports.values()
        for check in report["results"]["skipped_checks"]
    ]
    assert reasons
    assert all(len(reason.split()) > 3 for reason in reasons)


@pytest.mark.timeout(CHECKOV_SECONDS)
def test_checkov_tells_an_open_bucket_and_counts_a_file_that_it_cannot_parse(tmp_path):
    shutil.copytree(INFRA / "terraform", tmp_path / "terraform")
    (tmp_path / "terraform/open.tf").write_text(OPEN_BUCKET)
    (tmp_path / "terraform/broken.tf").write_text('resource "google_storage_bucket" {{\n')
    _, reports = checkov(tmp_path)
    report = reports["terraform"]
    assert "CKV_GCP_114" in {check["check_id"] for check in report["results"]["failed_checks"]}
    assert [path.rpartition("/")[2] for path in report["results"]["parsing_errors"]] == ["broken.tf"]
