"""The JSON API as the fidelity suite speaks it, to an emulator or to real GCS."""

from __future__ import annotations

import json
import time
import uuid
from urllib.parse import quote

import httpx

REAL = "https://storage.googleapis.com"


class Api:
    """One bucket of one server. Keys get a prefix of their own, so that a real bucket can be shared.

    Attributes:
        kind: `gateway`, `plain` or `real`.
        server: The emulator's handle, None for real GCS.
    """

    def __init__(self, kind, url, bucket, server=None, headers=None):
        self.kind = kind
        self.url = url
        self.bucket = bucket
        self.server = server
        self.prefix = f"fidelity/{uuid.uuid4().hex}/"
        self.http = httpx.Client(base_url=url, headers=headers or {}, timeout=60, trust_env=False)

    def name(self, key="object"):
        return self.prefix + key

    def call(self, method, path, *, content=b"", headers=None, **params):
        """Sends a request as it is, and answers the response."""
        body = json.dumps(content).encode() if isinstance(content, dict) else content
        headers = {"Content-Type": "application/json", **(headers or {})}
        return self.http.request(method, path, content=body, headers=headers, params=params)

    def write(self, *args, **kwargs):
        """Sends a request that may be over the write limit of real GCS, which is not the fact under test."""
        while (response := self.call(*args, **kwargs)).status_code == 429:
            time.sleep(1)
        return response

    def object(self, name=None, suffix=""):
        """The path of an object, or of what lies below it."""
        return f"/storage/v1/b/{self.bucket}/o/{quote(name or self.name(), safe='')}{suffix}"

    @property
    def uploads(self):
        return f"/upload/storage/v1/b/{self.bucket}/o"

    def media(self, body=b"body", name=None, *, headers=None, **params):
        return self.write(
            "POST", self.uploads, content=body, headers=headers, uploadType="media", name=name or self.name(), **params
        )

    def multipart(self, body=b"body", name=None, *, metadata=None, **params):
        boundary = uuid.uuid4().hex
        head = json.dumps({"name": name or self.name(), **(metadata or {})})
        content = (
            (
                f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{head}\r\n"
                f"--{boundary}\r\nContent-Type: text/plain\r\n\r\n"
            ).encode()
            + body
            + f"\r\n--{boundary}--\r\n".encode()
        )
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        return self.write("POST", self.uploads, content=content, headers=headers, uploadType="multipart", **params)

    def begin(self, name=None, *, metadata=None, headers=None, **params):
        """Asks for a resumable upload."""
        content = {"name": name or self.name(), **(metadata or {})}
        return self.call("POST", self.uploads, content=content, headers=headers, uploadType="resumable", **params)

    def start(self, *args, **kwargs):
        """Opens a resumable upload and answers its address."""
        response = self.begin(*args, **kwargs)
        assert response.status_code == 200, response.text
        return response.headers["Location"]

    def chunk(self, location, body, content_range=None, headers=None):
        """Sends a request of a resumable upload."""
        headers = {**({"Content-Range": content_range} if content_range else {}), **(headers or {})}
        while (response := self.http.put(location, content=body, headers=headers)).status_code == 429:
            time.sleep(1)
        return response

    def resumable(self, body=b"body", name=None, *, metadata=None, **params):
        """Uploads in one chunk; an upload that is refused at its start answers that."""
        response = self.begin(name, metadata=metadata, **params)
        return self.chunk(response.headers["Location"], body) if response.status_code == 200 else response

    def put(self, body=b"body", name=None):
        """Stores an object and answers its resource."""
        response = self.media(body, name)
        assert response.status_code == 200, response.text
        return response.json()

    def get(self, name=None, **params):
        return self.call("GET", self.object(name), **params)

    def read(self, name=None, *, headers=None, **params):
        return self.call("GET", self.object(name), headers=headers, alt="media", **params)

    def generation(self, name=None):
        """The live generation, 0 for none."""
        response = self.get(name)
        return int(response.json()["generation"]) if response.status_code == 200 else 0

    def list(self, prefix="", **params):
        return self.call("GET", f"/storage/v1/b/{self.bucket}/o", prefix=self.prefix + prefix, **params)

    def names(self, **params):
        """The keys below this test's prefix, from all pages."""
        found, token = [], {}
        while True:
            page = self.list(**params, **token).json()
            found += [item["name"].removeprefix(self.prefix) for item in page.get("items", [])]
            if "nextPageToken" not in page:
                return found
            token = {"pageToken": page["nextPageToken"]}

    def close(self):
        """Leaves a real bucket as it was found."""
        if self.kind == "real":
            for item in self.list(versions="true").json().get("items", []):
                self.call("DELETE", self.object(item["name"]), generation=item["generation"])
        self.http.close()


def reason(response):
    """The word of an error that clients branch on."""
    return response.json()["error"]["errors"][0]["reason"]
