"""What google-adk's RemoteA2aAgent makes of a host: python adk.py URL. It has neither cancel nor list."""

import asyncio
import json
import sys

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types


async def turn(runner, session, text, mode=StreamingMode.NONE):
    """The events of one message of a user."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    return [
        event
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=message, run_config=RunConfig(streaming_mode=mode)
        )
    ]


def said(events):
    return "".join(part.text or "" for e in events if e.content for part in e.content.parts or [])


def task_of(events):
    return next((e.custom_metadata["a2a:task_id"] for e in events if "a2a:task_id" in (e.custom_metadata or {})), None)


async def main(url):
    agent = RemoteA2aAgent(name="remote", agent_card=f"{url}/.well-known/agent-card.json")
    runner = InMemoryRunner(agent=agent, app_name="clients")
    session = await runner.session_service.create_session(app_name="clients", user_id="u")
    found = {"send": said(await turn(runner, session, "hello"))}
    found["stream"] = said(await turn(runner, session, "stream 3", StreamingMode.SSE))
    asked = await turn(runner, session, "ask blue or green?")
    found["asked"] = json.dumps([event.model_dump(mode="json") for event in asked])
    answered = await turn(runner, session, "blue")
    found["answered"] = said(answered)
    found["same_task"] = task_of(asked) is not None and task_of(asked) == task_of(answered)
    found["read"] = said(await turn(runner, session, "read journal.md"))
    await runner.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
