"""The commands' connection to a host, over A2A alone, and the host's refusals in the words of the command line."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

import httpx
from a2a.client import A2AClientError, AgentCardResolutionError, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import TaskState
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError

from a2a_gcs.cli.credentials import BearerFor
from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from a2a.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
CONNECT_SECONDS = 10.0
_DENIED = (401, 403)
_NOT_FOUND = 404


@contextlib.asynccontextmanager
async def connect(url: str, token: str | None, *, other_origin: bool = False) -> AsyncIterator[Client]:
    """A client of the agent whose card is at the URL. Answers may take as long as the agent works.

    Args:
        url: Where the card is.
        token: Sent with every request.
        other_origin: The token may be sent to an agent at another origin, if the card says so.

    Raises:
        ConfigError: The URL is none.
        CommandFailed: Nothing answers, or what answers refuses; also from the body of the `async with`.
    """
    async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=CONNECT_SECONDS)) as http:
        config = ClientConfig(
            httpx_client=http,
            supported_protocol_bindings=[TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON],
        )
        try:
            if token:
                http.auth = BearerFor(token, url, anywhere=other_origin)
            yield await ClientFactory(config).create_from_url(url)
        except A2AError as error:
            if isinstance(error.__cause__, httpx.UnsupportedProtocol):
                raise ConfigError(f"--url {url}: {error.__cause__}") from error
            raise CommandFailed(_explained(error, url)) from error
        except httpx.InvalidURL as error:
            raise ConfigError(f"--url {url}: {error}") from error
        except ValueError as error:  # of the factory, for a card without an interface for us
            raise CommandFailed(f"{url}: {error}; this client speaks JSON-RPC and HTTP+JSON") from error


def state_name(state: TaskState) -> str:
    """`input-required`, as people write it."""
    name: str = TaskState.Name(state)
    return name.removeprefix("TASK_STATE_").lower().replace("_", "-")


def command(name: str, url: str, *arguments: str) -> str:
    """A command line that can be pasted."""
    where = [] if url == DEFAULT_URL else ["--url", url]
    return shlex.join(["a2a-gcs", name, *where, *arguments])


def _explained(error: A2AError, url: str) -> str:
    if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
        return f"nothing answers at {url}; start a host with `make run` or `a2a-gcs serve`, or name another with --url"
    if isinstance(error.__cause__, httpx.RequestError):
        return f"the connection to {url} broke: {error.__cause__ or type(error.__cause__).__name__}"
    if isinstance(error.__cause__, httpx.HTTPStatusError) and error.__cause__.response.status_code in _DENIED:
        return _wants_credentials(url, error.__cause__.response.status_code)
    if isinstance(error, AgentCardResolutionError):
        return _no_card(error, url)
    if isinstance(error, A2AClientError):
        return f"{url}: {error.message}"
    return _refused(error, url)


def _no_card(error: AgentCardResolutionError, url: str) -> str:
    if error.status_code in _DENIED:
        return _wants_credentials(url, error.status_code)
    if error.status_code == _NOT_FOUND:
        several = "where a host has several agents, --url names one: URL/AGENT"
        return f"there is no agent card at {url} (HTTP 404); {several}"
    return f"{url} is no A2A host: {error.message.splitlines()[0]}"


def _wants_credentials(url: str, status: int) -> str:
    return f"{url} wants credentials (HTTP {status}): give them with --token"


def _refused(error: A2AError, url: str) -> str:
    data = error.data or {}
    if isinstance(error, TaskNotFoundError):
        return f"{error.message}: {url} does not know it"
    if isinstance(error, TaskNotCancelableError):
        return f"{error.message}: it has ended already"
    task = data.get("activeTaskId")
    if data.get("reason") != "CONTEXT_BUSY" or not task:
        return error.message
    state = data.get("state", "").lower().replace("_", "-")
    if state.endswith("submitted"):  # it is not there yet: nobody can cancel it
        return f"{error.message} (CONTEXT_BUSY)"
    ways = [f"to cancel it: {command('cancel', url, task)}"]
    if state.endswith("input-required"):
        ways.insert(0, f"to answer it: {command('send', url, '--task', task, 'your answer')}")
    return "\n       ".join([f"{error.message} (CONTEXT_BUSY)", *ways])
