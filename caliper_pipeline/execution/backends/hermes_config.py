"""The `config.yaml` of a hermes attempt, made from the operator's.

The file mixes what an attempt needs (which model, at which provider, with which key) with what it is to be kept from,
so it is written anew. Isolated, only what is needed to reach the model crosses, and the settings of the terminal. In
any case some things are set, because an attempt is a measurement (all measured on 0.19.0):

- `compression.in_place` off: otherwise a compaction rewrites the session, and its first turns are missing from the
  export. With it off the session goes on in a second one, and both are exported.
- No cache of answers at the provider: attempts are to be independent of each other.
- No side calls to models (titles, reviews of memory and skills, servers that ask for samples), no catalogues, no
  installs, no memory service that would outlive the attempt.
- The terminal starts in the workdir with the attempt's own `PATH`: its login shell would set another one.

`mcp_servers` hold the declared servers, and the operator's own where they load.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Server
from caliper_pipeline.execution.backends.hermes_servers import server_entry, user_servers
from caliper_pipeline.execution.backends.home_files import write_private

CONFIG = "config.yaml"
_NEEDED = (
    "model",
    "provider",
    "providers",
    "custom_providers",
    "model_aliases",
    "credential_pool_strategies",
    "provider_routing",
    "openrouter",
    "bedrock",
    "vertex",
    "secrets",
    "network",
    "terminal",
)
_PERSONAL_TERMINAL = ("home_mode", "shell_init_files", "auto_source_bashrc")
_NOT_COPIED = ("honcho", "mcp_servers")
_SET: dict[str, Any] = {
    "auxiliary": {"title_generation": {"enabled": False}},
    "checkpoints": {"enabled": False},
    "compression": {"in_place": False},
    "curator": {"enabled": False},
    "lsp": {"install_strategy": "off"},
    "memory": {"nudge_interval": 0, "provider": ""},
    "model_catalog": {"enabled": False},
    "openrouter": {"response_cache": False},
    "security": {"allow_lazy_installs": False, "tirith_enabled": False},
    "skills": {"creation_nudge_interval": 0, "external_dirs": []},
    "terminal": {"cwd": "."},
}
_JUDGE: dict[str, Any] = {
    "agent": {
        "coding_context": "off",
        "environment_probe": False,
        "parallel_tool_call_guidance": False,
        "task_completion_guidance": False,
    },
    # A judge that read a summary of the transcript would judge the summary.
    "compression": {"enabled": False},
    # Notes of the command itself would stand in the answer.
    "display": {"file_mutation_verifier": False, "turn_completion_explainer": False},
    "memory": {"memory_enabled": False, "user_profile_enabled": False},
    "platform_toolsets": {"cli": []},
}


def read_config(path: Path) -> dict[str, Any]:
    """The settings in the file; none where there is no file. Raises `CannotRun`: hermes itself would go on with its
    defaults, at another provider."""
    import yaml

    try:
        value = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        told = " ".join(str(error).split())[:300]
        raise CannotRun(f"{path} cannot be read: {told}", hint="Mend it, or run `hermes doctor`.") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CannotRun(f"{path} holds no settings: a mapping is expected, it is a {type(value).__name__}.")
    return value


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Written so that only its owner can read it: there are keys in it."""
    import yaml

    data = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=10_000)
    write_private(path, data.encode("utf-8"))


def attempt_config(
    theirs: Mapping[str, Any],
    *,
    isolated: bool,
    own_servers: bool = True,
    servers: Iterable[Server] = (),
    declared: Collection[str] = (),
    shell_init: Path | None = None,
) -> dict[str, Any]:
    """The settings of an attempt. `declared` are all servers that the spec names, ablated ones too; `shell_init` is a
    file that the agent's shell reads at its start; without `own_servers` the operator's stay out in any case."""
    config = _needed(theirs) if isolated else {key: theirs[key] for key in theirs if key not in _NOT_COPIED}
    config = _laid_over(config, _SET)
    if shell_init is not None:
        before = config["terminal"].get("shell_init_files")
        config["terminal"]["shell_init_files"] = [*(before if isinstance(before, list) else ()), str(shell_init)]
    own = user_servers(theirs, declared) if own_servers and not isolated else {}
    given = {server.name: server_entry(server) for server in servers}
    config.pop("mcp_servers", None)
    if own or given:
        config["mcp_servers"] = {**own, **given}
    if given:
        config["platform_toolsets"] = _with_tools_of(given, config.get("platform_toolsets"))
    return config


def judge_config(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a judge: the model, and no tool."""
    return _laid_over(_laid_over(_needed(theirs), _SET), _JUDGE)


def model_flags(model: str | None, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that ask for a model, at the configured provider. With the model alone hermes would ask three
    catalogues on the internet who has it; an alias of the operator's names its own provider."""
    if model is None:
        return ()
    aliases = config.get("model_aliases")
    if isinstance(aliases, dict) and model.lower() in {str(name).lower() for name in aliases}:
        return ("--model", model)
    named = config.get("model")
    provider = named.get("provider") if isinstance(named, dict) else None
    provider = provider or config.get("provider")
    if not isinstance(provider, str) or provider.strip().lower() in ("", "auto"):
        return ("--model", model)
    return ("--model", model, "--provider", provider.strip())


def shell_init_text(path: str) -> str:
    """What gives the agent's shell the `PATH` of the attempt."""
    return f"export PATH={shlex.quote(path)}\n"


def external_skill_folders(theirs: Mapping[str, Any], home: Path) -> Sequence[Path]:
    """The folders that the operator lets hermes look for skills in besides its own."""
    skills = theirs.get("skills")
    listed = skills.get("external_dirs") if isinstance(skills, dict) else None
    if isinstance(listed, str):
        listed = [listed]
    names = [name for name in listed if isinstance(name, str) and name] if isinstance(listed, list) else []
    return [Path(str(home) + name[1:] if name == "~" or name.startswith("~/") else name) for name in names]


def _with_tools_of(servers: Iterable[str], toolsets: Any) -> dict[str, Any]:
    """The operator's choice of tools, and those of the servers. By their plain names a server called `web` or `memory`
    would bring hermes' own tools of that name instead of its own."""
    chosen = dict(toolsets) if isinstance(toolsets, dict) else {}
    before = chosen.get("cli")
    own = before if isinstance(before, list) else ["hermes-cli"]
    return {**chosen, "cli": [*own, *(f"mcp-{name}" for name in servers)]}


def _needed(theirs: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: theirs[key] for key in _NEEDED if key in theirs}
    if isinstance(kept.get("terminal"), dict):
        kept["terminal"] = {key: value for key, value in kept["terminal"].items() if key not in _PERSONAL_TERMINAL}
    return kept


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, dict):
            result[key] = _laid_over(under if isinstance(under, dict) else {}, value)
        else:
            result[key] = value
    return result
