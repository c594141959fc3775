"""One task from the first event to the exit code: 0 done, 1 failed, 143 asked to end."""

import gc
import os
import signal
import time
import traceback
from pathlib import Path
from typing import Any

from .events import Events
from .failures import RequestFailed
from .loop import Loop, take_up
from .servers import Servers
from .skills import expanded, find_skills
from .talk import Model, Tool
from .tools import Tools

DONE, FAILED, ASKED_TO_END = 0, 1, 143


class AskedToEnd(BaseException):
    """Raised wherever the process is when it is told to end, so that it can say what it had so far."""


def main(job: dict[str, Any]) -> int:
    events = Events()
    deadline = time.monotonic() + job["seconds"]
    session = _Session(job, events, deadline)
    signal.signal(signal.SIGTERM, _end)
    try:
        session.run()
    except AskedToEnd:
        session.tell_unfinished()
        return ASKED_TO_END
    except RequestFailed as failure:
        if failure.code == "protocol":
            traceback.print_exc()
        session.tell_unfinished()
        events.tell("error", **failure.facts())
        return FAILED
    except Exception as error:
        traceback.print_exc()
        events.tell("error", **RequestFailed(f"{type(error).__name__}: {error}"[:500], code="internal").facts())
        return FAILED
    return DONE


def _end(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise AskedToEnd


class _Session:
    def __init__(self, job: dict[str, Any], events: Events, deadline: float) -> None:
        self._job = job
        self._events = events
        self._deadline = deadline
        self._loop: Loop | None = None

    def run(self) -> None:
        job, events = self._job, self._events
        env = dict(os.environ)
        os.environ.update(job["variables"])  # the SDK's own; tools and servers get `env`
        events.tell("start", session=job["session"], servers=[server["name"] for server in job["servers"]])
        skills = find_skills(Path(job["skills_root"]), job["skills"])
        with Servers(job["servers"], env, job["workdir"], self._seconds_left) as servers:
            tools = Tools(job["workdir"], env, skills, self._seconds_left, servers.tools) if job["tools"] else None
            model = self._model(tools.offered if tools is not None else [])
            gc.freeze()
            gc.enable()

            def expand(text: str) -> str:
                return expanded(text, skills)

            take_up(model, job["history"], expand)
            model.user(expand(job["prompt"]))
            self._loop = Loop(model, tools, events, self._seconds_left, max_tokens=job["max_tokens"])
            self._loop.run()

    def tell_unfinished(self) -> None:
        """What the model had said of a reply that is not complete."""
        progress = self._loop.progress if self._loop is not None else None
        if progress is not None and progress.text.strip():
            self._events.tell("say", text=progress.text)

    def _seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def _model(self, tools: list[Tool]) -> Model:
        job = self._job
        given = (job["model"], job["system"], tools, job["seconds"])
        try:
            if job["protocol"] == "messages":
                from .messages import Messages

                return Messages(*given)
            if job["protocol"] == "responses":
                from .responses import Responses

                return Responses(*given, job["session"])
            from .chat import Chat

            return Chat(*given)
        except ImportError as error:
            raise RequestFailed(f"the SDK cannot be imported: {error}", code="sdk") from error
