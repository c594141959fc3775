"""The home of a codex attempt: the login in it, the configuration, and the operator's customizations when they load.

Isolation comes from the home being new. `CODEX_HOME` and `HOME` are both the attempt's own, since the CLI looks for
skills below each of them. What crosses is the login (`auth.json`) and a `config.toml` made anew (`codex_config`).

The CLI runs commands in a login shell, which reads the system's profile first; many of those set `PATH` anew, so that
neither the spec's `extra_path` nor anything else of the operator's would be found. On their own machine people have
that put right by a profile of their own, and so has the attempt's home.

Not covered: a login in the system's keyring, hooks and rules in files of their own, custom prompts, memories, and files
that a customization names by its absolute path.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.codex_config import (
    CONNECTION,
    Config,
    read_config,
    table,
    takes_login,
    user_servers,
)
from caliper_pipeline.execution.backends.home_files import copy_folder, named_folder, write_private
from caliper_pipeline.execution.chatgpt import store

CONFIG_FOLDER = ".codex"
CONFIG_FILE = "config.toml"
LOGIN_FILE = "auth.json"
CONNECTORS = "codex_apps"
"""The server that a ChatGPT login brings along."""
UNLISTED = "mcp:(not listed)"
_AGENTS_SKILLS = Path(".agents", "skills")
_RULES = ("AGENTS.md", "AGENTS.override.md")
_NO_CUSTOMIZATION = {*CONNECTION, "model", "mcp_servers", "plugins", "marketplaces"}
_NAME = re.compile(r"^name:[ \t]*[\"']?([^\"'#\r\n]+?)[\"']?[ \t]*$", re.MULTILINE)
_FRONTMATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---", re.DOTALL | re.MULTILINE)
_SAFE = re.compile(r"[A-Za-z0-9._-]+\Z")
_HEADER_BYTES = 64 * 1024


def config_folder(operator: Operator) -> Path:
    """Where the operator's own CLI keeps its configuration; need not exist. Raises `CannotRun`."""
    return named_folder(operator, "CODEX_HOME") or operator.home / CONFIG_FOLDER


def operator_config(operator: Operator) -> Config:
    """The operator's configuration. Raises `CannotRun` when it cannot be read."""
    return read_config(config_folder(operator) / CONFIG_FILE)


def attempt_config(home: Path) -> Config:
    """The configuration that was written into the home; empty when there is none that can be read."""
    try:
        return read_config(home / CONFIG_FOLDER / CONFIG_FILE)
    except CannotRun:
        return {}


