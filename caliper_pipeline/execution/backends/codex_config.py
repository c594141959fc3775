"""The `config.toml` of a codex attempt, made from the operator's.

The file mixes how to reach a model with everything else that a person sets up, so it is never copied as it is. An
isolated attempt gets the keys of the connection; one that loads the operator's customizations gets the rest too, but
for what would act outside the attempt. What was measured on 0.171.0 and decides the keys:

- Only `model` names the model, and a run that names none is to use the CLI's own default, whatever the operator pinned.
- A server that is not `required` and takes more than a second to start is silently missing: the agent would work
  without its tools and be graded for it. A server sees `HOME`, `PATH`, the locale and what `env` and `env_vars` name.
- A refused connection is tried again for ever unless `unbounded_connection_retries` is off. What else is tried again
  can be limited for a provider with a table of its own; the built-in one gives up after 25 s, and its table may not be
  written.
- From 0.144 on logins are kept in the system's keyring by default, under a name made from the folder: a new home has
  none, so `file` is where a copied login is looked for.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation, Operator, Server

Config = dict[str, Any]

OPENAI = "openai"
"""The provider that is built in and used when none is named."""
CONNECTION = (
    *("model_provider", "model_providers", "openai_base_url", "chatgpt_base_url"),
    *("forced_login_method", "forced_chatgpt_workspace_id"),
)
_PROXY_FEATURES = ("respect_system_proxy", "system_proxy_fallback")
_STAYS = ("model", "notify", "otel", "projects", "history", "log_dir", "sqlite_home")
"""The pinned model; what a person's desktop is told; what names folders outside the attempt."""
_STARTUP_SECONDS = 60.0
_TRIES = (4, 5)
"""How often the CLI sends a request anew, and how often it begins a stream anew; the one for each of the other."""
_JUDGE_FEATURES_OFF = (
    *("apps", "plugins", "hooks", "shell_tool", "unified_exec", "shell_snapshot", "view_image", "image_generation"),
    *("multi_agent", "goals", "tool_suggest"),
)


def read_config(path: Path) -> Config:
    """The configuration in a file; empty when there is none. Raises `CannotRun`."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CannotRun(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotRun(f"{path} is no valid TOML: {error}", hint="`codex doctor` or an editor shows where.") from error


def written(config: Config) -> bytes:
    return tomli_w.dumps(config).encode("utf-8", "replace")


def provider_of(config: Config) -> str:
    named = config.get("model_provider")
    return named if isinstance(named, str) and named else OPENAI


def takes_login(config: Config) -> bool:
    """The selected provider is reached with the login or key of an OpenAI account, not with a key of its own."""
    provider = provider_of(config)
    return provider == OPENAI or table(table(config, "model_providers"), provider).get("requires_openai_auth") is True


def agent_config(theirs: Config, invocation: Invocation) -> Config:
    """For an attempt. Raises `CannotRun` for a server that the CLI cannot talk to."""
    config = _connection(theirs) if invocation.isolated else _whole(theirs)
    features = {} if invocation.isolated else dict(table(theirs, "features"))
    servers = user_servers(theirs, declared_names(invocation)) if takes_user_servers(invocation) else {}
    servers |= {server.name: _server(server, invocation) for server in invocation.servers}
    return _finished(theirs, config, features, invocation) | ({"mcp_servers": servers} if servers else {})


def judge_config(theirs: Config, invocation: JudgeInvocation) -> Config:
    """For a judge: no tools, no skills, no rules. What cannot be switched off is an editor of files, which its sandbox
    refuses, and a question to a person, which nobody answers."""
    features = dict.fromkeys(_JUDGE_FEATURES_OFF, False)
    return _finished(theirs, _connection(theirs), features, invocation) | {
        "web_search": "disabled",
        "project_doc_max_bytes": 0,
        "include_environment_context": False,
        "include_permissions_instructions": False,
        "skills": {"include_instructions": False, "bundled": {"enabled": False}},
    }


def declared_names(invocation: Invocation) -> tuple[str, ...]:
    return invocation.declared_servers or tuple(server.name for server in invocation.servers)


def takes_user_servers(invocation: Invocation) -> bool:
    """An empty `mcp:` says that there is to be none, not even where the rest of one's own set-up loads."""
    return not invocation.isolated and invocation.declared_servers != ()


