"""The home of a Claude Code attempt, and the operator's login in it. What else loads of the operator's is in
`claude_user.py`.

Isolation comes from the home being new, not from flags: `--setting-sources ""` would also hide the installed skills.
The login is copied with the least that carries it. `.claude.json` in particular holds the operator's projects,
history and MCP servers beside the account, so only named keys cross. On macOS the login may be in the keychain, which
is newer than a file left behind by an older release and so comes last.

A login may be in the operator's settings as well: a command that gives a key, credentials refreshed for a cloud, the
variables that choose one. Those keys alone go into a settings file of their own, which `--settings` names, so that they
hold for isolated attempts and for judges too. Their commands run in a shell that has the operator's `HOME`, where they
and what they ask are at home; the other variables are the attempt's.

MCP servers stand in a file that only its owner can read, since they hold secrets; it goes with the home.
"""

import hashlib
import json
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.project import AGENT, EVERYWHERE
from caliper_pipeline.execution.backends.base import Operator, Server
from caliper_pipeline.execution.backends.home_files import named_folder, write_private

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
_LOGIN_COMMANDS = ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh")
_LOGIN_SETTINGS = ("forceLoginMethod", "forceLoginOrgUUID")
_SERVERS_FILE = "servers.json"
_LOGIN_FILE = "login.json"
_KEYCHAIN_SECONDS = 5


def config_folder(operator: Operator) -> Path:
    """Where the operator's own CLI keeps its configuration; need not exist. Raises `CannotRun`."""
    return named_folder(operator, "CLAUDE_CONFIG_DIR") or operator.home / CONFIG_FOLDER


def seed_login(operator: Operator, home: Path, *, servers: Mapping[str, Any] | None = None) -> None:
    """Copy the login into the home; `servers`: the operator's own MCP servers that are to load."""
    source, target = config_folder(operator), home / CONFIG_FOLDER
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    account = user_account(operator)
    kept = {key: account[key] for key in _ACCOUNT_KEYS if key in account}
    if servers:
        kept["mcpServers"] = dict(servers)
    if kept:
        write_private(home / ".claude.json", json_bytes(kept))
    if (source / CREDENTIALS).is_file():
        write_private(target / CREDENTIALS, (source / CREDENTIALS).read_bytes())
    secret = _keychain_login(operator, source) if sys.platform == "darwin" else None
    if secret is not None:
        write_private(target / CREDENTIALS, secret)
    settings = login_settings(operator)
    if settings:
        write_private(target / _LOGIN_FILE, json_bytes(settings))


def has_login_file(home: Path) -> bool:
    return (home / CONFIG_FOLDER / CREDENTIALS).is_file()


def login_file(home: Path) -> Path | None:
    """The settings that carry a login, where there are such."""
    path = home / CONFIG_FOLDER / _LOGIN_FILE
    return path if path.is_file() else None


def login_settings(operator: Operator) -> dict[str, Any]:
    """What of the operator's settings is needed to reach a model."""
    settings = read_object(config_folder(operator) / "settings.json")
    kept = {key: settings[key] for key in _LOGIN_SETTINGS if key in settings}
    for key in _LOGIN_COMMANDS:
        if isinstance(settings.get(key), str) and settings[key].strip():
            kept[key] = f"export HOME={shlex.quote(str(operator.home))}; {settings[key]}"
    given = settings.get("env")
    variables = {
        name: value
        for name, value in (given.items() if isinstance(given, dict) else ())
        if isinstance(value, str) and any(fnmatchcase(name, pattern) for pattern in (*EVERYWHERE, *AGENT))
    }
    return {**kept, "env": variables} if variables else kept


def servers_file(home: Path) -> Path:
    return home / CONFIG_FOLDER / _SERVERS_FILE


def seed_servers(home: Path, servers: Iterable[Server]) -> None:
    """Write the declared servers in the CLI's form; an empty list too, since it is what a strict CLI then has."""
    written: dict[str, Any] = {}
    for server in servers:
        if server.kind == "stdio":
            facts = {"command": server.command, "args": list(server.args), "env": dict(server.env)}
        else:
            facts = {"url": server.url, "headers": dict(server.headers)}
        written[server.name] = {"type": server.kind, **facts}
    write_private(servers_file(home), json_bytes({"mcpServers": written}))


def user_account(operator: Operator) -> dict[str, Any]:
    """The operator's `.claude.json`: inside a configuration folder that was named, else beside the usual one."""
    named = operator.environment.get("CLAUDE_CONFIG_DIR")
    return read_object((config_folder(operator) if named else operator.home) / ".claude.json")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Empty: there is none that can be read."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


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
