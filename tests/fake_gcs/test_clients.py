"""Unmodified clients work through the gateway with nothing but STORAGE_EMULATOR_HOST."""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from gcsfs.core import GCSFileSystem
from google.api_core.exceptions import NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage  # noqa: TID251 - the client is what is tried here


@pytest.fixture
def bucket_name(fake_gcs_server):
    return fake_gcs_server.create_bucket()


@pytest.fixture
def client(fake_gcs_server, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs_server.url)
    with storage.Client(project="p", credentials=AnonymousCredentials()) as client:
        yield client


@pytest.fixture
def bucket(client, bucket_name):
    return client.bucket(bucket_name)


def test_round_trip(bucket):
    """google-cloud-storage stores and reads text with custom metadata, and checks its checksum."""
    blob = bucket.blob("folder/ä b.txt")
    blob.metadata = {"Owner": "me"}
    blob.upload_from_string("text", content_type="text/plain", checksum="crc32c")
    found = bucket.get_blob("folder/ä b.txt")
    assert (found.metadata, found.content_type, found.size) == ({"Owner": "me"}, "text/plain", 4)
    assert found.download_as_bytes(checksum="md5") == b"text"


def test_resumable_upload(bucket):
    """A file above the chunk size goes as a resumable upload, and comes back in ranges."""
    body = os.urandom(3 * 1024 * 1024 + 17)
    blob = bucket.blob("big", chunk_size=256 * 1024)
    blob.upload_from_file(io.BytesIO(body), size=len(body))
    assert bucket.blob("big", chunk_size=1024 * 1024).download_as_bytes() == body


def test_stream_of_unknown_length(bucket):
    """A writer that does not know its length ahead is a resumable upload, too."""
    with bucket.blob("stream").open("wb", chunk_size=256 * 1024) as writer:
        for number in range(100):
            writer.write(b"%d" % (number % 10) * 10_000)
    assert len(bucket.blob("stream").download_as_bytes()) == 1_000_000


def test_conditions(bucket):
    """if_generation_match raises PreconditionFailed for an upload, a delete and a read."""
    blob = bucket.blob("once")
    blob.upload_from_string("1", if_generation_match=0)
    for attempt in (
        lambda: blob.upload_from_string("2", if_generation_match=0),
        lambda: blob.delete(if_generation_match=1),
        lambda: blob.download_as_bytes(if_generation_match=1),
    ):
        with pytest.raises(PreconditionFailed):
            attempt()
    assert blob.download_as_bytes() == b"1"


def test_missing_object(bucket):
    """An object that is not there raises NotFound, and exists() is False."""
    with pytest.raises(NotFound):
        bucket.blob("none").download_as_bytes()
    assert not bucket.blob("none").exists()


def test_listing(client, bucket):
    """Listings page through, fold prefixes, and select fields."""
    for number in range(5):
        bucket.blob(f"dir/{number}").upload_from_string("x")
    bucket.blob("top").upload_from_string("x")
    assert [blob.name for blob in client.list_blobs(bucket, page_size=2)] == [*(f"dir/{n}" for n in range(5)), "top"]
    folded = client.list_blobs(bucket, delimiter="/", fields="items(name),prefixes,nextPageToken")
    assert ([blob.name for blob in folded], folded.prefixes) == (["top"], {"dir/"})


def test_compose_copy_and_patch(bucket):
    """compose, copy_blob, rewrite and patch."""
    for name in ("a", "b"):
        bucket.blob(name).upload_from_string(name)
    joined = bucket.blob("ab")
    joined.compose([bucket.blob("a"), bucket.blob("b")])
    bucket.copy_blob(joined, bucket, "copy")
    bucket.blob("copy2").rewrite(joined)
    copy = bucket.get_blob("copy")
    copy.metadata = {"k": "v"}
    copy.patch()
    assert bucket.get_blob("copy").metadata == {"k": "v"}
    assert bucket.blob("copy2").download_as_bytes() == b"ab"


def test_batch(client, bucket):
    """A batch deletes many at once."""
    names = [f"gone/{number}" for number in range(20)]
    for name in names:
        bucket.blob(name).upload_from_string("x")
    with client.batch():
        for name in names:
            bucket.delete_blob(name)
    assert not list(client.list_blobs(bucket))


def test_gzip_object(bucket):
    """A gzip-encoded object comes back decompressed, or raw on request."""
    packed = gzip.compress(b"text" * 1000)
    blob = bucket.blob("packed")
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed)
    assert blob.download_as_bytes() == b"text" * 1000
    assert blob.download_as_bytes(raw_download=True) == packed


def test_bucket_settings(client, bucket_name):
    """Lifecycle rules, versioning and IAM configuration are stored and read back."""
    bucket = client.get_bucket(bucket_name)
    bucket.add_lifecycle_delete_rule(age=1, matches_suffix=[".events.json"])
    bucket.versioning_enabled = True
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.patch()
    again = client.get_bucket(bucket_name)
    assert [rule["condition"]["age"] for rule in again.lifecycle_rules] == [1]
    assert again.versioning_enabled
    assert again.iam_configuration.uniform_bucket_level_access_enabled
    policy = again.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"allUsers"}})
    again.set_iam_policy(policy)
    assert list(again.get_iam_policy()) == ["roles/storage.objectViewer"]


def test_new_and_deleted_bucket(client):
    """Buckets are created, listed and deleted."""
    bucket = client.create_bucket("made-by-a-client")
    assert bucket.name in {found.name for found in client.list_buckets()}
    bucket.delete()
    assert not bucket.exists()


