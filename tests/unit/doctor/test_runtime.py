"""The clock, and the billing of a Cloud Run service, which a small metadata server and Admin API tell."""

import http.server
import json
import threading
from collections import defaultdict

import pytest

from a2a_gcs.doctor.surroundings import Surroundings
from tests.support.doctor import examined, found, only


@pytest.mark.parametrize(("seconds", "way"), [(90, "behind"), (-90, "ahead of"), (40, None), (-40, None)])
async def test_a_clock_that_is_off_by_more_than_a_minute(bucket, seconds, way):
    """Against the store's own clock, either way."""
    bucket.clock.now += seconds
    await bucket.living.beat()
    results = await examined(bucket.store)
    if way is None:
        assert found(results) == set()
    else:
        assert f"s {way} the store's" in only(results, "clock").found


@pytest.fixture
def google():
    """A server for what Google says of a service: its answers by path, of which the test may change any."""
    answers = defaultdict(str)

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = answers[self.path]
            self.send_response(200 if text else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever).start()
        answers["host"] = f"127.0.0.1:{server.server_port}"
        answers["/computeMetadata/v1/instance/region"] = "projects/1/regions/us-central1"
        answers["/computeMetadata/v1/project/project-id"] = "p"
        yield answers
        server.shutdown()


SERVICE = "/v2/projects/p/locations/us-central1/services/agents"


def on_cloud_run(google):
    return Surroundings(
        {
            "K_SERVICE": "agents",
            "GCE_METADATA_HOST": google["host"],
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_RUN": f"http://{google['host']}/",
        }
    )


@pytest.mark.parametrize("idle", [True, False])
async def test_a_service_that_is_billed_by_request(bucket, google, idle):
    """Its CPU is idle between requests: named, with the command that changes that; else all is good."""
    service = {"name": f"{SERVICE[4:]}", "template": {"containers": [{"resources": {"cpuIdle": idle}}]}}
    google[SERVICE] = json.dumps(service)
    results = await examined(bucket.store, surroundings=on_cloud_run(google))
    if idle:
        assert "gcloud run services update agents --no-cpu-throttling" in only(results, "billing").fix
    else:
        assert (found(results), results["billing"].good) == (set(), True)


async def test_a_service_that_cannot_be_read_is_not_checked(bucket, google):
    """Neither good nor bad, and the reason is told; nor is one that nobody names."""
    results = await examined(bucket.store, surroundings=on_cloud_run(google))
    assert "Cloud Run service agents cannot be read" in results["billing"].not_checked
    results = await examined(bucket.store)
    assert "--run-service" in results["billing"].not_checked
