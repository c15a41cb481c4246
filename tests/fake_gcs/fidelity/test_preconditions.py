"""Rule `preconditions`."""

import concurrent.futures

import pytest

from tests.fake_gcs.fidelity.api import reason

UPLOADS = ["media", "multipart", "resumable"]


@pytest.fixture(params=UPLOADS)
def upload(api, request):
    return getattr(api, request.param)


def write(api, verb, **conditions):
    """One write to the object by each verb."""
    name, source = api.name(), api.name("source")
    if verb in {"compose", "copyTo", "rewriteTo"} and not api.generation(source):
        api.put(b"source", source)
    if verb in UPLOADS:
        return getattr(api, verb)(b"new", **conditions)
    if verb == "delete":
        return api.write("DELETE", api.object(), **conditions)
    if verb in {"patch", "update"}:
        method = {"patch": "PATCH", "update": "PUT"}[verb]
        return api.write(method, api.object(), content={"metadata": {"k": "v"}}, **conditions)
    if verb == "compose":
        return api.write(
            "POST", api.object(name, "/compose"), content={"sourceObjects": [{"name": source}]}, **conditions
        )
    target = api.object(name).removeprefix("/storage/v1")
    return api.write("POST", api.object(source, f"/{verb}{target}"), content={}, **conditions)


OVERWRITES = [*UPLOADS, "compose", "copyTo", "rewriteTo"]
WRITES = [*OVERWRITES, "patch", "update", "delete"]


def test_insert_if_absent_creates(api, upload):
    """With ifGenerationMatch=0 an object that does not exist is created."""
    assert upload(ifGenerationMatch=0).status_code == 200
    assert api.read().content == b"body"


def test_insert_if_absent_leaves_an_existing_object(api, upload):
    """With ifGenerationMatch=0 an object that exists is 412 conditionNotMet, and stays as it was."""
    before = api.put(b"old")
    response = upload(ifGenerationMatch=0)
    assert response.status_code == 412
    assert api.generation() == int(before["generation"])
    assert api.read().content == b"old"


@pytest.mark.parametrize("verb", WRITES)
def test_matching_generation_writes(api, verb):
    """A write whose ifGenerationMatch is the live generation is done, by every verb."""
    before = api.put(b"old")
    assert write(api, verb, ifGenerationMatch=before["generation"]).status_code in {200, 204}
    changed = (
        api.generation() != int(before["generation"])
        if verb not in {"patch", "update"}
        else api.get().json()["metadata"]
    )
    assert changed


@pytest.mark.parametrize("verb", WRITES)
def test_other_generation_is_412(api, verb):
    """A write whose ifGenerationMatch is another generation changes nothing, by every verb."""
    before = api.put(b"old")
    response = write(api, verb, ifGenerationMatch=int(before["generation"]) - 1)
    assert response.status_code == 412
    after = api.get().json()
    assert (after["generation"], after["metageneration"]) == (before["generation"], before["metageneration"])


@pytest.mark.parametrize("verb", WRITES)
def test_same_generation_under_not_match_is_304(api, verb):
    """A write whose ifGenerationNotMatch is the live generation is 304, as a read is, and changes nothing."""
    before = api.put(b"old")
    assert write(api, verb, ifGenerationNotMatch=before["generation"]).status_code == 304
    assert api.generation() == int(before["generation"])


@pytest.mark.parametrize("verb", WRITES)
def test_other_metageneration_is_412(api, verb):
    """A write whose ifMetagenerationMatch is another metageneration changes nothing."""
    before = api.put(b"old")
    assert write(api, verb, ifMetagenerationMatch=7).status_code == 412
    assert api.generation() == int(before["generation"])


@pytest.mark.parametrize("verb", OVERWRITES)
@pytest.mark.parametrize("condition", ["ifGenerationNotMatch", "ifMetagenerationNotMatch"])
@pytest.mark.parametrize("number", [0, 7])
def test_not_match_fails_where_there_is_no_object(api, verb, condition, number):
    """Where no live object exists a NotMatch condition fails, whatever its number."""
    assert write(api, verb, **{condition: number}).status_code in {304, 412}
    assert api.generation() == 0


@pytest.mark.parametrize("verb", OVERWRITES)
def test_generation_of_an_absent_object_is_412(api, verb):
    """A number other than 0 in ifGenerationMatch never matches an object that is not there."""
    assert write(api, verb, ifGenerationMatch=7).status_code == 412
    assert api.generation() == 0


