"""Where the service runs, and how it is billed: what people say, or what Cloud Run says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import google.auth
import httpx
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import Request

from a2a_gcs.doctor.checks import NotChecked

_METADATA = "http://{host}/computeMetadata/v1/{path}"
_RUN = "https://run.googleapis.com/"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SECONDS = 3.0


@dataclass(frozen=True)
class Surroundings:
    """The service that uses the bucket.

    Attributes:
        environ: The environment, as of Cloud Run or of a shell with gcloud's variables.
        project: Project that people mean, by id or number.
        named_region: Where the service runs, if people say so.
        named_service: Its name on Cloud Run, likewise.
    """

    environ: Mapping[str, str]
    project: str | None = None
    named_region: str | None = None
    named_service: str | None = None

    async def region(self) -> str | None:
        """Where the service runs; None if nobody knows."""
        if self.named_region:
            return self.named_region
        text = await self._metadata("instance/region")
        return text.rpartition("/")[2] if text else None

    async def run_service(self) -> Mapping[str, Any]:
        """The service's configuration as the Cloud Run Admin API v2 tells it. Raises NotChecked."""
        name = self.named_service or self.environ.get("K_SERVICE")
        if not name:
            raise NotChecked("no Cloud Run service is named: --run-service")
        region = await self.region()
        project = self.project or await self._metadata("project/project-id")
        if not region or not project:
            raise NotChecked(f"where Cloud Run service {name} is, is not known: --region and --project")
        base = self.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_RUN", _RUN).rstrip("/")
        url = f"{base}/v2/projects/{project}/locations/{region}/services/{name}"
        try:
            headers = await asyncio.to_thread(self._authorization)
            async with httpx.AsyncClient(timeout=_SECONDS) as http:
                response = await http.get(url, headers=headers)
                response.raise_for_status()
                service: Mapping[str, Any] = response.json()
        except (httpx.HTTPError, GoogleAuthError, ValueError) as e:
            raise NotChecked(f"Cloud Run service {name} cannot be read: {type(e).__name__}: {e}") from e
        return service

    def _authorization(self) -> dict[str, str]:
        if "CLOUDSDK_API_ENDPOINT_OVERRIDES_RUN" in self.environ:  # not Google, so it gets no token of Google's
            return {}
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        credentials.refresh(Request())  # type: ignore[no-untyped-call]
        return {"Authorization": f"Bearer {credentials.token}"}

    async def _metadata(self, path: str) -> str | None:
        """What the metadata server says, on Cloud Run alone: elsewhere nobody may answer for seconds."""
        if "K_SERVICE" not in self.environ:
            return None
        host = self.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        try:
            async with httpx.AsyncClient(timeout=_SECONDS) as http:
                answer = await http.get(_METADATA.format(host=host, path=path), headers={"Metadata-Flavor": "Google"})
                return answer.text if answer.is_success else None
        except httpx.HTTPError:
            return None
