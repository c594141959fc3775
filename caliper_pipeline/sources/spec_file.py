"""A spec file into an `EvalSpec`, with the scripts, histories and skills that it names: all checks before any attempt.

Everything wrong is told together, with file, line and key. Nothing here needs the network, starts a process or runs
what the spec contains.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from caliper_pipeline.domain.assert_code import CodeFault, examine_assert
from caliper_pipeline.domain.authored import Finding, closest, findings_of, kind_of, visible
from caliper_pipeline.domain.errors import Problem, SpecError
from caliper_pipeline.domain.patterns import pattern_fault
from caliper_pipeline.domain.planted import PlantedTurn, read_turns
from caliper_pipeline.domain.skills import Skill
from caliper_pipeline.domain.spec import EvalSpec, GitSource, legacy_form, script_path, task_id
from caliper_pipeline.sources.lint import NamedFile, lint, lint_history
from caliper_pipeline.sources.placing import Placer, by_line
from caliper_pipeline.sources.skill_files import Exclusions
from caliper_pipeline.sources.skill_source import read_skills
from caliper_pipeline.sources.text_file import (
    TextFile,
    absolute_path,
    file_identity,
    named_path,
    printable,
    read_text,
    refused,
)
from caliper_pipeline.sources.yaml_tree import Node, read_tree


@dataclass(frozen=True, slots=True)
class AssertSource:
    """The Python of one `assert:`."""

    text: str
    path: Path | None
    """Of the script, absolute. `None`: it stands in the spec."""


@dataclass(frozen=True, slots=True)
class PlantedHistory:
    """The conversation that one task takes up."""

    text: str
    """As it stands in the file."""
    turns: tuple[PlantedTurn, ...]


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec that holds up, with everything it names on this machine."""

    path: Path
    """Absolute; when the spec is a link, that of the link."""
    directory: Path
    """What relative paths in the spec start from."""
    name: str
    text: str
    digest: str
    """Hexadecimal sha256 of the file's bytes."""
    spec: EvalSpec
    """`sandbox.extra_path` is absolute in here."""
    asserts: Mapping[str, AssertSource]
    """By task id."""
    histories: Mapping[str, PlantedHistory]
    """By task id."""
    skills: tuple[Skill, ...] = ()
    """The path sources, in the spec's order."""
    git_sources: tuple[GitSource, ...] = ()
    warnings: tuple[Problem, ...] = ()
    """What is allowed and yet likely not meant; those about one skill are on the skill."""

    @property
    def real_path(self) -> Path:
        """Of the file itself, links followed."""
        return self.path.resolve()


def load_spec(path: Path, operator_home: Path) -> LoadedSpec:
    """The spec in a file. Raises `SpecError` with every problem of the spec and of its skills."""
    if path.is_dir():
        raise refused(str(path), "is a folder: name the spec in it")
    spec_name(path)
    return check_spec(path, _read_spec(path), operator_home)


def check_spec(path: Path, file: TextFile, operator_home: Path) -> LoadedSpec:
    """The spec that a text would be if it stood in the file at that path. Raises `SpecError`."""
    shown = str(path)
    name = spec_name(path)
    tree = read_tree(file.text, shown)
    if tree is None:
        raise refused(shown, "is empty: a spec needs at least `tasks:`")
    data = tree.data()
    if not isinstance(data, Mapping):
        raise refused(shown, f"must hold a mapping with `tasks:`, not {kind_of(data)}", tree.line)
    absolute = absolute_path(path)
    reading = _Reading(absolute, operator_home, tree, data, Placer(shown, tree))
    spec = reading.everything()
    if reading.problems or spec is None:
        raise SpecError(by_line(reading.problems), hint=_legacy_hint(data, shown))
    warnings = [*reading.warnings, *lint(spec, reading.skills, reading.named, reading.placer)]
    for placer, turns in reading.planted:
        warnings += lint_history(turns, reading.skills, placer)
    return LoadedSpec(
        path=absolute,
        directory=absolute.parent,
        name=name,
        text=file.text,
        digest=hashlib.sha256(file.data).hexdigest(),
        spec=spec.model_copy(
            update={"sandbox": spec.sandbox.model_copy(update={"extra_path": tuple(reading.extra_path)})}
        ),
        asserts=reading.asserts,
        histories=reading.histories,
        skills=tuple(reading.skills),
        git_sources=tuple(source for source in spec.skills if isinstance(source, GitSource)),
        warnings=by_line(warnings),
    )