@pytest.mark.parametrize("verb", ["patch", "update", "delete"])
def test_condition_on_what_is_not_there_is_404(api, verb):
    """Changing or deleting an object that is not there is 404, whatever the condition."""
    assert write(api, verb, ifGenerationMatch=7).status_code == 404


@pytest.mark.parametrize("alt", ["json", "media"])
def test_read_with_other_generation_is_412(api, alt):
    """A read whose ifGenerationMatch is another generation is 412."""
    before = api.put()
    assert api.get(alt=alt, ifGenerationMatch=before["generation"]).status_code == 200
    assert api.get(alt=alt, ifGenerationMatch=int(before["generation"]) - 1).status_code == 412


@pytest.mark.parametrize("alt", ["json", "media"])
def test_unchanged_read_is_304(api, alt):
    """A read whose ifGenerationNotMatch is the live generation is 304 without a body; another one reads."""
    before = api.put()
    response = api.get(alt=alt, ifGenerationNotMatch=before["generation"])
    assert (response.status_code, response.content) == (304, b"")
    assert api.get(alt=alt, ifGenerationNotMatch=int(before["generation"]) - 1).status_code == 200


def test_read_conditions_on_metageneration(api):
    """ifMetagenerationMatch and ifMetagenerationNotMatch hold for reads too: 412 and 304."""
    api.put()
    assert api.get(ifMetagenerationMatch=1).status_code == 200
    assert api.get(ifMetagenerationMatch=2).status_code == 412
    assert api.get(ifMetagenerationNotMatch=1).status_code == 304


def test_metageneration_follows_patches(api):
    """A patch makes a metageneration of 2, which the next condition must name."""
    api.put()
    assert write(api, "patch").json()["metageneration"] == "2"
    assert write(api, "patch", ifMetagenerationMatch=1).status_code == 412
    assert write(api, "patch", ifMetagenerationMatch=2).status_code == 200


def test_resumable_condition_is_checked_at_the_end(api):
    """A resumable upload starts whatever its condition; what counts is the object when it is finalized."""
    location = api.start(ifGenerationMatch=0)
    api.put(b"somebody else was faster")
    assert api.chunk(location, b"late").status_code == 412
    assert api.read().content == b"somebody else was faster"


def test_compose_holds_the_generations_of_its_sources(api):
    """A compose whose source has another generation than objectPreconditions names is 412 and writes nothing."""
    source = api.put(b"source", api.name("source"))

    def compose(generation):
        named = {"name": api.name("source"), "objectPreconditions": {"ifGenerationMatch": str(generation)}}
        return api.write("POST", api.object(suffix="/compose"), content={"sourceObjects": [named]})

    assert compose(int(source["generation"]) - 1).status_code == 412
    assert api.generation() == 0
    assert compose(source["generation"]).status_code == 200


@pytest.mark.parametrize("verb", ["copyTo", "rewriteTo"])
def test_copy_holds_the_generation_of_its_source(api, verb):
    """A copy whose source has another generation than ifSourceGenerationMatch names is 412."""
    source = api.put(b"source", api.name("source"))
    assert write(api, verb, ifSourceGenerationMatch=int(source["generation"]) - 1).status_code == 412
    assert api.generation() == 0
    assert write(api, verb, ifSourceGenerationMatch=source["generation"]).status_code == 200


@pytest.mark.parametrize("verb", UPLOADS)
def test_one_of_many_racers_creates(api, verb):
    """Of 20 simultaneous creations exactly one wins; the others are 412 (429 counts as lost, too)."""

    def attempt(number):
        return getattr(api, verb)(b"%d" % number, ifGenerationMatch=0)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        responses = list(pool.map(attempt, range(20)))
    assert sorted(response.status_code for response in responses) == [200] + 19 * [412]
    winner = next(number for number, response in enumerate(responses) if response.status_code == 200)
    assert api.read().content == b"%d" % winner


def test_condition_that_is_no_number_is_invalid(api):
    """A condition that is not a number is 400 invalid and writes nothing."""
    response = api.media(ifGenerationMatch="abc")
    assert response.status_code == 400
    assert reason(response) == "invalid"
    assert api.generation() == 0
