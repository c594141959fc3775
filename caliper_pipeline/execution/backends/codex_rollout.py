"""The sessions that the CLI keeps in the attempt's home, for what its event stream does not tell: the model, the tokens
of a turn that did not end, and everything that sub-agents did.

Each thread has a file of JSON lines below `sessions/`; a sub-agent's names the session that it belongs to. Agents can
write there, so nothing in it is believed to have a form, and no file is opened that is none.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.json_lines import (
    content_text,
    count,
    mapping,
    parsed,
    string,
    text,
    tool_input,
)

SESSIONS = "sessions"
SHELL = "shell"
"""What the tool that runs commands is called in transcripts."""
_MOST_FILES = 500
_MOST_BYTES = 64 * 1024**2
_HEADER_BYTES = 1024**2
_WANTED = (b'"turn_context"', b'"token_count"', b'"token_usage_record"', b'"response_item"')


@dataclass(frozen=True, slots=True)
class Thread:
    thread_id: str
    parent: str | None = None
    """On a sub-agent's: the thread that started it."""
    model: str | None = None
    """Of its last turn."""
    usage: Usage | None = None
    """All that it used."""
    turns: tuple[Turn, ...] = ()
    """Of a sub-agent; those of the main thread are in the event stream."""


@dataclass(frozen=True, slots=True)
class Session:
    main: Thread | None = None
    others: tuple[Thread, ...] = ()


def read_session(config_home: Path, thread_id: str | None) -> Session:
    """What is known of the session whose main thread this is; of the newest one, when `thread_id` is `None`. Never
    raises."""
    try:
        files = sorted(_files(config_home / SESSIONS), key=lambda path: path.name)[-_MOST_FILES:]
        headers = [(path, _header(path)) for path in files]
        if thread_id is None:
            mains = [string(header.get("id")) for _, header in headers if _session_of(header) == header.get("id")]
            thread_id = mains[-1] if mains else None
        main: Thread | None = None
        others = []
        for path, header in headers:
            own = string(header.get("id"))
            if own is None or thread_id is None:
                continue
            if own == thread_id:
                main = _thread(path, header, own, turns=False)
            elif _session_of(header) == thread_id:
                others.append(_thread(path, header, own, turns=True))
        return Session(main, tuple(others))
    except (OSError, ValueError, RecursionError):
        return Session()


def usage_of(counts: Any) -> Usage | None:
    """Token counts in fields that do not overlap: the CLI's input holds the cached part."""
    given = mapping(counts)
    read, cached = count(given.get("input_tokens")), count(given.get("cached_input_tokens"))
    written = count(given.get("cache_write_input_tokens"))
    output = count(given.get("output_tokens"))
    fresh = None if read is None else max(0, read - (cached or 0) - (written or 0))
    usage = Usage(fresh, output, cached, written)
    return None if usage == Usage() else usage


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not Path(place, name).is_symlink()]
        for name in names:
            if name.startswith("rollout-") and name.endswith(".jsonl"):
                yield Path(place, name)


def _session_of(header: dict[str, Any]) -> str | None:
    """The session that a thread belongs to; a main thread's is its own."""
    spawned = mapping(mapping(mapping(header.get("source")).get("subagent")).get("thread_spawn"))
    parent = string(header.get("parent_thread_id")) or string(spawned.get("parent_thread_id"))
    return string(header.get("session_id")) or parent or string(header.get("id"))


def _header(path: Path) -> dict[str, Any]:
    """What the first line says of the thread."""
    for line in _lines(path, _HEADER_BYTES):
        event = parsed(line) or {}
        return dict(mapping(event.get("payload"))) if event.get("type") == "session_meta" else {}
    return {}


def _lines(path: Path, most: int) -> Iterator[bytes]:
    """The lines in the first `most` bytes of a plain file; nothing of anything else that lies in its place."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        if stat.S_ISREG(os.fstat(opened).st_mode):
            left = most
            while left > 0 and (line := file.readline(left)):
                left -= len(line)
                yield line


def _thread(path: Path, header: dict[str, Any], thread_id: str, *, turns: bool) -> Thread:
    model: str | None = None
    usage: Usage | None = None
    said: list[Turn] = []
    # A sub-agent may begin with a copy of what its parent said and did.
    begins = count(header.get("subagent_history_start_ordinal")) or 0
    for line in _lines(path, _MOST_BYTES):
        if not any(word in line for word in _WANTED):
            continue
        event = parsed(line) or {}
        kind, payload = event.get("type"), mapping(event.get("payload"))
        if kind == "turn_context":
            model = string(payload.get("model")) or model
        elif kind == "token_usage_record" and payload.get("thread_id", thread_id) == thread_id:
            usage = usage_of(payload.get("thread_token_usage")) or usage
        elif kind == "event_msg" and payload.get("type") == "token_count":
            usage = usage_of(mapping(payload.get("info")).get("total_token_usage")) or usage
        elif kind == "response_item" and turns and (count(event.get("ordinal")) or begins) >= begins:
            said += _turns(payload)
    parent = string(header.get("parent_thread_id"))
    return Thread(thread_id, parent, model, usage, tuple(said))


def _turns(item: Any) -> Iterator[Turn]:
    """A sub-agent's words and calls. What it was told, and what it thought, is no turn."""
    kind, call_id = text(item.get("type")), string(item.get("call_id"))
    if kind == "message" and item.get("role") == "assistant":
        said = content_text(item.get("content"))
        if said:
            yield Turn("assistant", said)
    elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
        name = text(item.get("name")) or kind
        space = string(item.get("namespace"))
        given = tool_input(item.get("arguments", item.get("input", item.get("action"))))
        if "cmd" in given:
            name, given = SHELL, {"command": given["cmd"], **{k: v for k, v in given.items() if k != "cmd"}}
        yield Turn("tool_use", tool_name=f"{space}__{name}" if space else name, tool_input=given, call_id=call_id)
    elif kind.endswith("_call_output"):
        output = item.get("output")
        told = mapping(output).get("content", output) if isinstance(output, dict) else output
        yield Turn("tool_result", content_text(told), call_id=call_id)
