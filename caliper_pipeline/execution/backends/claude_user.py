"""The operator's own setup for Claude Code: what an attempt loads of it when it is not isolated, and the names of that.

    rules        `CLAUDE.md`, the folder `rules`, and the files that they import with `@path`
    settings     `settings.json`, hooks and environment included, and the folder `hooks` that its commands may name
    skills       one level deep, as the CLI looks for them; `commands` are skills for it, too
    agents, output styles
    servers      those of `.claude.json`; connectors of an account come with the login and are listed nowhere
    plugins      see `claude_plugins.py`

Everything is copied, since an agent may write into its home. A declared skill or server wins over a namesake, also
when it is ablated: then neither is there. A spec with an empty `mcp:` wants no server at all, so the operator's stay
out whatever else loads.

Not covered: files that a customization names by an absolute path are read where they lie; what depends on the folder
that one works in (project settings, local memory); settings that an administrator enforces, which load always.
"""

import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends import claude_home
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.claude_home import CONFIG_FOLDER, json_bytes, read_object
from caliper_pipeline.execution.backends.claude_plugins import find_plugins, plugin_names, seed_plugins
from caliper_pipeline.execution.backends.home_files import copy_folder, write_private

RULES = "CLAUDE.md"
UNLISTED = "mcp:(not listed)"
"""The connectors of an account: nothing on this machine names them."""
_RULES_FOLDER, _COMMANDS, _AGENTS, _STYLES, _HOOKS = "rules", "commands", "agents", "output-styles", "hooks"
_FOLDERS = (_RULES_FOLDER, _COMMANDS, _AGENTS, _STYLES, _HOOKS)
_PLUGIN_KEYS = ("enabledPlugins", "extraKnownMarketplaces")
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:[^\s\\]|\\ )+)", re.MULTILINE)
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_DEEPEST_IMPORT = 5
_LARGEST_IMPORT = 1024 * 1024


def seed_customizations(operator: Operator, home: Path, declared: Collection[str]) -> None:
    """Copy all that loads but the servers (`user_servers`). Raises `CannotRun`."""
    source, target = claude_home.config_folder(operator), home / CONFIG_FOLDER
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        settings = read_object(source / "settings.json")
        plugins = find_plugins(source, settings)
        kept = {key: value for key, value in settings.items() if key not in _PLUGIN_KEYS}
        kept |= seed_plugins(plugins, target)
        if kept:
            write_private(target / "settings.json", json_bytes(kept))
        for name in _FOLDERS:
            if (source / name).is_dir():
                copy_folder(source / name, target / name)
        for path in _namesakes(target / _COMMANDS, declared):
            path.unlink()
        for name, folder in user_skills(source, declared).items():
            copy_folder(folder, target / "skills" / name)
        _seed_rules(operator, source, home)
    except (OSError, shutil.Error) as error:
        raise CannotRun(
            f"The customizations in {source} cannot be copied: {error}",
            hint="Make them readable, or run with --no-user-customizations.",
        ) from error


def user_servers(operator: Operator, declared: Collection[str] | None) -> dict[str, Any]:
    """The operator's servers that load beside the declared ones. `None`: the spec says nothing of servers."""
    servers = claude_home.user_account(operator).get("mcpServers")
    if not isinstance(servers, dict) or declared == ():
        return {}
    return {name: facts for name, facts in servers.items() if name not in (declared or ())}


def user_layer(operator: Operator, declared: Collection[str], servers: Collection[str] | None) -> tuple[str, ...]:
    """What loads, as sorted names with their kind before them."""
    source = claude_home.config_folder(operator)
    settings = read_object(source / "settings.json")
    found = {f"skill:{name}" for name in user_skills(source, declared)}
    found |= {f"rules:{path.relative_to(source).as_posix()}" for path in _rules(source)}
    if settings.keys() - set(_PLUGIN_KEYS):
        found.add("settings:settings.json")
    found |= {f"command:{name}" for name in _command_names(source / _COMMANDS, declared)}
    found |= {f"agent:{path.stem}" for path in _markdown(source / _AGENTS)}
    found |= {f"output-style:{path.stem}" for path in _markdown(source / _STYLES)}
    found |= {f"mcp:{name}" for name in user_servers(operator, servers)}
    if servers != () and "claudeAiOauth" in read_object(source / claude_home.CREDENTIALS):
        found.add(UNLISTED)
    return tuple(sorted(found | set(plugin_names(find_plugins(source, settings)))))


def user_skills(source: Path, declared: Collection[str]) -> dict[str, Path]:
    """Skill name → folder. The CLI goes by the folder's name and looks one level deep; letter case may not count."""
    root = source / "skills"
    taken = {name.casefold() for name in declared}
    found: dict[str, Path] = {}
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if (folder / "SKILL.md").is_file() and folder.name.casefold() not in taken:
            taken.add(folder.name.casefold())
            found[folder.name] = folder
    return found


def _markdown(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.md") if path.is_file()) if folder.is_dir() else []


def _command_names(folder: Path, declared: Collection[str]) -> Iterator[str]:
    """As the CLI calls them: `folder:name` below a folder."""
    out = set(_namesakes(folder, declared))
    for path in _markdown(folder):
        if path not in out:
            yield ":".join(path.relative_to(folder).with_suffix("").parts)


def _namesakes(folder: Path, declared: Collection[str]) -> list[Path]:
    """Commands that would answer to the name of a declared skill."""
    taken = {name.casefold() for name in declared}
    return [path for path in _markdown(folder) if path.parent == folder and path.stem.casefold() in taken]


def _rules(source: Path) -> list[Path]:
    rules = _markdown(source / _RULES_FOLDER)
    return [source / RULES, *rules] if (source / RULES).is_file() else rules


def _seed_rules(operator: Operator, source: Path, home: Path) -> None:
    """Copy the rules and what they import, each to the place where the copy will look for it."""
    places = {source: home / CONFIG_FOLDER, operator.home: home}
    waiting = [(path, 0) for path in _rules(source)]
    seen: set[Path] = set()
    while waiting:
        path, depth = waiting.pop()
        if path in seen or not path.is_file() or path.stat().st_size > _LARGEST_IMPORT:
            continue
        seen.add(path)
        target = _moved(path, places)
        if target is None:
            continue
        data = path.read_bytes()
        if not target.exists():
            write_private(target, data)
        if depth < _DEEPEST_IMPORT:
            text = _CODE.sub("", data.decode("utf-8", "replace"))
            waiting += [(_imported(name, path, operator.home), depth + 1) for name in _IMPORT.findall(text)]


def _imported(name: str, importer: Path, home: Path) -> Path:
    name = name.replace("\\ ", " ").partition("#")[0]
    path = home / name[2:] if name.startswith("~/") else importer.parent / name
    return Path(str(path.parent.resolve()), path.name) if ".." in path.parts else path


def _moved(path: Path, places: Mapping[Path, Path]) -> Path | None:
    """Where a file lies in the attempt's home. `None`: outside, so it is read where it is."""
    for place, target in places.items():
        if path.is_relative_to(place):
            return target / path.relative_to(place)
    return None