def user_servers(theirs: Config, declared: tuple[str, ...]) -> Config:
    """The operator's servers that no declared one stands for. The CLI names tools by the server, with `_` for `-`."""
    taken = {_tool_name(name) for name in declared}
    return {name: server for name, server in table(theirs, "mcp_servers").items() if _tool_name(name) not in taken}


def table(config: Mapping[str, Any], key: str) -> Config:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _tool_name(server: str) -> str:
    return server.replace("-", "_")


def _connection(theirs: Config) -> Config:
    """What it takes to reach the selected provider, and no other."""
    kept = {key: theirs[key] for key in CONNECTION if key in theirs}
    selected = provider_of(theirs)
    providers = {name: given for name, given in table(kept, "model_providers").items() if name == selected}
    kept.pop("model_providers", None)
    return kept | ({"model_providers": providers} if providers else {})


def _whole(theirs: Config) -> Config:
    kept = {key: value for key, value in theirs.items() if key not in _STAYS and key != "mcp_servers"}
    profiles = table(theirs, "profiles")
    if profiles:
        # A profile that is selected would pin its model as well.
        kept["profiles"] = {
            name: {key: value for key, value in profile.items() if key != "model"}
            if isinstance(profile, dict)
            else profile
            for name, profile in profiles.items()
        }
    return kept


def _finished(theirs: Config, config: Config, features: Config, invocation: Invocation | JudgeInvocation) -> Config:
    """With what every start of the CLI needs: no connection but the model's, and an end to trying again."""
    proxies = {name: value for name, value in table(theirs, "features").items() if name in _PROXY_FEATURES}
    limited = _limited(table(config, "model_providers"), invocation.timeout_seconds / 4)
    return {
        **config,
        **({"model_providers": limited} if limited else {}),
        "check_for_update_on_startup": False,
        "cli_auth_credentials_store": "file",
        "mcp_oauth_credentials_store": "file",
        "analytics": {"enabled": False},
        "features": {**proxies, **features, "unbounded_connection_retries": False},
    }


def _limited(providers: Config, seconds: float) -> Config:
    """The providers' tables with as many tries as fit into the time, where the operator set no number."""
    requests, streams = tries(seconds)
    return {
        name: {"request_max_retries": requests, "stream_max_retries": streams, **given}
        if isinstance(given, dict)
        else given
        for name, given in providers.items()
    }


def tries(seconds: float) -> tuple[int, int]:
    """How often the CLI may send a request anew and begin a stream anew when all its waits (0.2 s, doubled each time,
    a tenth more) are to fit."""
    requests, streams = _TRIES
    while requests + streams and (streams + 1) * _waits(requests) + _waits(streams) > seconds:
        requests, streams = (requests - 1, streams) if requests >= streams else (requests, streams - 1)
    return requests, streams


def _waits(number: int) -> float:
    return 0.22 * float(2**number - 1)


def _server(server: Server, invocation: Invocation) -> Config:
    common = {"required": True, "startup_timeout_sec": min(_STARTUP_SECONDS, invocation.timeout_seconds)}
    if server.kind == "stdio":
        seen = sorted(_network_names(invocation.operator))
        return {
            "command": server.command,
            "args": list(server.args),
            **({"env": dict(server.env)} if server.env else {}),
            **({"env_vars": seen} if seen else {}),
            **common,
        }
    if server.kind == "sse":
        raise CannotRun(
            f"mcp: {server.name}: codex cannot talk to a server of type sse.",
            hint="It knows stdio and http (streamable HTTP), which most servers offer beside sse; or choose another "
            "engine with --model.",
        )
    return {"url": server.url, **({"http_headers": dict(server.headers)} if server.headers else {}), **common}


def _network_names(operator: Operator) -> Iterator[str]:
    """Variables that every step may see, by name; the CLI hands on none of them to a server by itself."""
    known = ("PATH", "LANG", "TERM", "TMPDIR", "TZ")
    return (
        name
        for name in operator.allowed
        if name not in known and not name.startswith("LC_") and not name.upper().startswith("CALIPER")
    )
