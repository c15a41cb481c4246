"""The service definitions for Cloud Run are valid, alike, and set only what a2a-gcs reads."""

from __future__ import annotations

import re
from string import Template

import jsonschema_rs
import pytest
import yaml

from a2a_gcs.host.settings import Settings
from tests.infra.cloud_run_schema import document, schema
from tests.infra.terraform_module import blocks, dynamic, resource, text_of_module, variables
from tests.infra.tools import INFRA

FILLED_IN = {
    "PROJECT": "my-project",
    "PROJECT_NUMBER": "123456789",
    "REGION": "europe-west1",
    "BUCKET": "my-bucket",
    "IMAGE": "europe-west1-docker.pkg.dev/my-project/a2a/a2a-gcs:0.1.0",
}
SERVICES = ("service.yaml", "service-grpc.yaml")
PROBES = ("startup", "liveness", "readiness")


def service(name):
    return yaml.safe_load(Template((INFRA / "cloud_run" / name).read_text()).substitute(FILLED_IN))


def container(name):
    (only,) = service(name)["spec"]["template"]["spec"]["containers"]
    return only


def environment(name):
    return {entry["name"]: entry["value"] for entry in container(name)["env"]}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_what_the_api_takes(name):
    errors = list(jsonschema_rs.validator_for(schema("Service")).iter_errors(service(name)))
    assert [(error.instance_path, error.message) for error in errors] == []


def test_the_schema_refuses_unknown_members_and_wrong_types():
    planted = service("service.yaml")
    spec = planted["spec"]["template"]["spec"]
    spec["timeoutSeconds"] = "3600"
    spec["containers"][0]["livenessProbe"]["httpget"] = {}
    errors = jsonschema_rs.validator_for(schema("Service")).iter_errors(planted)
    assert {error.instance_path[-1] for error in errors} == {"timeoutSeconds", "livenessProbe"}


@pytest.mark.parametrize("name", SERVICES)
def test_annotations_are_those_that_the_api_documents(name):
    described = document()["schemas"]["ObjectMeta"]["properties"]["annotations"]["description"]
    levels = dict(re.findall(r"`([a-z./A-Z0-9-]+)`: ([A-Za-z, ]+)", described))
    found = service(name)
    for level, metadata in (("Service", found["metadata"]), ("Revision", found["spec"]["template"]["metadata"])):
        for annotation in metadata["annotations"]:
            assert level in levels[annotation], annotation


@pytest.mark.parametrize("name", SERVICES)
def test_work_between_requests_gets_a_cpu_and_a_stream_gets_an_hour(name):
    template = service(name)["spec"]["template"]
    assert template["metadata"]["annotations"]["run.googleapis.com/cpu-throttling"] == "false"
    assert template["metadata"]["annotations"]["run.googleapis.com/sessionAffinity"] == "true"
    assert template["spec"]["timeoutSeconds"] == 3600
    (host,) = resource("google_cloud_run_v2_service", "host")["template"]
    assert host["containers"][0]["resources"][0]["cpu_idle"] is False
    assert host["session_affinity"] is True
    assert variables()["timeout_seconds"]["default"] == 3600


def test_probes_ask_health_and_ready_and_are_the_same_everywhere():
    (host,) = resource("google_cloud_run_v2_service", "host")["template"]
    for kind in PROBES:
        http, grpc = (container(name)[f"{kind}Probe"] for name in SERVICES)
        path = "/ready" if kind == "readiness" else "/health"
        assert http.pop("httpGet") == {"path": path}
        assert grpc.pop("grpc") == {"port": 8080}
        (terraform,) = host["containers"][0][f"{kind}_probe"]
        numbers = {re.sub("_(.)", lambda m: m[1].upper(), k): v for k, v in terraform.items() if k != "dynamic"}
        assert http == grpc == numbers
        assert http["timeoutSeconds"] <= http["periodSeconds"]
        assert [block["http_get"]["for_each"] for block in terraform["dynamic"] if "http_get" in block] == [
            f'${{each.key == "http" ? ["{path}"] : []}}'
        ]
        assert dynamic(terraform, "grpc") == [{"port": "${grpc.value}"}]


def test_one_service_takes_http_and_the_other_grpc():
    assert [container(name)["ports"][0]["name"] for name in SERVICES] == ["http1", "h2c"]
    assert environment("service-grpc.yaml")["A2A_GCS_GRPC_ONLY"] == "true"
    services = "".join(str(block.get("services", "")) for block in blocks("locals"))
    assert re.findall(r'port = "(\w+)"', services) == ["http1", "h2c"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_card_names_the_service_that_it_comes_from(name):
    """A host on every address that is not told its name tells clients loopback."""
    found, filled_in = service(name)["metadata"]["name"], FILLED_IN
    address = f"https://{found}-{filled_in['PROJECT_NUMBER']}.{filled_in['REGION']}.run.app"
    assert environment(name)["A2A_GCS_PUBLIC_URL"] == address


def test_each_service_of_the_module_is_told_its_name():
    """As the definitions without Terraform are, each by its own."""
    services = "".join(str(block.get("services", "")) for block in blocks("locals"))
    told = re.findall(r'A2A_GCS_PUBLIC_URL = "https://([^"]*)-\$\{local.domain\}"', services)
    assert told == ["${var.name}", "${var.name}-grpc"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_host_can_be_made_with_the_environment_of_a_service(name, monkeypatch):
    monkeypatch.setenv("K_SERVICE", "a2a-gcs")  # Cloud Run sets it
    monkeypatch.setenv("A2A_GCS_HOST", "0.0.0.0")  # the image sets it
    for variable, value in environment(name).items():
        monkeypatch.setenv(variable, value)
    settings = Settings()
    assert settings.store == "gs://my-bucket"
    assert settings.auth == "cloud-run-iam"
    assert settings.grpc_only is (name == "service-grpc.yaml")


def test_infra_sets_no_variable_that_is_no_setting():
    texts = {path: path.read_text() for path in INFRA.rglob("*") if path.is_file()} | {"module": text_of_module()}
    known = {f"A2A_GCS_{name.upper()}" for name in Settings.model_fields} | {"A2A_GCS_CONFIG"}
    for path, text in texts.items():
        assert set(re.findall(r"A2A_GCS_[A-Z_]+[A-Z]", text)) <= known, path
    named = set(re.findall(r"A2A_GCS_[A-Z_]+[A-Z]", texts["module"]))
    assert {"A2A_GCS_STORE", "A2A_GCS_AUTH", "A2A_GCS_PUBLIC_URL", "A2A_GCS_WORK_DIR", "A2A_GCS_GRPC_ONLY"} <= named