def test_signed_url_shape(fake_gcs_server, bucket):
    """The path of a signed URL, /BUCKET/OBJECT, puts and gets; what signs it is not looked at."""
    url = f"{fake_gcs_server.url}/{bucket.name}/a/b?X-Goog-Signature=00"
    subprocess.run(["curl", "-sSf", "-X", "PUT", "-H", "x-goog-meta-k: v", "--data-binary", "body", url], check=True)
    assert subprocess.run(["curl", "-sSf", url], capture_output=True, check=True).stdout == b"body"
    assert bucket.get_blob("a/b").metadata == {"k": "v"}
    head = subprocess.run(["curl", "-sSfI", url], capture_output=True, check=True, text=True).stdout.lower()
    assert "content-length: 4" in head
    assert "x-goog-meta-k: v" in head


# gcsfs


@pytest.fixture
def fs(fake_gcs_server, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs_server.url)
    return GCSFileSystem(project="p", token="anon", skip_instance_cache=True, use_listings_cache=False)


def test_gcsfs_round_trip(fs, bucket_name):
    """gcsfs writes, reads, lists, and deletes a tree in a batch."""
    for name in ("a", "dir/b", "dir/c"):
        fs.pipe(f"{bucket_name}/{name}", name.encode())
    assert fs.cat(f"{bucket_name}/dir/b") == b"dir/b"
    assert fs.cat_file(f"{bucket_name}/dir/b", start=1, end=3) == b"ir"
    assert sorted(fs.find(bucket_name)) == [f"{bucket_name}/{name}" for name in ("a", "dir/b", "dir/c")]
    assert sorted(fs.ls(bucket_name)) == [f"{bucket_name}/a", f"{bucket_name}/dir"]
    fs.rm(f"{bucket_name}/dir", recursive=True)
    assert fs.find(bucket_name) == [f"{bucket_name}/a"]


def test_gcsfs_resumable_upload(fs, bucket_name):
    """gcsfs uploads a large file in chunks, and metadata goes with it."""
    body = os.urandom(1024 * 1024)
    with fs.open(f"{bucket_name}/big", "wb", block_size=256 * 1024, metadata={"k": "v"}) as writer:
        writer.write(body)
    assert fs.cat(f"{bucket_name}/big") == body
    assert fs.getxattr(f"{bucket_name}/big", "k") == "v"


def test_gcsfs_copy_and_move(fs, bucket_name):
    """gcsfs copies and moves."""
    fs.pipe(f"{bucket_name}/a", b"body")
    fs.cp_file(f"{bucket_name}/a", f"{bucket_name}/b")
    fs.mv(f"{bucket_name}/a", f"{bucket_name}/c")
    assert sorted(fs.find(bucket_name)) == [f"{bucket_name}/b", f"{bucket_name}/c"]
    assert fs.cat(f"{bucket_name}/c") == b"body"


# curl

CURL = shutil.which("curl")


def curl(*arguments):
    ended = subprocess.run([CURL, "-sS", "-w", "\n%{http_code}", *arguments], capture_output=True, check=True)
    body, _, status = ended.stdout.rpartition(b"\n")
    return int(status), body


def test_curl_round_trip(fake_gcs_server, bucket_name):
    """curl uploads, reads, conditions and deletes with plain requests."""
    upload = f"{fake_gcs_server.url}/upload/storage/v1/b/{bucket_name}/o?uploadType=media&name=a%2Fb"
    path = f"{fake_gcs_server.url}/storage/v1/b/{bucket_name}/o/a%2Fb"
    status, body = curl("--data-binary", "body", "-H", "Content-Type: text/plain", upload)
    assert (status, json.loads(body)["name"]) == (200, "a/b")
    assert curl(f"{path}?alt=media") == (200, b"body")
    assert curl("--data-binary", "new", f"{upload}&ifGenerationMatch=0")[0] == 412
    assert curl("-X", "DELETE", path) == (204, b"")
    assert curl(path)[0] == 404


def test_curl_resumable_upload(fake_gcs_server, bucket_name, tmp_path):
    """curl uploads a file of several MiB resumably; it asks before it sends (Expect: 100-continue)."""
    body = tmp_path / "body"
    body.write_bytes(os.urandom(3 * 1024 * 1024))
    start = f"{fake_gcs_server.url}/upload/storage/v1/b/{bucket_name}/o?uploadType=resumable&name=big"
    head = subprocess.run(
        [CURL, "-sSD", "-", "-o", os.devnull, "-X", "POST", start], capture_output=True, text=True, check=True
    )
    location = next(line.split()[1] for line in head.stdout.splitlines() if line.lower().startswith("location:"))
    assert curl("-H", "Expect: 100-continue", "-T", str(body), location)[0] == 200
    status, downloaded = curl(f"{fake_gcs_server.url}/storage/v1/b/{bucket_name}/o/big?alt=media")
    assert (status, downloaded) == (200, body.read_bytes())


def test_nothing_but_the_variable_is_set(fake_gcs_server, bucket_name):
    """A program that sets nothing but STORAGE_EMULATOR_HOST, and has no credentials, reads and writes."""
    program = textwrap.dedent(
        f"""
        from google.cloud import storage
        blob = storage.Client().bucket("{bucket_name}").blob("a")
        blob.upload_from_string("body")
        print(blob.download_as_text())
        """
    )
    env = {"STORAGE_EMULATOR_HOST": fake_gcs_server.url, "PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    ended = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert ended.stdout == "body\n", ended.stderr
