"""Sessions of pi: a planted conversation written as one, and a session that is kept for its own sake.

A session is a file of JSON lines: a header, then messages that each name the one before. The header's folder must
exist, or the CLI refuses the file. It restores the model that the last assistant message names if it has it, before
its own default, so the planted ones name a model that no one has. A skill that a person called by `/name` stands in
the conversation as the block that the CLI makes of it; `/skill:name` is how one types it there.
"""

import contextlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.planted import PlantedTurn
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation
from caliper_pipeline.execution.backends.pi_home import agent_folder

NO_OUTPUT = "(no output)"
"""What the CLI's shell tool says of a command that printed nothing; an empty result reaches some models as odd text."""
_NOTHING = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_ORIGIN = {"api": "openai-completions", "provider": "unknown", "model": "unknown"}
_TYPED_SKILL = re.compile(r"/skill:(\S+)(?:\s+(.*))?\Z", re.DOTALL)


def sessions_folder(invocation: Invocation | JudgeInvocation) -> Path:
    """Where the CLI itself keeps the sessions of this working directory."""
    name = str(invocation.workdir).removeprefix("/").replace("/", "-").replace("\\", "-").replace(":", "-")
    return agent_folder(invocation.home) / "sessions" / f"--{name}--"


def new_session(invocation: Invocation | JudgeInvocation) -> Path:
    """A name for the session of one spawn, in a folder that holds no other."""
    folder = sessions_folder(invocation)
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-000Z")
    return folder / f"{stamp}_{uuid.uuid4()}.jsonl"


def plant(invocation: Invocation) -> Path:
    """Write the history as a session."""
    path = new_session(invocation)
    messages = [message for turn in invocation.history for message in _messages(turn, invocation)]
    started = datetime.now(UTC) - timedelta(seconds=len(messages) + 1)
    lines: list[dict[str, Any]] = [
        {
            "type": "session",
            "version": 3,
            "id": path.stem.partition("_")[2],
            "timestamp": _stamp(started),
            "cwd": str(invocation.workdir),
        }
    ]
    before: str | None = None
    for number, message in enumerate(messages, 1):
        at = started + timedelta(seconds=number)
        own = uuid.uuid4().hex[:8]
        dated = {**message, "timestamp": int(at.timestamp() * 1000)}
        lines.append({"type": "message", "id": own, "parentId": before, "timestamp": _stamp(at), "message": dated})
        before = own
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_bytes(text.encode("utf-8", "replace"))
    path.chmod(0o600)
    return path


def kept_session(invocation: Invocation | JudgeInvocation) -> bytes:
    """What the CLI has kept of its last spawn. Empty: nothing."""
    for path in sessions_folder(invocation).glob("*.jsonl"):
        with contextlib.suppress(OSError):
            return path.read_bytes()
    return b""


def planted_messages(history: tuple[PlantedTurn, ...]) -> int:
    """How many messages of a session the CLI found in it."""
    return sum(1 + len(turn.shell) for turn in history)


def _messages(turn: PlantedTurn, invocation: Invocation) -> Iterator[dict[str, Any]]:
    if turn.user is not None:
        yield {"role": "user", "content": [_text(_expanded(turn, invocation))]}
        return
    calls = [f"call_{uuid.uuid4().hex[:20]}" for _ in turn.shell]
    content: list[dict[str, Any]] = [_text(turn.assistant)] if turn.assistant else []
    for call, shell in zip(calls, turn.shell, strict=True):
        content.append({"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": shell.run}})
    yield {
        "role": "assistant",
        "content": content,
        **_ORIGIN,
        "usage": {**_NOTHING, "cost": {**{key: 0 for key in _NOTHING if key != "totalTokens"}, "total": 0}},
        "stopReason": "toolUse" if calls else "stop",
    }
    for call, shell in zip(calls, turn.shell, strict=True):
        yield {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": "bash",
            "content": [_text(shell.output or NO_OUTPUT)],
            "isError": False,
        }


def _expanded(turn: PlantedTurn, invocation: Invocation) -> str:
    """What the CLI makes of the turn: a called skill's text, or the turn as it was typed."""
    typed = (turn.user or "").strip()
    found = _TYPED_SKILL.match(typed)
    if found:
        name, arguments = found[1], found[2] or ""
    elif turn.slash_command is not None:
        name, arguments = turn.slash_command, typed[len(turn.slash_command) + 1 :]
    else:
        return turn.user or ""
    folder = agent_folder(invocation.home) / "skills" / name
    if name not in invocation.skills:
        return turn.user or ""
    try:
        body = _body((folder / "SKILL.md").read_text(encoding="utf-8-sig", errors="replace"))
    except OSError:
        return turn.user or ""
    block = (
        f'<skill name="{name}" location="{folder / "SKILL.md"}">\n'
        f"References are relative to {folder}.\n\n{body}\n</skill>"
    )
    return f"{block}\n\n{arguments.strip()}" if arguments.strip() else block


def _body(text: str) -> str:
    """Without the header, as the CLI takes it off."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    end = text.find("\n---", 3) if text.startswith("---") else -1
    return (text[end + 4 :] if end >= 0 else text).strip()


def _text(text: str | None) -> dict[str, Any]:
    return {"type": "text", "text": text or ""}


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
