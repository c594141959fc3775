"""A planted conversation as a session of Claude Code, which `--resume` then takes up.

A session is a file of JSON lines, each pointing at the one before. Measured on 2.1.197:

- It is found by the real path of the workdir, every other character than letters and digits as `-`.
- A line without `timestamp` is not found. Assistant lines need a `message.id` each, or all of them become one message
  and the model sees another conversation; and a `message.model`, or the CLI hangs before its first request.
- The model that a session names is the one that answers next, unless `--model` says otherwise: a planted name would
  decide the engine. `<synthetic>`, which the CLI itself puts under what no model said, decides nothing.
- A session whose last message is the user's counts as interrupted: the CLI adds "Continue from where you left off."
  and answers itself. Not so where an error of the API comes last, of which the model is never told; what a command
  printed has to be marked as no person's message besides.
- `/name arguments` becomes two messages: tags with the name, then the skill's text with its folder on top. In the
  text `$ARGUMENTS`, `$ARGUMENTS[0]` and `$0` are filled; where it has none, the arguments follow at the end.

Not covered: shell commands in a skill (``!`date` ``), which the CLI would have run, and arguments with names of their
own in the frontmatter. Both stay as written.
"""

import json
import re
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.planted import PlantedTurn

SESSIONS_FOLDER = "projects"
_NO_MODEL = "<synthetic>"
_SECONDS_APART = 2
_FRONTMATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n.*?^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_ARGUMENT = re.compile(r"(\\?)\$(?:ARGUMENTS\[(\d+)\]|(ARGUMENTS)|(\d+)(?!\w))")


def plant_session(
    history: Sequence[PlantedTurn],
    *,
    config: Path,
    workdir: Path,
    skills: Mapping[str, Path],
    now: datetime | None = None,
) -> str:
    """Write the session below the CLI's configuration folder; the id that resumes it. `skills`: the installed ones,
    name → folder."""
    session = str(uuid.uuid4())
    folder = config / SESSIONS_FOLDER / re.sub(r"[^A-Za-z0-9]", "-", str(workdir.resolve()))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    messages = _closed(list(_messages(history, skills, session)))
    ended = now or datetime.now(UTC)
    parent: str | None = None
    lines = []
    for place, facts in enumerate(messages):
        when = ended - timedelta(seconds=_SECONDS_APART * (len(messages) - place))
        line = {
            "parentUuid": parent,
            "isSidechain": False,
            **facts,
            "uuid": (parent := str(uuid.uuid4())),
            "timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "userType": "external",
            "cwd": str(workdir.resolve()),
            "sessionId": session,
        }
        lines.append(json.dumps(line, ensure_ascii=False))
    path = folder / f"{session}.jsonl"
    path.write_bytes(("\n".join(lines) + "\n").encode("utf-8", "replace"))
    path.chmod(0o600)
    return session


def _messages(history: Sequence[PlantedTurn], skills: Mapping[str, Path], session: str) -> Iterator[dict[str, Any]]:
    for place, turn in enumerate(history):
        if turn.user is not None:
            name = turn.slash_command
            if name is not None and name in skills:
                yield from _slash_command(turn.user.strip(), name, skills[name], session)
            else:
                yield _user(turn.user)
            continue
        calls = [(f"toolu_planted_{place}_{number}", call) for number, call in enumerate(turn.shell)]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.assistant}] if turn.assistant else []
        blocks += [
            {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": call.run}}
            for call_id, call in calls
        ]
        yield _assistant(blocks, f"msg_planted_{place}", "tool_use" if calls else "end_turn")
        if calls:
            yield _user(
                [
                    {"type": "tool_result", "tool_use_id": call_id, "content": call.output, "is_error": False}
                    for call_id, call in calls
                ]
            )


def _closed(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """So that the next message of the user follows at once, whoever spoke last."""
    last = messages[-1]
    if last["type"] == "assistant":
        return messages
    content = last["message"]["content"]
    if isinstance(content, list) and content[0]["type"] == "tool_result":
        last = {**last, "isMeta": True}
    error = _assistant([{"type": "text", "text": "API Error"}], "msg_planted_end", "stop_sequence")
    return [*messages[:-1], last, {**error, "isApiErrorMessage": True}]


def _slash_command(text: str, name: str, folder: Path, session: str) -> Iterator[dict[str, Any]]:
    """What the CLI makes of a typed command of a skill."""
    arguments = text[len(name) + 1 :].strip()
    tags = f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>"
    yield _user(f"{tags}\n<command-args>{arguments}</command-args>" if arguments else tags)
    body = (folder / "SKILL.md").read_bytes().decode("utf-8", "replace")
    told = expand_skill(body, arguments, folder=folder, session=session)
    yield {**_user([{"type": "text", "text": told}]), "isMeta": True}


def expand_skill(text: str, arguments: str, *, folder: Path, session: str) -> str:
    """The text of a `SKILL.md` as the CLI hands it to the model when the skill is typed as a command."""
    body = _FRONTMATTER.sub("", text, count=1).lstrip()
    try:
        words = shlex.split(arguments)
    except ValueError:  # an open quotation
        words = arguments.split()

    def filled(found: re.Match[str]) -> str:
        escaped, indexed, whole, numbered = found.groups()
        if escaped:
            return found[0][1:]
        if whole:
            return arguments
        number = int(indexed or numbered)
        return words[number] if number < len(words) else ""

    given = _ARGUMENT.sub(filled, body)
    if arguments and given == body:
        given = f"{body}\n\nARGUMENTS: {arguments}"
    given = given.replace("${CLAUDE_SKILL_DIR}", str(folder)).replace("${CLAUDE_SESSION_ID}", session)
    return f"Base directory for this skill: {folder}\n\n{given}"


def _user(content: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}}


def _assistant(blocks: list[dict[str, Any]], message_id: str, stop: str) -> dict[str, Any]:
    message = {"id": message_id, "type": "message", "role": "assistant", "model": _NO_MODEL, "content": blocks}
    usage = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"type": "assistant", "message": {**message, "stop_reason": stop, "stop_sequence": None, "usage": usage}}
