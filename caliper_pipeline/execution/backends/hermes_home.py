"""The home of a hermes attempt: the operator's login and provider in it, and the operator's customizations when they
load.

Isolation comes from the home being new, not from flags: `--ignore-rules` and `--ignore-user-config` have no effect on a
single-shot call (0.19.0), and would hide the task's own `AGENTS.md` and the installed skills where they have. What is
not in the home cannot reach the agent: no `SOUL.md` (hermes writes its default one), no memories, no sessions.

`.env` holds keys of model providers beside those of messengers, and settings that outweigh the environment. A variable
that names a folder of the operator, steers hermes or logs in to something that is no model provider stays behind.

Not covered: plugins, and logins that hermes borrows from other commands' homes (`~/.claude`, `~/.codex`).
"""

import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from caliper_pipeline.execution.backends import hermes_config, hermes_servers, hermes_skills
from caliper_pipeline.execution.backends.base import Invocation, Operator
from caliper_pipeline.execution.backends.home_files import named_folder, write_private

FOLDER = ".hermes"
_LOGINS = ("auth.json", ".anthropic_oauth.json", ".op.env")
_PERSONA = ("SOUL.md", "memories/MEMORY.md", "memories/USER.md")
_SHELL_INIT = "shell.sh"

_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_NEVER = re.compile(
    r"HOME|PATH|PWD|TMPDIR|SHELL|SUDO_PASSWORD|TERMINAL_(?:CWD|HOME_MODE)|MESSAGING_\w+|GATEWAY_\w+|CALIPER\w*"
    r"|(?:TELEGRAM|DISCORD|SLACK|WHATSAPP|SIGNAL|MATRIX|MATTERMOST|EMAIL|SMS|TWILIO|TEAMS|FEISHU|DINGTALK|WECOM|WEIXIN"
    r"|QQ|YUANBAO|BLUEBUBBLES|HASS|HONCHO|MEM0|GITHUB|SPOTIFY)_\w+"
)
_STEERS = re.compile(r"HERMES_\w+")
_STEERS_TO_A_MODEL = re.compile(
    r"HERMES_(?:INFERENCE_(?:MODEL|PROVIDER)|CA_BUNDLE|\w+_(?:BASE_URL|API_KEY|CLIENT_ID|CLIENT_SECRET|PROJECT_ID))"
)


def config_folder(operator: Operator) -> Path:
    """Where the operator's own hermes keeps its state; need not exist. Raises `CannotRun`."""
    return named_folder(operator, "HERMES_HOME") or _profile(operator.home / FOLDER)


def hermes_home(home: Path) -> Path:
    return home / FOLDER


def log_file(home: Path) -> Path:
    """Where hermes notes which servers it reached."""
    return hermes_home(home) / "logs" / "agent.log"


def usage_file(home: Path) -> Path:
    """Where a call reports whether it failed, and what it used."""
    return home / ".cache" / "usage.json"


def seed(invocation: Invocation, path: str) -> None:
    """Everything that an attempt needs, and what loads of the operator's. `path`: the `PATH` of the attempt."""
    operator, declared = invocation.operator, (*invocation.skills, *invocation.ablated)
    source, target = _seed_login(operator, invocation.home)
    theirs = hermes_config.read_config(source / hermes_config.CONFIG)
    shell_init = target / _SHELL_INIT
    shell_init.write_text(hermes_config.shell_init_text(path), encoding="utf-8")
    config = hermes_config.attempt_config(
        theirs,
        isolated=invocation.isolated,
        own_servers=invocation.declared_servers != (),
        servers=invocation.servers,
        declared=(*(invocation.declared_servers or ()), *(server.name for server in invocation.servers)),
        shell_init=shell_init,
    )
    hermes_config.write_config(target / hermes_config.CONFIG, config)
    if invocation.isolated:
        return
    for name in _persona(source):
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, target / name)
    skills = hermes_skills.user_skills(_skill_roots(operator, source), declared)
    hermes_skills.copy_skills(skills, target / "skills", declared)
    manifest = source / "skills" / hermes_skills.MANIFEST
    if any(skill.bundled for skill in skills):
        shutil.copyfile(manifest, target / "skills" / hermes_skills.MANIFEST)


