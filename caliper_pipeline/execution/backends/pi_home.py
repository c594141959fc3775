"""The home of a pi attempt: the operator's login, models and default model in it, and servers as declared.

The home is new and named to the CLI, so nothing of the operator's is found that is not put there. The files that carry
a login cross whole, since the CLI reads nothing of a person's out of them: `auth.json`, `models.json` (with its
credentials resolved, see `pi_values`) and the catalogue of models that the CLI fetched last, which it may not fetch
anew in an attempt. `settings.json` crosses in part (see `pi_settings`).

A login by account is renewed before it is copied (see `pi_login`); not covered: versions that have no command for it.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends import pi_login, pi_settings, pi_values
from caliper_pipeline.execution.backends.base import Operator, Server
from caliper_pipeline.execution.backends.home_files import named_folder, write_private
from caliper_pipeline.execution.backends.json_lines import mapping
from caliper_pipeline.execution.backends.pi_cli import Cli

FOLDER_VARIABLE = "PI_CODING_AGENT_DIR"
_MUST_BE_READABLE = ("auth.json", "models.json", "settings.json")


def agent_folder(home: Path) -> Path:
    """Where the CLI of an attempt with that home keeps everything."""
    return home / ".pi" / "agent"


def operator_folder(operator: Operator) -> Path:
    """Where the operator's own CLI keeps everything; need not exist. Raises `CannotRun`."""
    return named_folder(operator, FOLDER_VARIABLE) or agent_folder(operator.home)


def check_files(operator: Operator) -> None:
    """Raises `CannotRun` for a file that the CLI could not read. It would not say so: it takes a broken file for an
    absent one, and then has no login, or runs another model than the one that was chosen."""
    for name in _MUST_BE_READABLE:
        path = operator_folder(operator) / name
        if not path.is_file():
            continue
        try:
            value = pi_values.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise CannotRun(f"{path} cannot be read: {error}", hint="Mend it, or move it away.") from error
        if not isinstance(value, dict):
            raise CannotRun(f"{path}: must hold a JSON object.", hint="Mend it, or move it away.")


def seed_login(operator: Operator, cli: Cli, home: Path, timeout_seconds: float) -> None:
    """Copy what it takes to reach the models, for as long as the attempt may last."""
    source, target = operator_folder(operator), agent_folder(home)
    pi_login.renew(operator, cli, source / "auth.json", timeout_seconds)
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    resolved = pi_values.resolver(operator, cli)
    credentials = mapping(pi_values.read_file(source / "auth.json"))
    if (auth := _bytes(source / "auth.json")) is not None:
        write_private(target / "auth.json", _sound(auth, lambda data: pi_values.auth_file(data, resolved)))
    if (models := _bytes(source / "models.json")) is not None:
        write_private(
            target / "models.json", _sound(models, lambda data: pi_values.models_file(data, resolved, credentials))
        )
    if (store := _bytes(source / "models-store.json")) is not None:
        write_private(target / "models-store.json", store)


def seed_settings(home: Path, settings: dict[str, Any], timeout_seconds: float) -> None:
    kept = pi_settings.for_attempt(settings, timeout_seconds)
    write_private(agent_folder(home) / "settings.json", json.dumps(kept, ensure_ascii=False, indent=2).encode())


def read_settings(operator: Operator) -> dict[str, Any]:
    """The operator's. Empty: there are none that can be read."""
    return dict(mapping(pi_values.read_file(operator_folder(operator) / "settings.json")))


def seed_servers(home: Path, servers: Iterable[Server], theirs: dict[str, Any]) -> None:
    """The declared servers, and after them those of the operator's that have another name. Raises `CannotRun`."""
    declared: dict[str, Any] = {}
    for server in servers:
        clash = next((name for name in declared if plain(name) == plain(server.name)), None)
        if clash is not None:
            raise CannotRun(
                f"mcp: {server.name}: pi takes this for the same name as {clash}: it tells - and _ not apart.",
                hint="Rename one of the two.",
            )
        declared[server.name] = _entry(server)
    if declared or theirs:
        data = json.dumps({"mcpServers": {**theirs, **declared}}, ensure_ascii=False, indent=2)
        write_private(agent_folder(home) / "mcp.json", data.encode("utf-8", "replace"))


def plain(server: str) -> str:
    """A server's name as it stands in the names of its tools."""
    return re.sub(r"[^A-Za-z0-9_]", "_", server)


def _entry(server: Server) -> dict[str, Any]:
    """`direct`: its tools are offered in the first request, as with other agents; by default a model of pi's would
    have to write a script to call one."""
    if server.kind == "sse":
        raise CannotRun(
            f"mcp: {server.name}: pi does not speak the older SSE transport.",
            hint="Servers that offer it mostly offer streamable HTTP too, often at /mcp: declare it with `type: http`, "
            "or choose another engine with --model.",
        )
    if server.kind == "http":
        headers = {name: pi_values.escaped(value) for name, value in server.headers.items()}
        return {"type": "http", "url": server.url, "headers": headers, "exposure": "direct"}
    env = {name: pi_values.escaped(value) for name, value in server.env.items()}
    return {"command": server.command, "args": list(server.args), "env": env, "exposure": "direct"}


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _sound(data: bytes, change: Any) -> bytes:
    """The changed file; as it is when it cannot be read, which the CLI then says in its own way."""
    try:
        return bytes(change(data))
    except ValueError:
        return data
