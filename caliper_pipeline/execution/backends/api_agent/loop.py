"""One task as a conversation: ask, run the tools that were called, ask again, until the model is done.

A request that failed for a passing reason is asked again. Before anything was done there is little patience: whoever
started us has other attempts to think of, and begins anew as well. Later a whole conversation would be lost, so
everything is waited for that fits into the time.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from .events import Events
from .failures import RequestFailed
from .talk import Call, Model, Progress, Reply, Result
from .tools import Tools

MOST_REQUESTS = 250
MOST_CUT_REPLIES = 3
"""In a row: a model that cannot come to an end is not told to go on for ever."""
FIRST_PATIENCE_SECONDS = 5.0
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
GO_ON = "Your reply was cut off because it was too long. Go on from where it ended."
CUT_CALL = "Your reply was cut off before this call was complete, so nothing was done. Do it in smaller steps."


class Loop:
    def __init__(
        self,
        model: Model,
        tools: Tools | None,
        events: Events,
        seconds_left: Callable[[], float],
        *,
        max_tokens: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = model
        self._tools = tools
        self._events = events
        self._seconds_left = seconds_left
        self._max_tokens = max_tokens
        self._sleep = sleep
        self._requests = 0
        self._answered = False
        self._tokens = 0
        self.progress: Progress | None = None
        """Of the request under way."""

    def run(self) -> None:
        """Raises `RequestFailed`."""
        cut = 0
        while True:
            reply = self._ask()
            calls = self._tell(reply)
            cut = cut + 1 if reply.stop == "length" else 0
            if reply.stop == "context" or cut > MOST_CUT_REPLIES or (cut and self._tools is None):
                raise _cannot_end(reply.stop)
            if not calls and reply.stop not in ("length", "pause"):
                self._events.tell("end", reason=reply.stop)
                return
            self._check_limits()
            if calls:
                self._model.results(self._run_tools(calls, cut=reply.stop == "length"))
            elif reply.stop == "length":
                self._model.user(GO_ON)

    def _ask(self) -> Reply:
        tries, waited = 0, 0.0
        while True:
            self._requests += 1
            self.progress = progress = Progress(self._events, self._requests)
            try:
                reply = self._model.reply(progress)
            except RequestFailed as failure:
                self._tokens += progress.tokens
                usual = min(_LONGEST_WAIT, _FIRST_WAIT * 2**tries) * (1 + random.random() / 4)
                wait = usual if failure.retry_after is None else failure.retry_after
                patience = float("inf") if self._answered else FIRST_PATIENCE_SECONDS
                if not failure.transient or waited + wait > min(patience, self._seconds_left()):
                    raise
                self._events.tell("wait", seconds=round(wait, 3), **failure.facts())
                self._sleep(wait)
                tries, waited = tries + 1, waited + wait
            else:
                self._tokens += progress.tokens
                self._answered = True
                self.progress = None
                return reply

    def _tell(self, reply: Reply) -> list[Call]:
        for item in reply.items:
            if isinstance(item, str):
                self._events.tell("say", text=item)
            else:
                self._events.tell("call", id=item.id, tool=item.name, input=item.shown)
        return reply.calls

    def _check_limits(self) -> None:
        if self._max_tokens is not None and self._tokens >= self._max_tokens:
            text = f"the attempt used {self._tokens:,} tokens and may use {self._max_tokens:,}"
            raise RequestFailed(text, code="token_limit")
        if self._requests >= MOST_REQUESTS:
            raise RequestFailed(f"the model was asked {self._requests} times and did not come to an end", code="turns")

    def _run_tools(self, calls: Sequence[Call], *, cut: bool) -> list[tuple[Call, Result]]:
        """In their order, one at a time: a later one may build on an earlier."""
        done: list[tuple[Call, Result]] = []
        for call in calls:
            if cut and call.arguments is None:
                result = Result(CUT_CALL, failed=True)
            elif self._tools is None:
                result = Result("There are no tools.", failed=True)
            else:
                result = self._tools.run(call)
            self._events.tell("result", id=call.id, output=result.text, error=result.failed)
            done.append((call, result))
        return done


def _cannot_end(stop: str) -> RequestFailed:
    if stop == "context":
        return RequestFailed("the conversation is longer than the model can read", code="context")
    return RequestFailed("the model's answer was cut off at the limit of a reply", code="length")


def take_up(model: Model, history: Sequence[dict[str, Any]], expand: Callable[[str], str]) -> None:
    """Plant turns that were had before: `{"user": text}` or `{"assistant": text, "commands": [[run, output]…]}`."""
    for turn in history:
        if "user" in turn:
            model.user(expand(turn["user"]))
        else:
            model.assistant(turn["assistant"], [(run, output) for run, output in turn["commands"]])
