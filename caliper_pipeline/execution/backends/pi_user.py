"""The operator's own setup for pi: what an attempt loads of it when it is not isolated, and the names of that.

What loads is decided here, by the CLI's own rules, and handed to it without choices left: skills and prompts are
copied, extensions and packages are named where they lie (they run from there; copying their dependencies for each
attempt would take longer than the attempt). A declared skill or server wins over a namesake, also when it is ablated.

Not covered: themes and key bindings, which mean nothing without a terminal; packages that are not installed yet, since
an attempt does not install any; an extension of the operator's that takes the place of the CLI's own MCP support.
"""

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.backends import pi_home, pi_settings, pi_values
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.home_files import copy_folder, write_private
from caliper_pipeline.execution.backends.json_lines import mapping
from caliper_pipeline.execution.backends.pi_cli import PACKAGE, Cli
from caliper_pipeline.execution.backends.pi_resources import (
    FoundSkill,
    Package,
    Settings,
    extension_entries,
    package_entry,
    package_skills,
    skill_at,
    skills_in,
)

_CONTEXT = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
"""The CLI reads the first that is there."""
_RULES = ("SYSTEM.md", "APPEND_SYSTEM.md")


@dataclass(slots=True)
class UserLayer:
    """What loads."""

    rules: list[Path] = field(default_factory=list)
    skills: dict[str, FoundSkill] = field(default_factory=dict)
    prompts: dict[str, Path] = field(default_factory=dict)
    extensions: list[Path] = field(default_factory=list)
    packages: list[Package] = field(default_factory=list)
    package_skills: dict[str, FoundSkill] = field(default_factory=dict)
    left_out: dict[str, list[Path]] = field(default_factory=dict)
    """Source of a package → its skills that make way for declared ones."""
    servers: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Sorted, each with its kind before it."""
        found = {f"rules:{path.name}" for path in self.rules}
        found |= {f"skill:{name}" for name in (*self.skills, *self.package_skills)}
        found |= {f"prompt:{name}" for name in self.prompts}
        found |= {f"extension:{_extension_name(path)}" for path in self.extensions}
        found |= {f"package:{package.source}" for package in self.packages}
        found |= {f"mcp:{name}" for name in self.servers}
        if self.settings:
            found.add("settings:settings.json")
        return tuple(sorted(found))


def find_layer(
    operator: Operator, cli: Cli | None, declared: Collection[str] = (), servers: Collection[str] = ()
) -> UserLayer:
    folder = pi_home.operator_folder(operator)
    layer = UserLayer(settings=pi_home.read_settings(operator))
    settings = Settings(layer.settings, folder, operator.home)
    taken = {name.casefold() for name in declared}
    context = next((folder / name for name in _CONTEXT if (folder / name).is_file()), None)
    layer.rules = [path for path in (context, *(folder / name for name in _RULES)) if path and path.is_file()]
    for skill in _skills(settings, operator.home):
        if skill.name.casefold() not in taken:
            layer.skills.setdefault(skill.name, skill)
    for prompt in _prompts(settings):
        layer.prompts.setdefault(prompt.stem, prompt)
    layer.extensions = list(dict.fromkeys(_extensions(settings)))
    layer.packages = settings.packages(_npm_folders(cli))
    for package in layer.packages:
        for skill in package_skills(package):
            if skill.name.casefold() in taken:
                layer.left_out.setdefault(package.source, []).append(skill.file)
            elif skill.name not in layer.skills:
                layer.package_skills.setdefault(skill.name, skill)
    given = mapping(pi_values.read_file(folder / "mcp.json")).get("mcpServers")
    ours = {pi_home.plain(name) for name in servers}
    layer.servers = {name: entry for name, entry in mapping(given).items() if pi_home.plain(name) not in ours}
    return layer


def install(layer: UserLayer, operator: Operator, home: Path, *, servers_declared: bool) -> dict[str, Any]:
    """Copy the layer into the home; the settings that go with it."""
    source, target = pi_home.operator_folder(operator), pi_home.agent_folder(home)
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for rule in layer.rules:
        write_private(target / rule.name, rule.read_bytes())
    for name, skill in layer.skills.items():
        _copy_skill(skill, target / "skills", _folder_name(name, skill))
    for name, prompt in layer.prompts.items():
        write_private(target / "prompts" / f"{name}.md", prompt.read_bytes())
    if layer.servers and (source / "mcp-auth.json").is_file():
        write_private(target / "mcp-auth.json", (source / "mcp-auth.json").read_bytes())
    settings = pi_settings.loaded_settings(layer.settings)
    switches = [entry for entry in _strings(layer.settings.get("extensions")) if entry[1:].startswith("builtin:")]
    if servers_declared:
        switches = [entry for entry in switches if entry != "-builtin:mcp"]
    settings["extensions"] = [*(str(path) for path in layer.extensions), *switches]
    settings["packages"] = [
        package_entry(package, layer.left_out.get(package.source, ())) for package in layer.packages
    ]
    return {key: value for key, value in settings.items() if value or key not in ("extensions", "packages")}


def _skills(settings: Settings, home: Path) -> Iterator[FoundSkill]:
    """In the CLI's own order: what the settings name goes before what it finds by itself."""
    for path in settings.paths("skills"):
        yield from (skill for skill in skill_at(path) if settings.enabled("skills", skill.file, settings.folder))
    for skill in skills_in(settings.folder / "skills"):
        if settings.enabled("skills", skill.file, settings.folder):
            yield skill
    for skill in skills_in(home / ".agents" / "skills", files_at_top=False):
        if settings.enabled("skills", skill.file, home / ".agents"):
            yield skill


def _prompts(settings: Settings) -> Iterator[Path]:
    for path in settings.paths("prompts"):
        found = sorted(path.rglob("*.md")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and settings.enabled("prompts", file, settings.folder))
    folder = settings.folder / "prompts"
    for file in sorted(folder.glob("*.md")) if folder.is_dir() else ():
        if file.is_file() and not file.name.startswith(".") and settings.enabled("prompts", file, settings.folder):
            yield file


def _extensions(settings: Settings) -> Iterator[Path]:
    for path in (*settings.paths("extensions"), settings.folder / "extensions"):
        found = [path] if path.is_file() else extension_entries(path)
        yield from (file for file in found if settings.enabled("extensions", file, settings.folder))


def _npm_folders(cli: Cli | None) -> list[Path]:
    """Where packages lie that were installed beside the CLI, as older versions do."""
    if cli is None:
        return []
    real = cli.binary.resolve()
    return [folder for folder in real.parents if folder.name == "node_modules" and (folder / PACKAGE).is_dir()]


def _extension_name(path: Path) -> str:
    return path.parent.name if path.stem == "index" else path.stem


def _folder_name(name: str, skill: FoundSkill) -> str:
    """A skill's name may be anything; a folder's may not."""
    fits = name not in ("", ".", "..") and not set(name) & set("/\\\0")
    return name if fits else skill.file.parent.name


def _copy_skill(skill: FoundSkill, root: Path, name: str) -> None:
    if skill.file.name == "SKILL.md":
        copy_folder(skill.file.parent, root / name)
    else:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(skill.file, root / f"{name}.md")


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
