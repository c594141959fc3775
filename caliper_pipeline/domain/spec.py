"""The eval spec: its models, and every rule about it that needs no disk.

A spec says what is tried and how it is checked; which engine tries it, how often and for how long is chosen when a run
starts. Scripts, histories and skills that it names are looked at in `sources`.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictBool,
    field_validator,
    model_validator,
)

from caliper_pipeline.domain.authored import Authored, Finding, SolidText, Text, kind_of, shorten, visible
from caliper_pipeline.domain.patterns import pattern_fault

CHECKS = ("expect", "assert", "activates")
"""The keys of a task that check something."""
_RUN_CHOICES = {
    "model": "--model",
    "backend": "--model",
    "engine": "--model",
    "judge_model": "--judge-model",
    "k": "--k",
    "attempts": "--k",
    "workers": "--workers",
    "timeout": "--timeout",
    "timeout_seconds": "--timeout",
    "fail_fast": "--fail-fast",
}
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")
_INTERPOLATION = re.compile(r"\$\{(?![A-Za-z_][A-Za-z0-9_]*\})[^}]*\}?")


def _pattern(text: str) -> str:
    fault = pattern_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


class Sandbox(Authored):
    forbidden_files: tuple[Annotated[Text, AfterValidator(_pattern)], ...] = ()
    """Regular expressions, found anywhere in a path: never installed, and cheating when an agent names one."""
    extra_path: tuple[SolidText, ...] = ()
    """Folders put first on the agent's `PATH`; relative to the spec's folder."""


class GitSource(Authored):
    """A skill that is fetched from a git repository."""

    empty_is_absent = frozenset({"ref"})

    repo: SolidText
    """Anything git clones; `owner/name` is on GitHub."""
    ref: SolidText | None = None
    """Branch, tag or commit. Absent: the remote's default branch."""
    path: SolidText = "SKILL.md"
    """Of the `SKILL.md`, inside the repository."""

    @field_validator("repo", "ref")
    @classmethod
    def _no_option(cls, value: str | None) -> str | None:
        if value is not None and (value.startswith("-") or any(ord(character) < 32 for character in value)):
            raise ValueError(f"must not begin with a dash or hold control characters: {shorten(value, 60)!r}")
        return value

    @field_validator("path")
    @classmethod
    def _inside(cls, value: str) -> str:
        parts = value.split("/")
        if value.startswith("/") or "\\" in value or ".." in parts or re.match(r"[A-Za-z]:", value):
            raise ValueError(f"must stay inside the repository, with forward slashes: {shorten(value, 60)!r}")
        if parts[-1] != "SKILL.md":
            raise ValueError(f"must end in SKILL.md: {shorten(value, 60)!r}")
        return value

    def __str__(self) -> str:
        return f"{self.repo}{f'@{self.ref}' if self.ref else ''}:{self.path}"


def _skill_source(value: Any) -> "str | GitSource":
    if isinstance(value, GitSource):
        return value
    if isinstance(value, Mapping):
        if "repo" not in value and isinstance(value.get("path"), str):
            item = f"- {value['path']}"
            raise ValueError(f"a mapping names a git source and needs `repo:`; a skill on disk is written {item}")
        return GitSource.model_validate(value)
    if not isinstance(value, str):
        raise ValueError(f"must be the path of a SKILL.md, or a mapping with `repo:`, not {kind_of(value)}")
    if not visible(value):
        raise ValueError("is blank")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    return value


SkillSource = Annotated[
    str | GitSource,
    PlainValidator(_skill_source, json_schema_input_type=str | GitSource),
    PlainSerializer(
        lambda value: value if isinstance(value, str) else value.model_dump(by_alias=True, exclude_unset=True)
    ),
]


