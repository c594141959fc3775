"""The Claude Code CLI as an agent and as a judge.

What was measured on 2.1.197 and decides the flags:

- One argument may hold 128 KiB on Linux, standard input 10 MB: a longer prompt, and every judge's, goes there. Either
  way a prompt that begins with a dash stays a prompt.
- As root the CLI refuses to skip permissions unless `IS_SANDBOX` is exactly `1`.
- `--strict-mcp-config` alone keeps out account connectors and every configured server.
- Servers are connected to while the agent already works: one that takes 3 s is `pending` in the first event and its
  tools are not there yet. `MCP_CONNECTION_NONBLOCKING=0` makes the CLI wait for them, as long as
  `MCP_CONNECT_TIMEOUT_MS` says (5 s by itself). One that fails does not stop the run: the agent would be measured
  without its tools, so such an attempt counts as lost.
- `--tools ""` leaves a judge without any tool; without `--setting-sources ""` and `--disable-slash-commands` it would
  still be told of settings and skills. Its role replaces the system prompt of a coding agent, 1,500 tokens a call.
- By itself the CLI tries a refused call ten times more, a rejected key included: 177 s, longer than most time limits,
  so that a bad login would show as a timeout. It gets as many tries as fit into a quarter of its limit.
- The exit code 0 proves nothing: an interrupt also exits 0.
"""

