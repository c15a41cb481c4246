"""Rule `write_limit`."""

import contextlib
import time

import pytest

from tests.fake_gcs.fidelity.api import reason


@contextlib.contextmanager
def limit(api, burst):
    """The limit as it is on real GCS, where nobody knows the burst."""
    if api.kind == "gateway":
        with api.server.settings(write_limit_burst=burst):
            yield
    else:
        yield


def upload(api, **params):
    return api.call("POST", api.uploads, content=b"x", uploadType="media", name=api.name(), **params)


def delete(api):
    return api.call("DELETE", api.object())


def patch(api):
    return api.call("PATCH", api.object(), content={"metadata": {"k": "v"}})


@pytest.mark.parametrize("burst", [1, 2])
def test_writes_to_one_name_are_limited(api, burst):
    """A quick series of writes to one name meets 429 rateLimitExceeded, and nothing of that write is stored."""
    with limit(api, burst):
        stored = None
        for _ in range(100):
            response = upload(api)
            if response.status_code == 429:
                break
            stored = response.json()["generation"]
        assert response.status_code == 429
        assert reason(response) == "rateLimitExceeded"
        assert api.get().json()["generation"] == stored


@pytest.mark.parametrize("verb", [upload, patch, delete], ids=["upload", "patch", "delete"])
def test_every_mutation_counts(api, verb):
    """Creating, overwriting, patching and deleting count together."""
    with limit(api, 1):
        statuses = [upload(api).status_code]
        while statuses[-1] != 429 and len(statuses) < 50:
            statuses += [upload(api).status_code, verb(api).status_code]
        assert statuses[-1] == 429


@pytest.mark.parametrize("burst", [1, 2])
def test_failed_preconditions_do_not_count(api, burst):
    """Any number of failed preconditions leaves the limit untouched."""
    with limit(api, burst):
        assert upload(api).status_code == 200
        assert {upload(api, ifGenerationMatch=0).status_code for _ in range(10)} == {412}


def test_other_names_are_free(api):
    """The limit is one name's: many names can be written at once."""
    with limit(api, 1):
        assert {
            api.call("POST", api.uploads, content=b"x", uploadType="media", name=api.name(str(number))).status_code
            for number in range(20)
        } == {200}


def test_a_second_later_it_goes_on(api):
    """One write a second goes on for ever: a refused writer who waits a second succeeds."""
    with limit(api, 1):
        assert 429 in (upload(api).status_code for _ in range(100))
        deadline = time.monotonic() + 5
        while (response := upload(api)).status_code == 429:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert response.status_code == 200