def _read_spec(path: Path) -> TextFile:
    try:
        return read_text(path, str(path))
    except SpecError as error:
        if path.exists():
            raise
        beside = [file.name for file in path.parent.glob("*.eval.y*ml")] if path.parent.is_dir() else []
        near = closest(path.name, beside)
        hint = f"Did you mean {path.parent / near}?" if near else None
        raise SpecError(error.problems, hint=hint) from error


def spec_name(path: Path) -> str:
    """The name that runs of a spec are filed under. Raises `SpecError` when it could not name a folder."""
    name = path.stem.removesuffix(".eval")
    if not visible(name) or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable():
        raise refused(
            str(path),
            f"its name without `.eval.yaml` is {name!r}, which cannot name the folder of its results; "
            "call it for instance my-skill.eval.yaml"
            + (", or set LC_ALL=C.UTF-8" if sys.getfilesystemencoding() != "utf-8" else ""),
        )
    return name


@dataclass(slots=True)
class _Reading:
    """One spec being read: works on the raw data, so that one fault hides no other."""

    path: Path
    home: Path
    tree: Node
    data: Mapping[str, Any]
    placer: Placer
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    asserts: dict[str, AssertSource] = field(default_factory=dict)
    histories: dict[str, PlantedHistory] = field(default_factory=dict)
    skills: list[Skill] = field(default_factory=list)
    extra_path: list[str] = field(default_factory=list)
    named: list[NamedFile] = field(default_factory=list)
    planted: list[tuple[Placer, tuple[PlantedTurn, ...]]] = field(default_factory=list)

    def everything(self) -> EvalSpec | None:
        spec = None
        try:
            spec = EvalSpec.read(self.data)
        except ValidationError as error:
            self.problems += self.placer.problems(findings_of(error))
        for place, task in self.tasks():
            self.read_assert(place, task.get("assert"))
            self.read_history(place, task.get("history"))
            if "id" in task:
                finding = Finding(("tasks", place, "id"), "is ignored: tasks are known by their names")
                self.warnings.append(self.placer.problem(finding))
        self.read_extra_path()
        self.read_skills()
        return spec

    def tasks(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        tasks = self.data.get("tasks")
        for place, task in enumerate(tasks if isinstance(tasks, list) else []):
            if isinstance(task, Mapping):
                yield place, task

    def find(self, text: str) -> Path:
        """A path in the spec, from the spec's folder; `~` is a name like any other."""
        return self.path.parent / named_path(text)

    # -- assert -----------------------------------------------------------------------------------------------------

    def read_assert(self, place: int, script: Any) -> None:
        if not isinstance(script, str) or not visible(script) or "\0" in script:
            return
        path = ("tasks", place, "assert")
        named = script_path(script)
        if named is None:
            self.asserts[task_id(place)] = AssertSource(script, None)
            for fault in examine_assert(script):
                line = self.line_in(path, fault)
                far = line is None and fault.line is not None and "\n" in script.strip()
                message = f"{fault.message} (line {fault.line} of the script)" if far else fault.message
                self.tell(self.placer.problem(Finding(path, message), line=line), fault.fatal)
            return
        file = self.find(named)
        try:
            text = read_text(file, named).text
        except SpecError as error:
            message = f"the script {printable(named)} {error.problems[0].message}"
            if not file.exists() and any(mark in named for mark in "(\"' "):
                message += ". A single line that ends in .py is taken for the path of a script"
            self.problems.append(self.placer.problem(Finding(path, message)))
            return
        self.asserts[task_id(place)] = AssertSource(text, absolute_path(file))
        self.named.append((path, file))
        for fault in examine_assert(text):
            self.tell(Problem(printable(named), fault.message, key=self.placer.key(path), line=fault.line), fault.fatal)

    def tell(self, problem: Problem, fatal: bool) -> None:
        (self.problems if fatal else self.warnings).append(problem)

    def line_in(self, path: tuple[str | int, ...], fault: CodeFault) -> int | None:
        """The line of the file, where the script stands there line by line."""
        node = self.tree.at(path)
        if node is None or fault.line is None or node.style != "|":
            return None
        return node.line + fault.line

    # -- history ----------------------------------------------------------------------------------------------------

    def read_history(self, place: int, named: Any) -> None:
        if not isinstance(named, str) or not visible(named) or "\0" in named:
            return
        try:
            text = read_text(self.find(named), named).text
        except SpecError as error:
            message = f"the history {printable(named)} {error.problems[0].message}"
            self.problems.append(self.placer.problem(Finding(("tasks", place, "history"), message)))
            return
        try:
            tree = read_tree(text, named)
        except SpecError as error:
            self.problems += error.problems
            return
        placer = Placer(named, tree, item_word="turn ")
        turns, findings = read_turns(tree.data() if tree is not None else [])
        self.problems += placer.problems(findings)
        self.histories[task_id(place)] = PlantedHistory(text, turns)
        self.named.append((("tasks", place, "history"), self.find(named)))
        self.planted.append((placer, turns))

    # -- sandbox and skills -----------------------------------------------------------------------------------------

    def sandbox(self, key: str) -> list[tuple[int, str]]:
        sandbox = self.data.get("sandbox")
        items = sandbox.get(key) if isinstance(sandbox, Mapping) else None
        return [
            (place, item)
            for place, item in enumerate(items if isinstance(items, list) else [])
            if isinstance(item, str) and visible(item) and "\0" not in item
        ]

    def read_extra_path(self) -> None:
        for place, text in self.sandbox("extra_path"):
            folder = self.find(text)
            if not folder.is_dir():
                fault = "is not a folder" if folder.exists() else "does not exist"
                tilde = "; `~` is not expanded here" if text.startswith("~") else ""
                message = f"{printable(str(folder))} {fault}{tilde}"
                self.problems.append(self.placer.problem(Finding(("sandbox", "extra_path", place), message)))
            self.extra_path.append(str(absolute_path(folder)))

    def read_skills(self) -> None:
        entries = self.data.get("skills")
        reading = read_skills(
            [entry if not isinstance(entry, str) or "\0" not in entry else None for entry in entries]
            if isinstance(entries, list)
            else [],
            folder=self.path.parent,
            home=self.home,
            exclusions=Exclusions(
                tuple(text for _, text in self.sandbox("forbidden_files") if pattern_fault(text) is None),
                self.path.parent,
                file_identity(self.path),
            ),
            placer=self.placer,
        )
        self.problems += reading.problems
        self.skills = reading.skills
        whole = isinstance(entries, list) and len(reading.skills) == len(entries)
        self.check_activates(known_wholly=whole or not entries)

    def check_activates(self, *, known_wholly: bool) -> None:
        """Every skill in `activates` must be declared. Stands down while some declared skill is not known."""
        declared = [skill.name for skill in self.skills]
        asserted = False
        for place, task in self.tasks():
            names = task.get("activates")
            for number, name in enumerate(names if isinstance(names, list) else []):
                if not isinstance(name, str) or not visible(name) or name in declared:
                    continue
                asserted = True
                if not known_wholly:
                    continue
                near = closest(name, declared)
                hint = f" Did you mean `{near}`?" if near else ""
                listed = ", ".join(declared) if declared else "none"
                message = f"no skill called {name!r} is declared.{hint} Declared: {listed}"
                self.problems.append(self.placer.problem(Finding(("tasks", place, "activates", number), message)))
        if asserted and not known_wholly and not self.problems:
            message = "some declared skills are fetched with git, so the names under `activates:` could not be checked"
            self.warnings.append(self.placer.problem(Finding(("skills",), message)))


def _legacy_hint(data: Mapping[str, Any], shown: str) -> str | None:
    """How a spec of release 0.4 is written now."""
    if "skill" not in data and "judge" not in data:
        return None
    block, flags = legacy_form(data)
    lines = []
    if block is not None:
        lines += ["Write instead of `skill:`", "", block, ""]
    if flags:
        lines.append(f"Choose engines when you run it: caliper run {shown} {' '.join(flags)}")
    lines.append(f"`caliper migrate {shown}` rewrites the file for you, comments kept.")
    return printable_lines("\n".join(lines))


def printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
