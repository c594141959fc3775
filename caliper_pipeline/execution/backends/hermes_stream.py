"""What a single-shot hermes call leaves behind, read: its text on standard output, its report, its exported sessions.

`hermes -z` prints a text and exits 0 whether a model answered or the provider refused; its report (`--usage-file`)
tells them apart by `failed`. The conversation is in the export that follows the text. The answer is taken from the
session alone: what is printed may be the command itself talking (an error, a note that the model said nothing).
Measured facts behind the choices (0.19.0):

- After a refusal the report names no session and counts no tokens, and the session holds the prompt at most.
- A compaction ends the session and goes on in another, which begins with a summary and copies of the last messages:
  a call that was seen before is a copy. (Compaction in place would lose the first turns: see `hermes_config`.)
- A sub-agent has a session of its own, whose tokens are not in its parent's. It belongs to the `delegate_task` call
  whose goal is its prompt.
- An answer that the output limit cut short is continued by the command, so it comes in pieces. A model that says
  nothing is recorded as `(empty)`.
- Results are mostly JSON; those of servers stand in a warning that they are only data.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.base import JudgeAnswer
from caliper_pipeline.execution.backends.hermes_servers import called_as_declared
from caliper_pipeline.execution.backends.hermes_sessions import (
    Message,
    Session,
    mapping,
    read_export,
    read_object,
    string,
    usage_in,
)

ERROR_CHARS = 2000
DELEGATE = "delegate_task"
EMPTY = "(empty)"
NOT_EXPORTED = "the session of this call could not be exported"
UNEXPLAINED = "the command reported a failure without a text"
_COMPACTION = "[CONTEXT COMPACTION"
_NUDGE = "[System:"
_STATUS = re.compile(r"(?:API call failed after \d+ retries: )?HTTP ([45]\d\d)\b")
_TOO_LONG = re.compile(
    r"context length exceeded|prompt is too long|maximum context length|arguments and environment are too long",
    re.IGNORECASE,
)
_UNKNOWN_TOOL = re.compile(r"Tool '[^'\n]*' does not exist\.")
_WRAPPED = re.compile(r"<untrusted_tool_result\b[^>]*>.*?^(\{.*)</untrusted_tool_result>", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Report:
    """What `--usage-file` tells of a call."""

    failed: bool | None = None
    """`None`: there is no report; the call did not get that far."""
    completed: bool = False
    failure: str | None = None
    session_id: str | None = None
    model: str | None = None
    usage: Usage | None = None

    @classmethod
    def of(cls, data: bytes | None) -> "Report":
        told = read_object(data) if data is not None else None
        if told is None:
            return cls()
        usage = usage_in(told)
        return cls(
            failed=told.get("failed") is True,
            completed=told.get("completed") is True,
            failure=string(told.get("failure")),
            session_id=string(told.get("session_id")),
            model=string(told.get("model")),
            usage=None if usage == Usage() else usage,
        )


def read_call(
    stdout: bytes,
    stderr: bytes,
    report: Report,
    *,
    exit_code: int | None,
    cut_off: bool = False,
    servers: Iterable[str] = (),
) -> AgentReply:
    """The reply of one call. `cut_off`: we ended it, so it has no report and no end. Never raises."""
    export = read_export(stdout)
    talk = _Talk.of(export.sessions, report.session_id, tuple(servers))
    usage = talk.usage(report.usage)
    spoke = bool(talk.turns) or bool(usage is not None and usage.total_tokens)
    error = None
    if not cut_off:
        if report.failed or exit_code != 0 or (report.failed is None and not talk.answered):
            # What the agent said is printed too, and is no word of the command's.
            printed = export.before.replace(talk.answer.strip(), "").strip() if talk.answered else export.before
            error = report.failure or printed or stderr.decode("utf-8", "replace").strip()
            error = error or (UNEXPLAINED if report.failed else None)
        elif report.failed is False and not export.sessions:
            error = NOT_EXPORTED
    return AgentReply(
        turns=talk.turns,
        final_answer=talk.answer,
        usage=usage,
        model=(report.model or talk.model) if spoke else None,
        session_id=report.session_id or talk.session_id,
        cli_error=error[:ERROR_CHARS] if error else None,
        error_status=http_status(error),
        finished=not cut_off and not error and exit_code == 0 and (report.completed or report.failed is None),
        unreadable_lines=export.unreadable,
    )


def read_judgement(
    stdout: bytes, stderr: bytes, report: Report, *, exit_code: int | None, start_error: str | None = None
) -> JudgeAnswer:
    """The answer of a judge: what was printed, unless the report tells that it is an error, or there is no report."""
    said = stdout.decode("utf-8", "replace").strip()
    if report.failed is False and exit_code == 0:
        return JudgeAnswer(text=said, model=report.model, usage=report.usage)
    complaint = stderr.decode("utf-8", "replace").strip()
    error = (report.failure or said or complaint or start_error or "it ended without a word")[:ERROR_CHARS]
    return JudgeAnswer(
        usage=report.usage,
        cli_error=error,
        error_status=http_status(error),
        too_long=_TOO_LONG.search(error) is not None,
    )


def http_status(error: str | None) -> int | None:
    """The status that an error of the command begins with."""
    found = _STATUS.match(error) if error else None
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class _Talk:
    """The sessions of one call as one conversation."""

    turns: tuple[Turn, ...] = ()
    answer: str = ""
    answered: bool = False
    """It ends with words of the agent."""
    model: str | None = None
    session_id: str | None = None
    main: tuple[Session, ...] = ()
    sub_agents: tuple[Session, ...] = ()

    @classmethod
    def of(cls, sessions: Sequence[Session], named: str | None, servers: Sequence[str]) -> "_Talk":
        family = _Family({session.id: session for session in sessions})
        main = family.main(named)
        if not main:
            return cls()
        turns = tuple(_with_servers(turn, servers) for turn in family.conversation(main, None))
        messages = [message for message in main[-1].messages if not message.text.startswith(_NUDGE)]
        last = messages[-1] if messages else Message("")
        return cls(
            turns=turns,
            answer=_answer(main[-1].messages),
            answered=last.role == "assistant" and _says(last) and not last.calls,
            model=main[-1].model,
            session_id=main[-1].id,
            main=tuple(main),
            sub_agents=tuple(family.sub_agents),
        )

    def usage(self, reported: Usage | None) -> Usage | None:
        """Tokens of the whole call. The report counts what the main sessions do, so the larger number is the true
        one."""
        main = _sum(session.usage for session in self.main)
        if reported is not None:
            pairs = zip(main.counts(), reported.counts(), strict=True)
            main = Usage(*(max((n for n in pair if n is not None), default=None) for pair in pairs))
        total = main.plus(_sum(session.usage for session in self.sub_agents))
        # An answer in pieces is not counted at all, which is not the same as none used.
        unknown = total == Usage() or (bool(self.turns) and not total.total_tokens)
        return None if unknown else total


@dataclass(slots=True)
class _Family:
    """Sessions by id, and how they belong together."""

    by_id: Mapping[str, Session]
    sub_agents: list[Session] = field(default_factory=list)
    """All that were met in a conversation."""

    def main(self, named: str | None) -> list[Session]:
        """The session of the call, after those that were compacted into it; by what it is named, else by what it is."""
        own = self.by_id.get(named or "")
        if own is None:
            return sorted((s for s in self.by_id.values() if not self._is_sub_agent(s)), key=_started)
        chain = [own]
        while (before := self._before(chain[0])) is not None and before not in chain:
            chain.insert(0, before)
        return chain

    def conversation(self, chain: Sequence[Session], caller: str | None) -> list[Turn]:
        """The turns of sessions that continue each other, with those of sub-agents where they worked."""
        turns: list[Turn] = []
        calls: set[str] = set()
        said: set[str] = set()
        for session in chain:
            fresh = [m for m in session.messages if m.calls or m.role != "assistant" or m.text not in said]
            for message in fresh:
                turns += _turns(message, calls, caller)
            said |= {message.text for message in session.messages}
        for child in self._children(chain):
            call = _caller(child[0], turns)
            theirs = self.conversation(child, call or child[0].id)
            ends = (i for i, turn in enumerate(turns) if turn.role == "tool_result" and turn.call_id == call)
            at = next(ends, len(turns))
            turns[at:at] = theirs
        return turns

    def _children(self, chain: Sequence[Session]) -> Iterator[list[Session]]:
        """The sub-agents that these sessions started, each with its continuations, in the order they began."""
        parents = {session.id for session in chain}
        everyone = sorted(self.by_id.values(), key=_started)
        for session in everyone:
            if session.parent not in parents or not self._is_sub_agent(session) or session in self.sub_agents:
                continue
            row = [session]
            for later in everyone:
                if self._before(later) is row[-1] and later not in row:
                    row.append(later)
            self.sub_agents += row
            yield row

    def _before(self, session: Session) -> Session | None:
        """The session that was compacted into this one."""
        parent = self.by_id.get(session.parent or "")
        return parent if parent is not None and parent.compacted else None

    def _is_sub_agent(self, session: Session) -> bool:
        return session.sub_agent or (session.parent in self.by_id and self._before(session) is None)


def _turns(message: Message, known: set[str], caller: str | None) -> Iterator[Turn]:
    """What a message holds that is not known yet; `known` holds what was."""
    if message.role == "tool":
        if not _new(message.answers and f"result of {message.answers}", known):
            return
        text, failed = _result(message.text)
        yield Turn("tool_result", text, call_id=message.answers, is_error=failed, parent_call_id=caller)
    elif message.role == "assistant":
        fresh = [call for call in message.calls if _new(call.call_id, known)]
        if _says(message) and (fresh or not message.calls):
            yield Turn("assistant", message.text, parent_call_id=caller)
        for call in fresh:
            yield Turn(
                "tool_use",
                tool_name=call.name,
                tool_input=call.arguments,
                call_id=call.call_id,
                parent_call_id=caller,
            )


def _new(key: str | None, known: set[str]) -> bool:
    if not key:
        return True
    fresh = key not in known
    known.add(key)
    return fresh


def _says(message: Message) -> bool:
    """Whether the agent says something in it, not the command."""
    return bool(message.text.strip()) and message.text != EMPTY and not message.text.startswith(_COMPACTION)


def _answer(messages: Sequence[Message]) -> str:
    """What the agent said last; of an answer in pieces, all of them."""
    own = [message for message in messages if not (message.role == "user" and message.text.startswith(_NUDGE))]
    last = next((i for i in reversed(range(len(own))) if own[i].role == "assistant" and _says(own[i])), None)
    if last is None:
        return ""
    first = last
    while first > 0 and own[first - 1].role == "assistant" and own[first - 1].finish == "length":
        first -= 1
    return "".join(message.text for message in own[first : last + 1])


def _caller(child: Session, turns: Sequence[Turn]) -> str | None:
    """The call that started a sub-agent: the one with its prompt as a goal, else the last that starts any."""
    calls = [turn for turn in turns if turn.role == "tool_use" and turn.tool_name == DELEGATE]
    asked = next((message.text for message in child.messages if message.role == "user"), "")
    for turn in calls:
        given = turn.tool_input or {}
        tasks = given.get("tasks")
        goals = [given.get("goal"), *(mapping(task).get("goal") for task in (tasks if isinstance(tasks, list) else ()))]
        if asked and asked in goals:
            return turn.call_id
    return calls[-1].call_id if calls else None


def _with_servers(turn: Turn, servers: Sequence[str]) -> Turn:
    return replace(turn, tool_name=called_as_declared(turn.tool_name, servers)) if turn.tool_name else turn


def _result(text: str) -> tuple[str, bool | None]:
    """A tool's result, and whether it failed. The shell's is shown as the shell's output."""
    if _UNKNOWN_TOOL.match(text):
        return text, True
    wrapped = _WRAPPED.match(text)
    inner = wrapped[1] if wrapped else text
    told = read_object(inner.encode("utf-8", "replace")) if inner.startswith("{") else None
    if told is None:
        return text, None
    code = told.get("exit_code")
    wrong = bool(told.get("error")) or told.get("success") is False or told.get("status") == "error"
    failed = wrong or (isinstance(code, int) and code != 0)
    if wrapped or not isinstance(told.get("output"), str) or "exit_code" not in told:
        return text, failed
    parts = [told["output"]]
    if told.get("error"):
        parts.append(told["error"] if isinstance(told["error"], str) else json.dumps(told["error"], ensure_ascii=False))
    if code:
        parts.append(f"exit code {code}")
    return "\n".join(part for part in parts if part), failed


def _started(session: Session) -> float:
    return session.started


def _sum(usages: Iterable[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total = total.plus(usage)
    return total