def seed_login(operator: Operator, home: Path) -> None:
    (home / CONFIG_FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
    source = config_folder(operator) / LOGIN_FILE
    if source.is_file():
        write_private(home / CONFIG_FOLDER / LOGIN_FILE, source.read_bytes())


def has_login_file(home: Path) -> bool:
    return (home / CONFIG_FOLDER / LOGIN_FILE).is_file()


def is_plan_login(path: Path) -> bool:
    """The login is one with a ChatGPT account, not a key."""
    try:
        login: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(login, dict) and isinstance(login.get("tokens"), dict) and not login.get("OPENAI_API_KEY")


def uses_plan(operator: Operator) -> bool:
    """Somebody signed in to a ChatGPT plan of ours, and the configuration reaches its models by a login: the stored
    one stays where it is. Raises `CannotRun`."""
    if store.load(operator) is None:
        return False
    config = operator_config(operator)
    return takes_login(config) and "openai_base_url" not in config and config.get("forced_login_method") != "api"


def seed_path(home: Path, path: str) -> None:
    """Have login shells search these folders, as they would on the operator's machine."""
    for name in (".profile", ".zprofile"):
        (home / name).write_bytes(f"export PATH={shlex.quote(path)}\n".encode("utf-8", "surrogateescape"))


def seed_customizations(operator: Operator, home: Path, declared: Collection[str]) -> None:
    """Copy the operator's rules, skills and plugins; a declared skill keeps its name, also when ablated."""
    source, target = config_folder(operator), home / CONFIG_FOLDER
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _RULES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for plugin in _plugins(source, operator_config(operator)):
        place = _plugin_folder(plugin)
        copy_folder(source / place, target / place)
    for name, folder, below in _user_skills(operator, declared):
        place = home / below / (name if _SAFE.match(name) else folder.name)
        copy_folder(folder, place)


def user_layer(operator: Operator, declared: Collection[str], servers: tuple[str, ...]) -> tuple[str, ...]:
    """What loads of the operator's, as sorted kind-prefixed names."""
    source, config = config_folder(operator), operator_config(operator)
    features = table(config, "features")
    found = [f"skill:{name}" for name, _, _ in _user_skills(operator, declared)]
    found += [f"rules:{name}" for name in _RULES if (source / name).is_file()]
    if config.keys() - _NO_CUSTOMIZATION:
        found.append(f"settings:{CONFIG_FILE}")
    if features.get("plugins") is not False:
        found += [f"plugin:{name}" for name in _plugins(source, config)]
    found += [f"mcp:{name}" for name in loaded_servers(operator, config, servers)]
    if has_unlisted_servers(operator, config):
        found.append(UNLISTED)
    return tuple(sorted(found))


def loaded_servers(operator: Operator, config: Config, declared: tuple[str, ...]) -> tuple[str, ...]:
    """The operator's own servers that an attempt loads, connectors of the account among them."""
    own = [
        name
        for name, server in user_servers(config, declared).items()
        if not (isinstance(server, dict) and server.get("enabled") is False)
    ]
    apps = table(config, "features").get("apps") is not False and CONNECTORS not in declared
    account = apps and _seeds_account(operator)
    return (*own, *((CONNECTORS,) if account and CONNECTORS not in own else ()))


def has_unlisted_servers(operator: Operator, config: Config) -> bool:
    """A ChatGPT account may bring plugins, and each of them servers of its own."""
    plugins = table(config, "features").get("plugins") is not False
    return plugins and _seeds_account(operator)


def _seeds_account(operator: Operator) -> bool:
    """The login that is copied is one with a ChatGPT account, which brings connectors along."""
    return is_plan_login(config_folder(operator) / LOGIN_FILE) and not uses_plan(operator)


def _plugins(source: Path, config: Config) -> Iterator[str]:
    """The installed plugins that are not switched off: `name@marketplace`."""
    for name, given in table(config, "plugins").items():
        plain = all(_SAFE.match(part) and part.strip(".") for part in name.partition("@")[::2])
        if (
            plain
            and (source / _plugin_folder(name)).is_dir()
            and not (isinstance(given, dict) and given.get("enabled") is False)
        ):
            yield name


def _plugin_folder(name: str) -> Path:
    """Where a plugin lies, with all its versions."""
    plugin, _, market = name.partition("@")
    return Path("plugins", "cache", market, plugin)


def _user_skills(operator: Operator, declared: Collection[str]) -> Iterator[tuple[str, Path, Path]]:
    """Name, folder, and below which folder of a home it belongs. The CLI goes by the name in the file and looks at any
    depth; of namesakes the first counts, and a declared one before all. Letter case may not count."""
    taken = {name.casefold() for name in declared}
    roots = (
        (config_folder(operator) / "skills", Path(CONFIG_FOLDER, "skills")),
        (operator.home / _AGENTS_SKILLS, _AGENTS_SKILLS),
    )
    for root, below in roots:
        for folder in _skill_folders(root, set()):
            name = _skill_name(folder)
            if name.casefold() not in taken:
                taken.add(name.casefold())
                yield name, folder, below


def _skill_folders(folder: Path, seen: set[str]) -> Iterator[Path]:
    """Links are followed, each folder is looked at once, hidden ones (the CLI's own skills) never."""
    real = os.path.realpath(folder)
    if real in seen or not folder.is_dir():
        return
    seen.add(real)
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for path in entries:
        if path.name.startswith(".") or not path.is_dir():
            continue
        if (path / "SKILL.md").is_file():
            yield path
        else:
            yield from _skill_folders(path, seen)


def _skill_name(folder: Path) -> str:
    try:
        with (folder / "SKILL.md").open("rb") as file:
            text = file.read(_HEADER_BYTES).decode("utf-8", "replace")
    except OSError:
        return folder.name
    header = _FRONTMATTER.match(text)
    name = _NAME.search(header[1]) if header else None
    return name[1] if name else folder.name
