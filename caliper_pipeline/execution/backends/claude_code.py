"""The Claude Code CLI as an agent and as a judge.

What was measured on 2.1.197 and decides the flags:

- One argument may hold 128 KiB on Linux, standard input 10 MB: a longer prompt, and every judge's, goes there. Either
  way a prompt that begins with a dash stays a prompt.
- As root the CLI refuses to skip permissions unless `IS_SANDBOX` is exactly `1`.
- `--strict-mcp-config` alone keeps out account connectors and every configured server.
- `--tools ""` leaves a judge without any tool; without `--setting-sources ""` and `--disable-slash-commands` it would
  still be told of settings and skills. Its role replaces the system prompt of a coding agent, 1,500 tokens a call.
- By itself the CLI tries a refused call ten times more, a rejected key included: 177 s, longer than most time limits,
  so that a bad login would show as a timeout. It gets as many tries as fit into a quarter of its limit.
- The exit code 0 proves nothing: an interrupt also exits 0.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import (
    CannotRun,
    CliTooOld,
    LoginRequired,
    MissingCli,
    SpendingCap,
    UnavailableModel,
)
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends import claude_home
from caliper_pipeline.execution.backends.base import (
    BackendInfo,
    Capabilities,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.backends.claude_stream import plain_lines, read_envelope, read_stream
from caliper_pipeline.execution.backends.refusals import Complaint, Marker, classify, marker
from caliper_pipeline.execution.command import Command, ProcessResult
from caliper_pipeline.execution.environment import agent_environment

NAME = "claude-code"
BINARY = "claude"
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

_SETUP = marker(
    "configuration",
    "does not have access to claude code",
    "disabled claude subscription access",
    "use an anthropic api key instead",
    "cannot be used with root/sudo privileges",
    "native binary not installed",
    "invalid mcp configuration",
)
_MARKERS: tuple[Marker, ...] = (
    marker(
        "login",
        "not logged in",
        "please run /login",
        "failed to authenticate",
        "oauth session expired",
        "oauth token has expired",
        "invalid api key",
        "api error: 401",
        "api error 401",
    ),
    marker("model", "issue with the selected model"),
)
_NODE_CRASH = re.compile(r"cli\.[cm]?js\b")
_NODE_ERROR = re.compile(r"\b[A-Z]\w*Error\b|^Node\.js v\d", re.MULTILINE)
_BY_CODE = {"billing_error": "cap", "authentication_failed": "login", "model_not_found": "model"}
_BY_STATUS = {401: "login", 402: "cap", 403: "login", 404: "model"}


class ClaudeCode:
    name = NAME
    capabilities = Capabilities(user_customizations=True)

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
        return claude_home.user_layer(operator, declared)

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        return (BINARY, "auth", "login")

    def prepare(self, invocation: Invocation) -> None:
        claude_home.seed_login(invocation.operator, invocation.home, user_servers=not invocation.isolated)
        if not invocation.isolated:
            declared = (*invocation.skills, *invocation.ablated)
            claude_home.seed_customizations(invocation.operator, invocation.home, declared)

    def plant(self, invocation: Invocation) -> str:
        raise NotImplementedError

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        return None

    def command(self, invocation: Invocation) -> Command:
        strict = ("--strict-mcp-config",) if invocation.isolated else ()
        prompt = _encoded(invocation.prompt)
        # Behind `--` nothing in it is an option. A prompt that no argument can carry goes to standard input.
        fits = len(prompt) <= ARGUMENT_BYTES and b"\0" not in prompt
        return Command(
            argv=(
                BINARY,
                *_AGENT_FLAGS,
                *strict,
                *_model_flags(invocation.engine),
                *(("--", prompt.decode("utf-8")) if fits else ()),
            ),
            env=_environment(invocation, invocation.extra_path),
            cwd=invocation.workdir,
            timeout_seconds=invocation.timeout_seconds,
            stdin=None if fits else prompt,
            group=invocation.group,
        )

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        return read_stream(result.stdout)

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        if result.timed_out or result.cancelled or result.exit_code is None:
            return None
        texts = [reply.cli_error]
        if result.exit_code != 0 or not reply.spoke:
            texts.append(_text(result.stderr))
        if not reply.spoke and reply.cli_error is None:
            texts += plain_lines(result.stdout)
        complaint = Complaint.of(texts, exit_code=result.exit_code, status=reply.error_status, code=reply.error_code)
        return classify(complaint, structure=_structure, markers=_MARKERS)

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        claude_home.seed_login(invocation.operator, invocation.home)

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        role = ("--system-prompt", invocation.system) if invocation.system else ()
        return Command(
            argv=(BINARY, *_JUDGE_FLAGS, *role, *_model_flags(invocation.engine)),
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
        complaint = Complaint.of(texts, exit_code=result.exit_code, status=answer.error_status)
        return classify(complaint, structure=_structure, markers=_MARKERS)

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        who = f"The {NAME} {'judge' if judge else 'agent'}"
        flag = "--judge-model" if judge else "--model"
        text = refusal.text.rstrip()
        if refusal.kind == "cap":
            return SpendingCap(
                f"{who} hit a spending or usage cap: {text}",
                hint="What is finished is kept. Once the cap is lifted, go on with: caliper run --resume",
            )
        if refusal.kind == "login":
            return LoginRequired(
                f"{who} cannot run: Not logged in, or the login was refused: {text}",
                hint=f"Log in with `{BINARY} auth login`, or set a valid ANTHROPIC_API_KEY or "
                "CLAUDE_CODE_OAUTH_TOKEN. What is finished is kept; go on with: caliper run --resume",
            )
        if refusal.kind == "model":
            asked = engine.model or "the default model"
            return UnavailableModel(
                f"{who} cannot run: {asked} is not available: {text}",
                hint=f"Name another with {flag}, for instance {flag} {NAME}:sonnet.",
            )
        if refusal.kind == "option":
            return CliTooOld(
                f"{who} cannot run: the installed {BINARY} command rejects an option that is needed: {text}",
                hint="Update it: npm install -g @anthropic-ai/claude-code, or `claude update`.",
            )
        return CannotRun(f"{who} cannot run: {text}", hint=_remedy(text))


def _structure(complaint: Complaint) -> str | None:
    """What codes, statuses and shapes tell, whatever the words around them."""
    if complaint.line_with(_SETUP.pattern):
        return _SETUP.kind
    if complaint.code in _BY_CODE:
        return _BY_CODE[complaint.code]
    if complaint.status in _BY_STATUS:
        return _BY_STATUS[complaint.status]
    whole = "\n".join(complaint.lines)
    if complaint.failed and _NODE_CRASH.search(whole) and _NODE_ERROR.search(whole):
        return "configuration"
    lowered = whole.lower()
    if complaint.failed and complaint.status is None and "api key" in lowered and "anthropic" in lowered:
        return "login"
    return None


def _remedy(text: str) -> str | None:
    lowered = text.lower()
    if "native binary not installed" in lowered:
        return "Its install script did not run: node node_modules/@anthropic-ai/claude-code/install.cjs"
    if "root/sudo" in lowered:
        return "Run as another user."
    if _NODE_CRASH.search(text):
        return "The command crashed at its start: try another (even) version of Node.js, or install the CLI anew."
    return None


def _environment(invocation: Invocation | JudgeInvocation, extra_path: tuple[str, ...]) -> dict[str, str]:
    """The environment of the CLI. Nothing in it tells that this is an evaluation."""
    operator, home = invocation.operator, invocation.home
    env = agent_environment(operator, home, extra_path=extra_path)
    token = operator.environment.get("CLAUDE_CODE_OAUTH_TOKEN")
    if token:
        env["CLAUDE_CODE_OAUTH_TOKEN"] = token
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


def _model_flags(engine: Engine) -> tuple[str, ...]:
    return () if engine.model is None else ("--model", engine.model)


def _encoded(prompt: str) -> bytes:
    return prompt.encode("utf-8", "replace")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@functools.lru_cache(maxsize=16)
def _version(binary: str, changed: int, env: tuple[tuple[str, str], ...]) -> str | None:
    """The first line of `--version`. `None`: it fails or hangs; the command may work all the same.

    Agent and judge are mostly the same command, and asking takes 75 ms; `changed` lets an update be seen.
    """
    try:
        process = subprocess.Popen(
            [binary, "--version"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError:
        return None
    with process:
        try:
            out, err = process.communicate(timeout=VERSION_SECONDS)
        except subprocess.TimeoutExpired:
            out = err = b""
        finally:
            # What it left behind may hold the pipes open for ever.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = (_text(out).strip() or _text(err).strip()).splitlines()
    return lines[0][:200] if process.returncode == 0 and lines else None
