"""The home of a Claude Code attempt: the operator's login in it, and the operator's customizations when they load.

Isolation comes from the home being new, not from flags: `--setting-sources ""` would also hide the installed skills.
The login is copied with the least that carries it. `.claude.json` in particular holds the operator's projects,
history and MCP servers beside the account, so only named keys cross. On macOS the login may be in the keychain, which
is newer than a file left behind by an older release and so comes last.

Not covered: plugins (a copied `enabledPlugins` without their files would make the CLI fetch them, so it is left out),
and files that a customization names by its absolute path.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator

CONFIG_FOLDER = ".claude"
CREDENTIALS = ".credentials.json"
_ACCOUNT_KEYS = (
    "oauthAccount",
    "primaryApiKey",
    "customApiKeyResponses",
    "hasCompletedOnboarding",
    "userID",
    "machineID",
)
_PLUGIN_KEYS = ("enabledPlugins", "extraKnownMarketplaces")
_KEYCHAIN_SECONDS = 5


def config_folder(operator: Operator) -> Path:
    """Where the operator's own CLI keeps its configuration; need not exist. Raises `CannotRun`."""
    named = operator.environment.get("CLAUDE_CONFIG_DIR")
    if not named:
        return operator.home / CONFIG_FOLDER
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise CannotRun(f"CLAUDE_CONFIG_DIR is {named}, which is no folder.", hint="Point it at a folder, or unset it.")
    return folder


def seed_login(operator: Operator, home: Path, *, user_servers: bool = False) -> None:
    """Copy the login into the home, and the user's MCP servers when they load."""
    source, target = config_folder(operator), home / CONFIG_FOLDER
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    keys = (*_ACCOUNT_KEYS, "mcpServers") if user_servers else _ACCOUNT_KEYS
    account = _account(operator)
    kept = {key: account[key] for key in keys if key in account}
    if kept:
        _write_private(home / ".claude.json", json.dumps(kept, ensure_ascii=False).encode())
    if (source / CREDENTIALS).is_file():
        _write_private(target / CREDENTIALS, (source / CREDENTIALS).read_bytes())
    secret = _keychain_login(operator, source) if sys.platform == "darwin" else None
    if secret is not None:
        _write_private(target / CREDENTIALS, secret)


def has_login_file(home: Path) -> bool:
    return (home / CONFIG_FOLDER / CREDENTIALS).is_file()


def seed_customizations(operator: Operator, home: Path, declared: Collection[str]) -> None:
    """Copy the operator's rules, settings and skills; a declared skill keeps its name, also when ablated."""
    source, target = config_folder(operator), home / CONFIG_FOLDER
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (source / "CLAUDE.md").is_file():
        shutil.copyfile(source / "CLAUDE.md", target / "CLAUDE.md")
    settings = _read_object(source / "settings.json")
    if settings:
        kept = {key: value for key, value in settings.items() if key not in _PLUGIN_KEYS}
        _write_private(target / "settings.json", json.dumps(kept, ensure_ascii=False).encode())
    for name, folder in _user_skills(source, declared).items():
        shutil.copytree(folder, target / "skills" / name, ignore=_not_copied, dirs_exist_ok=True)


def user_layer(operator: Operator, declared: Collection[str] = ()) -> tuple[str, ...]:
    """What loads of the operator's, as sorted kind-prefixed names: `rules:…`, `settings:…`, `skill:…`, `mcp:…`."""
    source = config_folder(operator)
    found = [f"skill:{name}" for name in _user_skills(source, declared)]
    if (source / "CLAUDE.md").is_file():
        found.append("rules:CLAUDE.md")
    if _read_object(source / "settings.json"):
        found.append("settings:settings.json")
    servers = _account(operator).get("mcpServers")
    if isinstance(servers, dict):
        found += [f"mcp:{name}" for name in servers]
    return tuple(sorted(found))


def _account(operator: Operator) -> dict[str, Any]:
    """The operator's `.claude.json`: inside a configuration folder that was named, else beside the usual one."""
    named = operator.environment.get("CLAUDE_CONFIG_DIR")
    return _read_object((config_folder(operator) if named else operator.home) / ".claude.json")


def _user_skills(source: Path, declared: Collection[str]) -> dict[str, Path]:
    """Skill name → folder. The CLI goes by the folder's name and looks one level deep; letter case may not count."""
    root = source / "skills"
    taken = {name.casefold() for name in declared}
    found: dict[str, Path] = {}
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if (folder / "SKILL.md").is_file() and folder.name.casefold() not in taken:
            taken.add(folder.name.casefold())
            found[folder.name] = folder
    return found


def _not_copied(place: str, names: list[str]) -> set[str]:
    """Version control, sockets and pipes, and links that lead back up."""
    here = Path(os.path.realpath(place))
    left = {".git"}
    for name in names:
        path = Path(place, name)
        back = path.is_symlink() and here.is_relative_to(os.path.realpath(path))
        if back or not (path.is_file() or path.is_dir()):
            left.add(name)
    return left


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Empty: there is none that can be read."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def _keychain_login(operator: Operator, source: Path) -> bytes | None:
    """The login that macOS keeps for the CLI. `None`: none, or it may not be read."""
    service = "Claude Code-credentials"
    if operator.environment.get("CLAUDE_CONFIG_DIR"):
        name = unicodedata.normalize("NFC", str(source))
        service += "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    try:
        done = subprocess.run(
            ["/usr/bin/security", "find-generic-password", "-w", "-s", service],
            env={"HOME": str(operator.home), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_KEYCHAIN_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    secret = done.stdout.strip()
    return secret if done.returncode == 0 and secret.startswith(b"{") else None
