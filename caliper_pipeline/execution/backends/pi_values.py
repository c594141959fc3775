"""Credentials in pi's files that are not written out: the name of a variable, or a command that prints the secret.

Both work only on the machine and in the environment of the person who wrote them, and an attempt has neither. So they
are resolved before it, and the files of its home hold the values, escaped where they would be read as something else.
What cannot be resolved stays as it is written: the CLI then says what is missing.

From 0.77 `$NAME` and `${NAME}` stand for variables, `$$` and `$!` for the signs themselves; before, a value that *is*
the name of a variable stands for it, and nothing can be escaped. `!command` stands for what the command prints.
"""

import functools
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.pi_cli import BARE_UNTIL, DOLLAR_SINCE, Cli
from caliper_pipeline.execution.backends.short_command import ask

COMMAND_SECONDS = 10.0
_KEPT_SECONDS = 300.0
"""A command is asked again after that long: it may print a token that expires."""
_REFERENCE = re.compile(r"\$(?:([$!])|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*')
_TRAILING_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')
_one_at_a_time = threading.Lock()

Value = Callable[[str, Mapping[str, str]], str]
"""A value as written, and variables of its own that go before the operator's → what the attempt's file holds."""


def resolver(operator: Operator, cli: Cli) -> Value:
    def resolved(written: str, own: Mapping[str, str]) -> str:
        known = {**operator.environment, **{name: value for name, value in own.items() if value}}
        if written.startswith("!"):
            output = _command_output(written[1:], operator)
            return written if output is None else _escaped(output, cli)
        value = _filled(written, known, cli)
        return written if value is None or value == written else _escaped(value, cli)

    return resolved


def escaped(literal: str) -> str:
    """A text that a CLI of today takes literally."""
    text = literal.replace("$", "$$")
    return f"${text}" if text.startswith("!") else text


def _escaped(value: str, cli: Cli) -> str:
    return escaped(value) if cli.since(DOLLAR_SINCE) else value


def _filled(written: str, known: Mapping[str, str], cli: Cli) -> str | None:
    """`None`: a variable is not set."""
    if (not cli.since(DOLLAR_SINCE) or not cli.since(BARE_UNTIL)) and known.get(written):
        return known[written]
    if not cli.since(DOLLAR_SINCE):
        return written
    named = [found[2] or found[3] for found in _REFERENCE.finditer(written) if not found[1]]
    if not named:
        return written
    if not all(known.get(name) for name in named):
        return None
    return _REFERENCE.sub(lambda found: found[1] or known[found[2] or found[3]], written)


def models_file(data: bytes, resolved: Value, credentials: Mapping[str, Any]) -> bytes:
    """`models.json` with its keys and headers resolved; as it is where there is nothing to resolve."""
    config = loads(data)
    providers = config.get("providers") if isinstance(config, dict) else None
    changed = False
    for name, provider in providers.items() if isinstance(providers, dict) else ():
        if not isinstance(provider, dict):
            continue
        own = _variables(credentials.get(name))
        if isinstance(provider.get("apiKey"), str):
            changed |= _put(provider, "apiKey", resolved, own)
        models = provider.get("models")
        overrides = provider.get("modelOverrides")
        holders = [
            provider,
            *(models if isinstance(models, list) else ()),
            *(overrides.values() if isinstance(overrides, dict) else ()),
        ]
        for holder in holders:
            headers = holder.get("headers") if isinstance(holder, dict) else None
            if isinstance(headers, dict):
                for header in [key for key, value in headers.items() if isinstance(value, str)]:
                    changed |= _put(headers, header, resolved, own)
    return _dumps(config) if changed else data


def auth_file(data: bytes, resolved: Value) -> bytes:
    """`auth.json` with the keys in it resolved; logins stay as they are."""
    credentials = loads(data)
    changed = False
    for credential in credentials.values() if isinstance(credentials, dict) else ():
        if isinstance(credential, dict) and isinstance(credential.get("key"), str):
            changed |= _put(credential, "key", resolved, _variables(credential))
    return _dumps(credentials) if changed else data


def servers_file(servers: Mapping[str, Any], resolved: Value) -> dict[str, Any]:
    """Entries of `mcp.json` with their variables and headers resolved."""
    found = {}
    for name, entry in servers.items():
        if isinstance(entry, dict):
            entry = dict(entry)
            for table in ("env", "headers"):
                values = entry.get(table)
                if isinstance(values, dict):
                    entry[table] = {
                        key: resolved(value, {}) if isinstance(value, str) else value for key, value in values.items()
                    }
        found[name] = entry
    return found


def loads(data: bytes) -> Any:
    """What a JSON file holds; comments and commas at the end are allowed, as the CLI allows them in `models.json`.

    Raises `ValueError`.
    """
    text = data.decode("utf-8-sig")
    text = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
    text = _TRAILING_COMMA.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_file(path: Path) -> Any:
    """The same of a file. `None`: there is none, or it cannot be read."""
    try:
        return loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace")


def _put(holder: dict[str, Any], key: str, resolved: Value, own: Mapping[str, str]) -> bool:
    before = holder[key]
    holder[key] = resolved(before, own)
    return bool(holder[key] != before)


def _variables(credential: Any) -> dict[str, str]:
    """The variables that belong to a provider's stored credential."""
    given = credential.get("env") if isinstance(credential, dict) else None
    return {name: value for name, value in given.items() if isinstance(value, str)} if isinstance(given, dict) else {}


def _command_output(command: str, operator: Operator) -> str | None:
    """What the command prints, run once for all attempts that ask at the same time: some ask a person for consent."""
    with _one_at_a_time:
        period = int(time.monotonic() // _KEPT_SECONDS)
        return _run(command, str(operator.home), tuple(sorted(operator.environment.items())), period)


@functools.lru_cache(maxsize=64)
def _run(command: str, home: str, environment: tuple[tuple[str, str], ...], period: int) -> str | None:
    folder = Path(home) if os.path.isdir(home) else None  # noqa: PTH112
    said = ask(["/bin/sh", "-c", command], dict(environment), COMMAND_SECONDS, cwd=folder)
    return (said.out.strip() or None) if said.exit_code == 0 else None