def seed_judge(operator: Operator, home: Path, role: str) -> None:
    """The login, the model and, as its identity, the role."""
    source, target = _seed_login(operator, home)
    theirs = hermes_config.read_config(source / hermes_config.CONFIG)
    hermes_config.write_config(target / hermes_config.CONFIG, hermes_config.judge_config(theirs))
    if role:
        (target / "SOUL.md").write_text(role, encoding="utf-8", errors="replace")


def forget_sessions(home: Path) -> None:
    """Remove what an earlier call in this home left of its session, so that it is not told twice."""
    for path in (*hermes_home(home).glob("state.db*"), log_file(home), usage_file(home)):
        path.unlink(missing_ok=True)
    usage_file(home).parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def user_layer(operator: Operator, declared: Collection[str] = (), servers: Collection[str] = ()) -> tuple[str, ...]:
    """What loads of the operator's, as sorted kind-prefixed names: `mcp:…`, `rules:…`, `settings:…`, `skill:…`."""
    source = config_folder(operator)
    theirs = hermes_config.read_config(source / hermes_config.CONFIG)
    skills = hermes_skills.user_skills(_skill_roots(operator, source), declared)
    found = [f"skill:{skill.name}" for skill in skills if not skill.bundled]
    found += [f"rules:{name}" for name in _persona(source)]
    found += [f"mcp:{name}" for name in hermes_servers.user_servers(theirs, servers)]
    if theirs:
        found.append(f"settings:{hermes_config.CONFIG}")
    return tuple(sorted(found))


def _profile(folder: Path) -> Path:
    """The folder of the profile that the operator made the usual one, else the folder itself."""
    try:
        name = (folder / "active_profile").read_text("utf-8").strip()
    except (OSError, ValueError):
        return folder
    profile = folder / "profiles" / name
    return (
        profile
        if re.fullmatch(r"[\w.-]+", name) and name not in ("default", ".", "..") and profile.is_dir()
        else folder
    )


def _seed_login(operator: Operator, home: Path) -> tuple[Path, Path]:
    """The folders that the login was copied from and to."""
    source, target = config_folder(operator), hermes_home(home)
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _LOGINS:
        if (source / name).is_file():
            write_private(target / name, (source / name).read_bytes())
    if (source / ".env").is_file():
        kept = "".join(_kept_lines(_text((source / ".env").read_bytes())))
        write_private(target / ".env", kept.encode("utf-8", "replace"))
    return source, target


def _kept_lines(text: str) -> Iterator[str]:
    """The assignments of an environment file that an attempt may see; a quoted value may go over several lines."""
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        found = _ASSIGNMENT.fullmatch(line)
        if found is None:
            continue
        name, value = found[1], found[2]
        quote = value[:1]
        if quote in ("'", '"') and not _closed(value, quote):
            for more in lines:
                line += more
                if _closed(quote + more, quote):
                    break
        if _NEVER.fullmatch(name) or (_STEERS.fullmatch(name) and not _STEERS_TO_A_MODEL.fullmatch(name)):
            continue
        yield line if line.endswith("\n") else line + "\n"


def _closed(value: str, quote: str) -> bool:
    """Whether a value that begins with the quote also ends with one on this line."""
    return re.search(rf"(?<!\\){quote}", value[1:]) is not None


def _text(data: bytes) -> str:
    """The file's text; hermes itself also reads what Windows calls Unicode."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") and data[:4] != b"\xff\xfe\0\0":
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace").replace("\0", "")


def _persona(source: Path) -> list[str]:
    return [name for name in _PERSONA if (source / name).is_file()]


def _skill_roots(operator: Operator, source: Path) -> list[Path]:
    theirs = hermes_config.read_config(source / hermes_config.CONFIG)
    return [source / "skills", *hermes_config.external_skill_folders(theirs, operator.home)]
