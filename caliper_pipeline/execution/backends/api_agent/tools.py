"""The tools of the agent: what the model is told of them, and what they do. A tool that fails tells the model why."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import shell
from .skills import Skill, loaded
from .talk import Call, Result, Tool

BASH_SECONDS, MOST_BASH_SECONDS = 120.0, 600.0
READ_LINES, READ_CHARS = 2_000, 60_000
_READABLE_BYTES = 20 * 1024**2


class ToolFailed(Exception):
    pass


def _schema(required: Mapping[str, tuple[str, str]], **optional: tuple[str, str]) -> dict[str, Any]:
    """From names to (type, description)."""
    described = {**required, **optional}
    properties = {name: {"type": kind, "description": text} for name, (kind, text) in described.items()}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_PATH = ("string", "Relative to the working directory, or absolute.")
BASH = Tool(
    "bash",
    "Run a shell command in the working directory and get its output, standard error included. Every call is a new "
    "shell: a changed directory or variable does not last. Nothing can be typed into a command. What runs on in the "
    "background keeps running.",
    _schema(
        {"command": ("string", "The command, or a whole script.")},
        timeout_seconds=("number", f"When to end it; {BASH_SECONDS:g} if left out, at most {MOST_BASH_SECONDS:g}."),
    ),
)
READ = Tool(
    "read",
    "Read a text file.",
    _schema(
        {"path": _PATH},
        offset=("integer", "The line to begin with, counted from 1."),
        limit=("integer", f"How many lines; {READ_LINES} if left out."),
    ),
)
WRITE = Tool(
    "write",
    "Write a file as a whole, and the folders that it needs. An existing file is replaced.",
    _schema({"path": _PATH, "content": ("string", "All of the file.")}),
)
EDIT = Tool(
    "edit",
    "Replace a piece of a text file.",
    _schema(
        {
            "path": _PATH,
            "old_string": ("string", "The text to replace, exactly as it is in the file. It must occur only once."),
            "new_string": ("string", "What to put in its place."),
        },
        replace_all=("boolean", "Replace it wherever it occurs."),
    ),
)


def skill_tool(skills: list[Skill]) -> Tool:
    lines = [f"- {skill.name}: {skill.description}" if skill.description else f"- {skill.name}" for skill in skills]
    return Tool(
        "skill",
        "Load a skill: instructions, and sometimes files, for one kind of task. When a skill's description fits the "
        "task at hand, load it before you start.\n\nSkills:\n" + "\n".join(lines),
        _schema({"name": ("string", "Which of them.")}),
    )


class Tools:
    """What can be called. `foreign`: tools of servers, by the name that the model knows them by."""

    def __init__(
        self,
        workdir: str,
        env: Mapping[str, str],
        skills: list[Skill],
        seconds_left: Callable[[], float],
        foreign: Mapping[str, tuple[Tool, Callable[[dict[str, Any]], Result]]] | None = None,
    ) -> None:
        self._workdir = Path(workdir)
        self._env = env
        self._skills = {skill.name: skill for skill in skills if not skill.hidden}
        self._seconds_left = seconds_left
        own: list[tuple[Tool, Callable[[dict[str, Any]], Result]]] = [
            (BASH, self._bash),
            (READ, self._read),
            (WRITE, self._write),
            (EDIT, self._edit),
        ]
        if self._skills:
            own.append((skill_tool(list(self._skills.values())), self._skill))
        self._known = {tool.name: (tool, act) for tool, act in own} | dict(foreign or {})

    @property
    def offered(self) -> list[Tool]:
        return [tool for tool, _ in self._known.values()]

    def run(self, call: Call) -> Result:
        if call.name not in self._known:
            return Result(f"There is no tool called {call.name}. There are: {', '.join(self._known)}.", failed=True)
        if call.arguments is None:
            return Result("The arguments of this call are no JSON object, so nothing was done.", failed=True)
        tool, act = self._known[call.name]
        missing = [name for name in tool.schema.get("required") or () if name not in call.arguments]
        if missing:
            return Result(f"{call.name} needs {' and '.join(map(str, missing))}; nothing was done.", failed=True)
        try:
            return act(call.arguments)
        except ToolFailed as error:
            return Result(str(error), failed=True)
        except (OSError, ValueError) as error:
            return Result(f"{type(error).__name__}: {error}", failed=True)

    def _bash(self, given: dict[str, Any]) -> Result:
        wanted = min(_number(given, "timeout_seconds", BASH_SECONDS), MOST_BASH_SECONDS)
        seconds = max(0.1, min(wanted, self._seconds_left()))
        ran = shell.run(_string(given, "command"), cwd=str(self._workdir), env=self._env, seconds=seconds)
        if ran.exit_code is None:
            return Result(f"{ran.output}\n[ended after {seconds:g} s: it took too long]".lstrip(), failed=True)
        if ran.exit_code == 0:
            return Result(ran.output or "(no output)")
        how = f"exit code {ran.exit_code}" if ran.exit_code > 0 else f"ended by signal {-ran.exit_code}"
        return Result(f"{ran.output}\n[{how}]".lstrip(), failed=True)

    def _read(self, given: dict[str, Any]) -> Result:
        path = self._path(given)
        lines = _file_text(path).splitlines(keepends=True)
        first = max(1, int(_number(given, "offset", 1)))
        shown = lines[first - 1 : first - 1 + max(1, int(_number(given, "limit", READ_LINES)))]
        text, count = "", 0
        for line in shown:
            if text and len(text) + len(line) > READ_CHARS:
                break
            text, count = text + line, count + 1
        last = first - 1 + count
        if not count:
            return Result(f"(the file has {len(lines)} lines)" if lines else "(the file is empty)")
        if len(text) > READ_CHARS:
            text = text[:READ_CHARS] + "\n[… the line goes on …]\n"
        if last < len(lines):
            text += f"\n[lines {first} to {last} of {len(lines)}; go on with offset {last + 1}]"
        return Result(text)

    def _write(self, given: dict[str, Any]) -> Result:
        path, data = self._path(given), _string(given, "content").encode("utf-8", "replace")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return Result(f"Wrote {len(data):,} bytes to {path}.")

    def _edit(self, given: dict[str, Any]) -> Result:
        path, old, new = self._path(given), _string(given, "old_string"), _string(given, "new_string")
        try:
            text = _file_text(path, errors="strict")
        except UnicodeDecodeError:
            raise ToolFailed(f"{path} is not UTF-8 text; nothing was changed.") from None
        found = text.count(old) if old else 0
        if not found:
            raise ToolFailed(f"That text is not in {path}; nothing was changed.")
        if found > 1 and given.get("replace_all") is not True:
            raise ToolFailed(
                f"That text occurs {found} times in {path}; nothing was changed. Give more of what is around it."
            )
        path.write_bytes(text.replace(old, new).encode("utf-8", "replace"))
        return Result(f"Replaced {found} {'place' if found == 1 else 'places'} in {path}.")

    def _skill(self, given: dict[str, Any]) -> Result:
        name = _string(given, "name").strip().removeprefix("/")
        if name not in self._skills:
            raise ToolFailed(f"There is no skill called {name}. There are: {', '.join(self._skills)}.")
        return Result(loaded(self._skills[name]))

    def _path(self, given: dict[str, Any]) -> Path:
        text = _string(given, "path")
        if text.startswith("~"):
            text = text.replace("~", self._env.get("HOME", "~"), 1) if text[1:2] in ("", "/") else text
        return Path(os.path.normpath(self._workdir / text))


def _string(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str):
        raise ToolFailed(f"{key} must be a text; nothing was done.")
    return value


def _number(given: Mapping[str, Any], key: str, default: float) -> float:
    value = given.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value <= 0:
        raise ToolFailed(f"{key} must be a number above 0; nothing was done.")
    return min(float(value), 1e9)


def _file_text(path: Path, errors: str = "replace") -> str:
    if path.is_dir():
        raise ToolFailed(f"{path} is a folder.")
    if not path.exists():
        raise ToolFailed(f"There is no file {path}.")
    if not path.is_file():
        raise ToolFailed(f"{path} is no ordinary file.")
    if path.stat().st_size > _READABLE_BYTES:
        raise ToolFailed(f"{path} is too large to be read as a whole; use bash to look at parts of it.")
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        raise ToolFailed(f"{path} is no text: a binary file of {len(data):,} bytes.")
    return data.decode("utf-8", errors)