import functools
import os
import shutil
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun, MissingCli
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends import claude_home, claude_refusals, claude_user
from caliper_pipeline.execution.backends.base import (
    BackendInfo,
    Capabilities,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.backends.claude_session import plant_session
from caliper_pipeline.execution.backends.claude_stream import NO_SERVER, read_envelope, read_stream, tokens_so_far
from caliper_pipeline.execution.backends.json_lines import plain_lines
from caliper_pipeline.execution.backends.refusals import Complaint
from caliper_pipeline.execution.backends.short_command import ask
from caliper_pipeline.execution.command import Command, ProcessResult
from caliper_pipeline.execution.environment import agent_environment

NAME = claude_refusals.NAME
BINARY = claude_refusals.BINARY
VERSION_SECONDS = 10.0
_CLI_TRIES = 10
ARGUMENT_BYTES = 100_000
"""Linux takes at most 128 KiB in one argument."""

_AGENT_FLAGS = ("-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
_JUDGE_FLAGS = (
    "-p",
    "--output-format",
    "json",
    "--strict-mcp-config",
    "--tools",
    "",
    "--setting-sources",
    "",
    "--disable-slash-commands",
)

_PATIENT = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}
_CLOUD_FILES = (
    ("CLAUDE_CODE_USE_BEDROCK", "AWS_CONFIG_FILE", ".aws/config"),
    ("CLAUDE_CODE_USE_BEDROCK", "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    (
        "CLAUDE_CODE_USE_VERTEX",
        "GOOGLE_APPLICATION_CREDENTIALS",
        ".config/gcloud/application_default_credentials.json",
    ),
)
"""Where the variable chooses a cloud: its login, which lies below the operator's home and not the attempt's."""


class ClaudeCode:
    name = NAME
    capabilities = Capabilities(mcp=True, history=True, user_customizations=True, token_counter=tokens_so_far)

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        """Find the command and ask its version, once. Raises `MissingCli`, or `CannotRun` for a bad configuration."""
        claude_home.config_folder(operator)
        path = os.pathsep.join([*extra_path, operator.environment.get("PATH", os.defpath)])
        binary = shutil.which(BINARY, path=path)
        if binary is None:
            raise MissingCli(
                f"{BINARY} command not found. Searched: {path}",
                hint="Install it (npm install -g @anthropic-ai/claude-code), or name its folder in the spec's "
                "sandbox.extra_path.",
            )
        env = {**operator.allowed, "HOME": str(operator.home), "PATH": path}
        return BackendInfo(binary, _version(binary, Path(binary).stat().st_mtime_ns, tuple(sorted(env.items()))))

    def skills_root(self, home: Path) -> Path:
        return home / claude_home.CONFIG_FOLDER / "skills"

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        return claude_user.user_layer(operator, declared, servers or None)

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        return (BINARY, "auth", "login")

    def prepare(self, invocation: Invocation) -> None:
        operator, home = invocation.operator, invocation.home
        servers = {} if invocation.isolated else claude_user.user_servers(operator, invocation.declared_servers)
        claude_home.seed_login(operator, home, servers=servers)
        claude_home.seed_servers(home, invocation.servers)
        if not invocation.isolated:
            claude_user.seed_customizations(operator, home, (*invocation.skills, *invocation.ablated))

    def plant(self, invocation: Invocation) -> str:
        root = self.skills_root(invocation.home)
        return plant_session(
            invocation.history,
            config=invocation.home / claude_home.CONFIG_FOLDER,
            workdir=invocation.workdir,
            skills={name: root / name for name in invocation.skills},
        )

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        return None

    def command(self, invocation: Invocation) -> Command:
        strict = ("--strict-mcp-config",) if invocation.isolated or invocation.declared_servers == () else ()
        resumed = ("--resume", invocation.session) if invocation.session else ()
        prompt = _encoded(invocation.prompt)
        # Behind `--` nothing in it is an option. A prompt that no argument can carry goes to standard input.
        fits = len(prompt) <= ARGUMENT_BYTES and b"\0" not in prompt
        return Command(
            argv=(
                BINARY,
                *_AGENT_FLAGS,
                "--mcp-config",
                str(claude_home.servers_file(invocation.home)),
                *strict,
                *_login_flags(invocation.home),
                *_model_flags(invocation.engine),
                *resumed,
                *(("--", prompt.decode("utf-8")) if fits else ()),
            ),
            env=_environment(invocation, invocation.extra_path) | (_PATIENT if invocation.servers else {}),
            cwd=invocation.workdir,
            timeout_seconds=invocation.timeout_seconds,
            stdin=None if fits else prompt,
            group=invocation.group,
        )

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        granted = () if invocation is None else tuple(server.name for server in invocation.servers)
        return read_stream(result.stdout, servers=granted)

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        if result.timed_out or result.cancelled or result.exit_code is None or reply.error_code == NO_SERVER:
            return None
        texts = [reply.cli_error]
        # A call that was served and answered was not refused, whatever is complained of on the way out.
        if not reply.spoke or (result.exit_code != 0 and not reply.finished):
            texts.append(_text(result.stderr))
        if not reply.spoke and reply.cli_error is None:
            texts += plain_lines(result.stdout)
        return claude_refusals.find(
            Complaint.of(texts, exit_code=result.exit_code, status=reply.error_status, code=reply.error_code)
        )

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        claude_home.seed_login(invocation.operator, invocation.home)

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        role = ("--system-prompt", invocation.system) if invocation.system else ()
        return Command(
            argv=(BINARY, *_JUDGE_FLAGS, *_login_flags(invocation.home), *role, *_model_flags(invocation.engine)),
            env=_environment(invocation, ()),
            cwd=invocation.workdir,
            timeout_seconds=invocation.timeout_seconds,
            stdin=_encoded(invocation.prompt),
            group=invocation.group,
        )

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer:
        return read_envelope(result.stdout, result.stderr, result.exit_code)

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
        if result.timed_out or result.cancelled or result.exit_code is None:
            return None
        texts = [answer.cli_error]
        if result.exit_code != 0:
            texts.append(_text(result.stderr))
        return claude_refusals.find(Complaint.of(texts, exit_code=result.exit_code, status=answer.error_status))

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        return claude_refusals.explain(refusal, engine, judge=judge)


def _environment(invocation: Invocation | JudgeInvocation, extra_path: tuple[str, ...]) -> dict[str, str]:
    """The environment of the CLI. Nothing in it tells that this is an evaluation."""
    operator, home = invocation.operator, invocation.home
    env = agent_environment(operator, home, extra_path=extra_path)
    token = operator.environment.get("CLAUDE_CODE_OAUTH_TOKEN")
    if token:
        env["CLAUDE_CODE_OAUTH_TOKEN"] = token
    chosen = {**env, **claude_home.login_settings(operator).get("env", {})}
    for switch, variable, place in _CLOUD_FILES:
        if chosen.get(switch) not in (None, "", "0", "false") and (operator.home / place).is_file():
            env.setdefault(variable, str(operator.home / place))
    if claude_home.has_login_file(home):
        # A key wins over a login, and the key may belong to an account without credit.
        env.pop("ANTHROPIC_API_KEY", None)
    env.pop("CLAUDE_CONFIG_DIR", None)
    env["DISABLE_AUTOUPDATER"] = "1"
    env.setdefault("CLAUDE_CODE_MAX_RETRIES", str(_tries(invocation.timeout_seconds / 4)))
    if os.geteuid() == 0:
        env["IS_SANDBOX"] = "1"
    return env


def _tries(seconds: float) -> int:
    """How often the CLI may try again when all its waits (0.5 s, doubled up to 32 s, a fifth more) are to fit."""
    tries, wait, total = 0, 0.6, 0.6
    while tries < _CLI_TRIES and total <= seconds:
        tries, wait = tries + 1, min(wait * 2, 38.4)
        total += wait
    return tries


def _login_flags(home: Path) -> tuple[str, ...]:
    file = claude_home.login_file(home)
    return () if file is None else ("--settings", str(file))


def _model_flags(engine: Engine) -> tuple[str, ...]:
    return () if engine.model is None else ("--model", engine.model)


def _encoded(prompt: str) -> bytes:
    return prompt.encode("utf-8", "replace")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@functools.lru_cache(maxsize=16)
def _version(binary: str, changed: int, env: tuple[tuple[str, str], ...]) -> str | None:
    """The first line of `--version`. `None`: it fails or hangs; the command may work all the same. Raises `CannotRun`
    for a command that the system cannot start.

    Agent and judge are mostly the same command, and asking takes 75 ms; `changed` lets an update be seen.
    """
    said = ask([binary, "--version"], dict(env), VERSION_SECONDS)
    if said.problem is not None:
        raise CannotRun(
            f"The {BINARY} command at {binary} does not start: {said.problem}",
            hint="Install it anew: npm install -g @anthropic-ai/claude-code",
        )
    return said.version_line if said.exit_code == 0 else None