class McpServer(Authored):
    """A server granted to the agent: started here (`stdio`), or reached by URL."""

    type: Literal["stdio", "http", "sse"] = "stdio"
    command: SolidText | None = None
    args: tuple[Text, ...] = ()
    env: dict[str, Text] = Field(default_factory=dict)
    url: SolidText | None = None
    headers: dict[str, Text] = Field(default_factory=dict)

    _ALLOWED: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {
        "stdio": ("command", ("command", "args", "env")),
        "http": ("url", ("url", "headers")),
        "sse": ("url", ("url", "headers")),
    }

    @classmethod
    def rules(cls, data: Mapping[str, Any], meant: frozenset[str]) -> Iterator[Finding]:
        kind = data.get("type", "stdio")
        if not isinstance(kind, str) or kind not in cls._ALLOWED:
            return
        needed, allowed = cls._ALLOWED[kind]
        if needed not in data and needed not in meant:
            yield Finding((needed,), f"is missing: a server of type {kind} needs it")
        for key in data:
            if key in cls.known_keys() and key != "type" and key not in allowed:
                yield Finding((key,), f"has no meaning for a server of type {kind}, which takes {', '.join(allowed)}")


class Task(Authored):
    """One prompt and its checks."""

    empty_is_absent = frozenset({"setup", "cleanup"})
    hidden_keys = frozenset({"id"})

    id: str = ""
    """By position: `task-001`. Never identity; names are."""
    name: SolidText
    """What the task is known by across runs."""
    prompt: SolidText
    expect: SolidText | None = None
    """What a model judges the transcript by."""
    assert_script: SolidText | None = Field(None, alias="assert")
    """Python, or the path of a script."""
    activates: tuple[SolidText, ...] | None = None
    """The skills that must fire, and no others; empty: none may. Each once."""
    setup: Text | None = None
    cleanup: Text | None = None
    history: SolidText | None = None
    """The file of a conversation that comes before the prompt."""

    @property
    def assert_file(self) -> str | None:
        """The path that `assert` names: a single line that ends in `.py`."""
        return script_path(self.assert_script) if self.assert_script is not None else None

    @field_validator("activates")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else tuple(dict.fromkeys(value))

    @classmethod
    def advice(cls, key: str, value: Any) -> str | None:
        return _run_choice(key) or _elsewhere(key, Sandbox, "sandbox")

    @classmethod
    def rules(cls, data: Mapping[str, Any], meant: frozenset[str]) -> Iterator[Finding]:
        if not any(key in data or key in meant for key in CHECKS):
            yield Finding((), "checks nothing: give it `expect:`, `assert:` or `activates:`")


class EvalSpec(Authored):
    """A whole spec."""

    empty_is_absent = frozenset({"user_customizations"})

    skills: tuple[SkillSource, ...] = ()
    """The neighbourhood: all of them installed, none preloaded. Empty: the bare agent."""
    sandbox: Sandbox = Sandbox()
    mcp: dict[str, McpServer] = Field(default_factory=dict)
    user_customizations: StrictBool | None = None
    """Whether attempts see what the operator has set up for the agent. `None`: not for the spec to say."""
    tasks: tuple[Task, ...]

    @property
    def mcp_declared(self) -> bool:
        """Whether the author wrote `mcp:` at all: an empty one still keeps the operator's servers out."""
        return "mcp" in self.model_fields_set

    def authored(self) -> dict[str, Any]:
        """The spec as an author would write it: no ids, nothing that was left out."""
        data = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for task in data["tasks"]:
            task.pop("id", None)
        return data

    @model_validator(mode="before")
    @classmethod
    def _number_tasks(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get("tasks"), list | tuple):
            return data
        numbered = [
            {**task, "id": task_id(place)} if isinstance(task, Mapping) else task
            for place, task in enumerate(data["tasks"])
        ]
        return {**data, "tasks": numbered}

    @field_validator("tasks")
    @classmethod
    def _some_task(cls, value: tuple[Task, ...]) -> tuple[Task, ...]:
        if not value:
            raise ValueError("is empty: a spec needs at least one task")
        return value

    @classmethod
    def advice(cls, key: str, value: Any) -> str | None:
        if key == "skill":
            return "was replaced by the list `skills:`"
        if key == "judge":
            return "is no longer part of a spec: the judge is chosen when a run starts, with --judge-model"
        return _run_choice(key) or _elsewhere(key, Sandbox, "sandbox") or _elsewhere(key, Task, "tasks")

    @classmethod
    def rules(cls, data: Mapping[str, Any], meant: frozenset[str]) -> Iterator[Finding]:
        skill = data.get("skill")
        if isinstance(skill, Mapping):
            for key in ("backend", "model"):
                if key in skill:
                    message = "is no longer part of a spec: the engine is chosen when a run starts, with --model"
                    yield Finding(("skill", key), message)
        tasks = data.get("tasks")
        if isinstance(tasks, list | tuple):
            yield from twin_names([task.get("name") if isinstance(task, Mapping) else None for task in tasks])
        servers = data.get("mcp")
        if isinstance(servers, Mapping):
            for name in servers:
                if not _SERVER_NAME.match(name):
                    yield Finding(("mcp", name), "is no server name: letters, digits, _ and - only")

    def remarks(self) -> Iterator[Finding]:
        """What is allowed and yet likely not meant."""
        for name, server in self.mcp.items():
            for key, values in (("env", server.env), ("headers", server.headers), ("url", {"": server.url or ""})):
                for item, text in values.items():
                    for found in _INTERPOLATION.findall(text):
                        path = ("mcp", name, key, item) if item else ("mcp", name, key)
                        yield Finding(path, f"{found} is left as it stands: only ${{NAME}} is filled in")

    @classmethod
    def read(cls, data: Any) -> Self:
        """The spec that plain data holds. Raises pydantic's `ValidationError`; see `authored.findings_of`."""
        return cls.model_validate(data)


