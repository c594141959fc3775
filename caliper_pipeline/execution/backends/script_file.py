"""Scripts of the scripted agent: read, checked, asked what happens in one attempt. The format is in docs/scripted.md.

A script is written by a person, so everything that is wrong in it is told at once, with its file, line and key. What
happens in an attempt depends on the seed, the task, the arm and the attempt's number and on nothing else: not on the
order of attempts, nor on what the others did.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from caliper_pipeline.domain.errors import Problem, SpecError
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.execution.backends.authored_yaml import AuthoredYaml, Trail

EVERY = "*"
FULL, ABLATED = "full", "ablated"
REFUSALS = {"rate_limit": 429, "overloaded": 529, "login": 401, "cap": 402, "model": 404, "configuration": 400}
"""Failures that a CLI reports in an orderly way, and the status it would report."""
FAILURES = ("timeout", "crash", "silent", "cut", *REFUSALS)
_STEPS = ("say", "run", "skill", "tool", "wait", "tokens", "model", "raw", "fail")
_TOKENS = ("input", "output", "cache_read", "cache_creation")


@dataclass(frozen=True, slots=True)
class Failure:
    kind: str
    times: int | None = None
    """How many invocations of an attempt meet it, the first ones. `None`: all."""
    exit_code: int = 1
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    name: str
    input: Mapping[str, Any]
    result: str = ""
    error: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One thing the agent does."""

    kind: str
    """`say`, `run`, `skill`, `tool`, `wait`, `tokens`, `model`, `raw` or `fail`."""
    value: Any
    """Of the kind's own type: text, `ToolUse`, seconds, `Usage` or `Failure`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One of the things that may happen to an attempt."""

    steps: tuple[Step, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Ruling:
    """One of the things that a judge may answer."""

    passed: bool | None = None
    reasoning: str = ""
    answer: str | None = None
    """Said instead of a verdict."""
    times: int | None = None
    """How many askings get `answer`, the first ones; later ones get the verdict. `None`: all."""
    wait_seconds: float = 0.0
    failure: Failure | None = None
    weight: float = 1.0


class _Weighted(Protocol):
    @property
    def weight(self) -> float: ...


_Choice = TypeVar("_Choice", bound=_Weighted)
ByArm = Mapping[str, tuple[_Choice, ...]]
"""Arm (`full`, `ablated`, `*`, or `~a~b` for exactly these ablated names) → what may happen."""


@dataclass(frozen=True, slots=True)
class Script:
    path: Path
    digest: str
    """Hexadecimal sha256 of the file."""
    seed: int = 0
    model: str | None = None
    tokens: Usage | None = None
    """Used by every attempt that does something and has no `tokens` step."""
    tasks: Mapping[str, ByArm[Outcome]] = field(default_factory=dict)
    judge_model: str | None = None
    judge_tokens: Usage | None = None
    judge_tasks: Mapping[str, ByArm[Ruling]] = field(default_factory=dict)

    def outcome(self, task: str, ablated: Sequence[str], attempt: int) -> Outcome | None:
        """What happens in that attempt. `None`: the script does not say."""
        choices = _choices(self.tasks, task, ablated)
        return None if choices is None else self._chosen(choices, "agent", task, ablated, str(attempt))

    def ruling(self, task: str, ablated: Sequence[str], question: str) -> Ruling:
        """What the judge makes of a question; `question` tells it from others of the same task and arm."""
        choices = _choices(self.judge_tasks, task, ablated)
        if choices is None:
            return Ruling(passed=True, reasoning="The script says nothing of this task, so it passes.")
        return self._chosen(choices, "judge", task, ablated, question)

    def _chosen(self, choices: tuple[_Choice, ...], who: str, task: str, ablated: Sequence[str], which: str) -> _Choice:
        """One of them, by weight: a hash stands for chance, so nothing but the arguments matters."""
        text = "\0".join((str(self.seed), who, task, *sorted(ablated), "", which))
        chance = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") / 2**64
        left = chance * sum(choice.weight for choice in choices)
        for choice in choices:
            left -= choice.weight
            if left < 0:
                return choice
        return choices[-1]


def _choices(tasks: Mapping[str, ByArm[_Choice]], task: str, ablated: Sequence[str]) -> tuple[_Choice, ...] | None:
    """The task's own before `*`'s; in each, the exact arm before its kind before `*`."""
    exact = "".join(f"~{name}" for name in sorted(ablated))
    for name in (task, EVERY):
        arms = tasks.get(name, {})
        for arm in (exact, ABLATED if ablated else FULL, EVERY):
            if arm in arms:
                return arms[arm]
    return None


def load_script(path: Path) -> Script:
    """The script in that file, read once as long as it stays the same. Raises `SpecError`."""
    try:
        status = path.stat()
    except OSError as error:
        raise SpecError([Problem(str(path), f"this script cannot be read: {error.strerror}")]) from error
    return _load(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=32)
def _load(path: Path, modified: int, size: int) -> Script:
    data = path.read_bytes()
    reader = AuthoredYaml(str(path))
    root = reader.document(data)
    script = None if root is None else _read_script(reader, root, path, hashlib.sha256(data).hexdigest())
    if script is None or reader.problems:
        raise SpecError(sorted(reader.problems, key=lambda problem: problem.line or 0))
    return script


def task_names(spec_path: Path) -> tuple[str, ...] | None:
    """Names of the tasks of a spec, in its order. `None`: it cannot be told; checking specs is not our affair."""
    try:
        root = AuthoredYaml(str(spec_path)).document(spec_path.read_bytes())
    except OSError:
        return None
    tasks = next((value for key, value in _pairs(root) if key.value == "tasks"), None)
    if tasks is None or not isinstance(tasks.value, list):
        return None
    found = []
    for task in tasks.value:
        name = next((value.value for key, value in _pairs(task) if key.value == "name"), None)
        if not isinstance(name, str):
            return None
        found.append(name)
    return tuple(found)


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    return node.value if node is not None and node.id == "mapping" else []


def _read_script(reader: AuthoredYaml, root: Any, path: Path, digest: str) -> Script | None:
    entries = reader.mapping(root, (), {"seed", "model", "tokens", "tasks", "judge"})
    judge = reader.mapping(entries["judge"], ("judge",), {"model", "tokens", "tasks"}) if "judge" in entries else {}
    if not entries and not reader.problems:
        reader.problem(root, (), "this script is empty; it needs `tasks` or `judge`")
    return Script(
        path=path,
        digest=digest,
        seed=reader.integer(entries["seed"], ("seed",)) if "seed" in entries else 0,
        model=reader.text(entries["model"], ("model",)) if "model" in entries else None,
        tokens=_tokens(reader, entries["tokens"], ("tokens",)) if "tokens" in entries else None,
        tasks=_by_task(reader, entries.get("tasks"), ("tasks",), _outcome, {"steps", "fail"}),
        judge_model=reader.text(judge["model"], ("judge", "model")) if "model" in judge else None,
        judge_tokens=_tokens(reader, judge["tokens"], ("judge", "tokens")) if "tokens" in judge else None,
        judge_tasks=_by_task(reader, judge.get("tasks"), ("judge", "tasks"), _ruling, {"passed", "answer", "fail"}),
    )


def _by_task(
    reader: AuthoredYaml,
    node: Any,
    trail: Trail,
    read: Callable[[AuthoredYaml, Any, Trail], _Choice],
    marks: set[str],
) -> dict[str, ByArm[_Choice]]:
    """`marks`: keys of a choice, by which it is told from a mapping of arms."""
    found: dict[str, ByArm[_Choice]] = {}
    for task, value in ({} if node is None else reader.mapping(node, trail, None)).items():
        inside = (*trail, task)
        if value.id == "mapping" and not marks & {key.value for key, _ in value.value if key.id == "scalar"}:
            arms = reader.mapping(value, inside, None)
            for arm in arms:
                if arm not in (FULL, ABLATED, EVERY) and not re.fullmatch(r"(~[^~]+)+", arm):
                    reader.problem(
                        value, (*inside, arm), "no arm is called so; arms are full, ablated, ~NAME (without NAME) and *"
                    )
            found[task] = {
                "~" + "~".join(sorted(arm[1:].split("~"))) if arm.startswith("~") else arm: _weighted(
                    reader, choices, (*inside, arm), read
                )
                for arm, choices in arms.items()
            }
        else:
            found[task] = {EVERY: _weighted(reader, value, inside, read)}
    return found


def _weighted(
    reader: AuthoredYaml, node: Any, trail: Trail, read: Callable[[AuthoredYaml, Any, Trail], _Choice]
) -> tuple[_Choice, ...]:
    nodes = [node] if node.id == "mapping" else reader.items(node, trail)
    choices = tuple(
        read(reader, item, trail if item is node else (*trail, str(at))) for at, item in enumerate(nodes, 1)
    )
    if choices and sum(choice.weight for choice in choices) <= 0:
        reader.problem(node, trail, "nothing can happen: all weights are 0")
    return choices


def _weight(reader: AuthoredYaml, entries: dict[str, Any], trail: Trail) -> float:
    return reader.number(entries["weight"], (*trail, "weight")) if "weight" in entries else 1.0


def _outcome(reader: AuthoredYaml, node: Any, trail: Trail) -> Outcome:
    entries = reader.mapping(node, trail, {"weight", "steps", "fail"})
    steps: list[Step] = []
    if "steps" in entries:
        inside = (*trail, "steps")
        steps += [
            step
            for at, item in enumerate(reader.items(entries["steps"], inside), 1)
            if (step := _step(reader, item, (*inside, str(at)))) is not None
        ]
    if "fail" in entries:
        steps.append(Step("fail", _failure(reader, entries["fail"], (*trail, "fail"), FAILURES)))
    if "steps" not in entries and "fail" not in entries:
        reader.problem(node, trail, "an outcome needs `steps` or `fail`")
    return Outcome(tuple(steps), _weight(reader, entries, trail))


def _step(reader: AuthoredYaml, node: Any, trail: Trail) -> Step | None:
    entries = reader.mapping(node, trail, set(_STEPS))
    if len(entries) != 1:
        if node.id == "mapping" and len(node.value) != 1:
            reader.problem(node, trail, f"a step is one of {', '.join(_STEPS)}; this has {len(node.value)} keys")
        return None
    ((kind, value),) = entries.items()
    inside = (*trail, kind)
    if kind == "tokens":
        return Step(kind, _tokens(reader, value, inside))
    if kind == "wait":
        return Step(kind, reader.number(value, inside))
    if kind == "fail":
        return Step(kind, _failure(reader, value, inside, FAILURES))
    if kind == "tool":
        return Step(kind, _tool(reader, value, inside))
    return Step(kind, reader.text(value, inside))


def _tool(reader: AuthoredYaml, node: Any, trail: Trail) -> ToolUse:
    entries = reader.mapping(node, trail, {"name", "input", "result", "error"}, needed=("name",))
    given = reader.plain(entries["input"], (*trail, "input")) if "input" in entries else {}
    if not isinstance(given, dict):
        reader.problem(entries["input"], (*trail, "input"), "a mapping is needed: the tool's arguments by name")
        given = {}
    return ToolUse(
        reader.text(entries["name"], (*trail, "name")) if "name" in entries else "",
        given,
        reader.text(entries["result"], (*trail, "result")) if "result" in entries else "",
        reader.boolean(entries["error"], (*trail, "error")) if "error" in entries else False,
    )


def _tokens(reader: AuthoredYaml, node: Any, trail: Trail) -> Usage:
    entries = reader.mapping(node, trail, set(_TOKENS))
    return Usage(*(reader.integer(entries[name], (*trail, name)) if name in entries else None for name in _TOKENS))


def _failure(reader: AuthoredYaml, node: Any, trail: Trail, kinds: Sequence[str]) -> Failure:
    if node.id == "scalar":
        return Failure(reader.word(node, trail, kinds))
    entries = reader.mapping(node, trail, {"kind", "times", "exit", "message"}, needed=("kind",))
    code = reader.integer(entries["exit"], (*trail, "exit")) if "exit" in entries else 1
    if not 0 <= code <= 255:
        reader.problem(entries["exit"], (*trail, "exit"), f"{code} is no exit code; they go from 0 to 255")
    return Failure(
        reader.word(entries["kind"], (*trail, "kind"), kinds) if "kind" in entries else kinds[0],
        reader.integer(entries["times"], (*trail, "times")) if "times" in entries else None,
        code,
        reader.text(entries["message"], (*trail, "message")) if "message" in entries else None,
    )


def _ruling(reader: AuthoredYaml, node: Any, trail: Trail) -> Ruling:
    keys = {"weight", "passed", "reasoning", "answer", "times", "wait", "fail"}
    entries = reader.mapping(node, trail, keys)
    if not entries.keys() & {"passed", "answer", "fail"}:
        reader.problem(node, trail, "a ruling needs `passed`, `answer` or `fail`")
    if "times" in entries and not {"answer", "passed"} <= entries.keys():
        reader.problem(node, trail, "`times` says how often `answer` comes before the verdict, so it needs both")
    return Ruling(
        passed=reader.boolean(entries["passed"], (*trail, "passed")) if "passed" in entries else None,
        reasoning=reader.text(entries["reasoning"], (*trail, "reasoning")) if "reasoning" in entries else "",
        answer=reader.text(entries["answer"], (*trail, "answer")) if "answer" in entries else None,
        times=reader.integer(entries["times"], (*trail, "times")) if "times" in entries else None,
        wait_seconds=reader.number(entries["wait"], (*trail, "wait")) if "wait" in entries else 0.0,
        failure=_failure(reader, entries["fail"], (*trail, "fail"), FAILURES) if "fail" in entries else None,
        weight=_weight(reader, entries, trail),
    )
