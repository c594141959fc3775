"""A planted conversation as a session of codex, which `exec resume` then takes up by its id.

A session is a file of JSON lines: what it is about, then one item after another in the form in which the CLI sends them
to the model. Measured on 0.171.0:

- The id is in the name of the file as well as in its first line. The provider named there must be the one in use, or
  the CLI refuses to go on; the other fields are not looked at, but older releases want all of them.
- The planted items come first in what the model is sent, before the CLI's own instructions.
- `$name arguments` is how one calls a skill; the CLI puts the whole file, frontmatter included, behind it in a message
  of its own.
"""

import json
import uuid
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.planted import PlantedTurn
from caliper_pipeline.execution.backends.codex_rollout import SESSIONS
from caliper_pipeline.execution.backends.home_files import write_private

_SECONDS_APART = 2


def plant_session(
    history: Sequence[PlantedTurn],
    *,
    config_home: Path,
    workdir: Path,
    skills_root: Path,
    skills: Collection[str],
    provider: str,
    version: str,
    now: datetime | None = None,
) -> str:
    """Write the session below the CLI's folder; the id that resumes it. `skills`: the names of the installed ones."""
    session = str(uuid.uuid4())
    items = [item for place, turn in enumerate(history) for item in _items(turn, place, skills_root, skills)]
    started = (now or datetime.now(UTC)) - timedelta(seconds=_SECONDS_APART * (len(items) + 1))
    about = {
        "id": session,
        "session_id": session,
        "timestamp": _stamp(started),
        "cwd": str(workdir),
        "originator": "codex_exec",
        "cli_version": version,
        "source": "exec",
        "model_provider": provider,
    }
    lines = [{"timestamp": _stamp(started), "type": "session_meta", "payload": about}]
    for number, item in enumerate(items, 1):
        when = started + timedelta(seconds=_SECONDS_APART * number)
        lines.append({"timestamp": _stamp(when), "type": "response_item", "payload": item})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    name = f"rollout-{started:%Y-%m-%dT%H-%M-%S}-{session}.jsonl"
    write_private(config_home / SESSIONS / f"{started:%Y/%m/%d}" / name, text.encode("utf-8", "replace"))
    return session


def _items(turn: PlantedTurn, place: int, skills_root: Path, skills: Collection[str]) -> Iterator[dict[str, Any]]:
    if turn.user is not None:
        name = turn.slash_command
        if name is not None and name in skills:
            yield from _skill_call(turn.user.strip(), name, skills_root / name / "SKILL.md")
        else:
            yield _message("user", turn.user)
        return
    if turn.assistant:
        yield _message("assistant", turn.assistant)
    for number, call in enumerate(turn.shell):
        call_id = f"call_planted_{place}_{number}"
        arguments = json.dumps({"cmd": call.run}, ensure_ascii=False)
        yield {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call_id}
        yield {"type": "function_call_output", "call_id": call_id, "output": call.output}


def _skill_call(typed: str, name: str, file: Path) -> Iterator[dict[str, Any]]:
    """What the CLI makes of a skill that is called by name."""
    yield _message("user", f"${typed[1:]}")
    body = file.read_bytes().decode("utf-8", "replace")
    yield _message("user", f"<skill>\n<name>{name}</name>\n<path>{file}</path>\n{body}\n</skill>")


def _message(role: str, said: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": said}]}


def _stamp(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