def task_id(place: int) -> str:
    """The id of the task at a position counted from 0."""
    return f"task-{place + 1:03d}"


def script_path(script: str) -> str | None:
    """The path when a script is a single line that ends in `.py`."""
    line = script.strip()
    return line if line.endswith(".py") and "\n" not in line and "\r" not in line else None


def twin_names(names: Sequence[Any]) -> Iterator[Finding]:
    """Tasks whose names cannot be told apart by eye, which is how runs are compared."""
    first: dict[str, tuple[int, str]] = {}
    for place, name in enumerate(names):
        if not isinstance(name, str) or not visible(name):
            continue
        other, earlier = first.setdefault(visible(name), (place, name))
        if other == place:
            continue
        message = f"task {other + 1} is called {shorten(visible(name), 60)!r} too, and runs are compared by these names"
        if earlier != name:
            message += f"; {earlier!a} and {name!a} differ only in what cannot be seen"
        yield Finding(("tasks", place, "name"), message)


def legacy_form(data: Any) -> tuple[str | None, tuple[str, ...]]:
    """What a spec of release 0.4 becomes: its `skills:` block (`None`: it has no `skill:`), and the flags for `run`."""
    if not isinstance(data, Mapping):
        return None, ()
    flags = []
    skill, judge = data.get("skill"), data.get("judge")
    block = None
    if "skill" in data:
        path = skill if isinstance(skill, str) else skill.get("path") if isinstance(skill, Mapping) else None
        block = f"skills:\n  - {_as_item(path)}" if isinstance(path, str) and path.strip() else "skills: []"
    for engine, flag in ((skill, "--model"), (judge, "--judge-model")):
        named = [engine.get(key) for key in ("backend", "model")] if isinstance(engine, Mapping) else [engine]
        if flag == "--model" and not isinstance(engine, Mapping):
            continue
        words = [str(word) for word in named if isinstance(word, str) and word.strip()]
        if words:
            flags.append(f"{flag} {shlex.quote(':'.join(words))}")
    return block, tuple(flags)


def _as_item(text: str) -> str:
    return text if re.fullmatch(r"[\w./~][\w ./~@+-]*", text) else json.dumps(text, ensure_ascii=False)


def _run_choice(key: str) -> str | None:
    flag = _RUN_CHOICES.get(key.lower().replace("-", "_"))
    return None if flag is None else f"is not for a spec to say: it is chosen when a run starts, with {flag}"


def _elsewhere(key: str, model: type[Authored], place: str) -> str | None:
    return f"is in the wrong place: it belongs under `{place}:`" if key in model.known_keys() and key != "id" else None
