"""The pi CLI as an agent and as a judge.

Measured on 0.74.2, 0.79.0, 1.3.0 and 1.6.0, and behind what is done:

- The prompt goes to standard input on every version: there it may begin with a dash or an `@` and be of any length, and
  needs no `--`, which versions before 0.84.3 refuse. Blanks around it are dropped. `/skill:name …` is expanded by the
  CLI, as it would be for a person.
- `--approve` (since 0.79) lets the working directory's own skills and settings load, which `setup` may have put there;
  older versions load them anyway.
- The exit code is 0 on every error of a model; the stream tells (`pi_stream`).
- Before 0.84 a stream grows with the square of the answer and may pass what is kept of it. The session is kept there
  too, and read when the stream was cut.
- A judge gets none of the tools, skills, extensions and context files by flags that all versions have, and its role in
  place of the system prompt of a coding agent.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends import pi_home, pi_refusals, pi_session, pi_settings, pi_user, pi_values
from caliper_pipeline.execution.backends.base import (
    BackendInfo,
    Capabilities,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.backends.pi_cli import (
    APPROVE_SINCE,
    DELTAS_SINCE,
    MCP_SINCE,
    Cli,
    find_cli,
)
from caliper_pipeline.execution.backends.pi_stream import read_session, read_stream, tokens_so_far
from caliper_pipeline.execution.command import Command, ProcessResult
from caliper_pipeline.execution.environment import agent_environment

NAME = "pi"
_FLAGS = ("--print", "--mode", "json")
_JUDGE_FLAGS = (
    "--no-tools",
    "--no-skills",
    "--no-extensions",
    "--no-prompt-templates",
    "--no-themes",
    "--no-context-files",
)
_TOO_LONG = re.compile(
    r"maximum context length|context_length_exceeded|prompt is too long|context window", re.IGNORECASE
)


class Pi:
    name = NAME
    capabilities = Capabilities(mcp=True, history=True, user_customizations=True, token_counter=tokens_so_far)

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        """Find the command and ask its version, once. Raises `MissingCli`, or `CannotRun` for what cannot work."""
        pi_home.check_files(operator)
        cli = find_cli(operator, extra_path)
        can = self.capabilities
        if not cli.since(MCP_SINCE):
            needed = ".".join(map(str, MCP_SINCE))
            why = f"pi {cli.version_text} ({cli.binary}) has no MCP; it needs version {needed} or newer."
            can = replace(can, mcp=False, why_not={"mcp": why})
        return BackendInfo(str(cli.binary), cli.version_text, can)

    def skills_root(self, home: Path) -> Path:
        return pi_home.agent_folder(home) / "skills"

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        try:
            cli = find_cli(operator)
        except CannotRun:
            cli = None
        return pi_user.find_layer(operator, cli, declared, servers).names()

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        """One logs in inside its terminal interface."""
        return None

    def prepare(self, invocation: Invocation) -> None:
        operator, home = invocation.operator, invocation.home
        cli = find_cli(operator, invocation.extra_path)
        pi_home.seed_login(operator, cli, home, invocation.timeout_seconds)
        settings = pi_settings.isolated_settings(pi_home.read_settings(operator))
        theirs = {}
        if not invocation.isolated:
            declared = invocation.declared_servers or ()
            layer = pi_user.find_layer(operator, cli, (*invocation.skills, *invocation.ablated), declared)
            if _alone(invocation):
                layer.servers = {}
            settings = pi_user.install(layer, operator, home, servers_declared=bool(invocation.servers))
            theirs = pi_values.servers_file(layer.servers, pi_values.resolver(operator, cli))
        pi_home.seed_settings(home, settings, invocation.timeout_seconds)
        pi_home.seed_servers(home, invocation.servers, theirs)

    def plant(self, invocation: Invocation) -> str:
        return str(pi_session.plant(invocation))

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        return None

    def command(self, invocation: Invocation) -> Command:
        cli = find_cli(invocation.operator, invocation.extra_path)
        flags = []
        if cli.since(APPROVE_SINCE):
            flags.append("--approve")
        if _alone(invocation) and not invocation.servers and cli.since(MCP_SINCE):
            flags.append("--no-mcp")
        return self._command(invocation, cli, flags, session=invocation.session, extra_path=invocation.extra_path)

    def _command(
        self,
        invocation: Invocation | JudgeInvocation,
        cli: Cli,
        flags: list[str],
        *,
        session: str = "",
        extra_path: tuple[str, ...] = (),
    ) -> Command:
        env = _environment(invocation, cli, extra_path)
        if not session and not cli.since(DELTAS_SINCE):
            session = str(pi_session.new_session(invocation))
        kept = ("--session", session) if session else ("--no-session",)
        model = invocation.engine.model
        return Command(
            argv=(*cli.start(env["PATH"]), *_FLAGS, *kept, *flags, *(("--model", model) if model is not None else ())),
            env=env,
            cwd=invocation.workdir,
            timeout_seconds=invocation.timeout_seconds,
            stdin=invocation.prompt.encode("utf-8", "replace"),
            group=invocation.group,
        )

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        servers = () if invocation is None else tuple(server.name for server in invocation.servers)
        history = () if invocation is None else invocation.history
        return _read(result, invocation, servers, pi_session.planted_messages(history))

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        return pi_refusals.refusal(result, reply)

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        operator, home = invocation.operator, invocation.home
        pi_home.seed_login(operator, find_cli(operator), home, invocation.timeout_seconds)
        settings = pi_settings.isolated_settings(pi_home.read_settings(operator))
        pi_home.seed_settings(home, settings, invocation.timeout_seconds)

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        role = ("--system-prompt", invocation.system) if invocation.system else ()
        return self._command(invocation, find_cli(invocation.operator), [*_JUDGE_FLAGS, *role])

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer:
        reply = _read(result, invocation)
        error = reply.cli_error
        if error is None and not reply.spoke:
            error = result.stderr.decode("utf-8", "replace").strip()[-1000:] or None
        return JudgeAnswer(
            text="" if error is not None else reply.final_answer,
            model=reply.model,
            usage=reply.usage,
            cli_error=error,
            error_status=reply.error_status,
            too_long=error is not None and _TOO_LONG.search(error) is not None,
        )

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
        return pi_refusals.refusal(result, read_stream(result.stdout))

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        return pi_refusals.explain(refusal, engine, judge=judge)


def _alone(invocation: Invocation) -> bool:
    """Nothing but declared servers may be there."""
    return invocation.isolated or invocation.declared_servers == ()


def _environment(invocation: Invocation | JudgeInvocation, cli: Cli, extra_path: tuple[str, ...]) -> dict[str, str]:
    """The environment of the CLI. Nothing in it tells that this is an evaluation."""
    operator, home = invocation.operator, invocation.home
    path = os.pathsep.join([*extra_path, operator.allowed.get("PATH") or os.defpath])
    env = agent_environment(operator, home, extra_path=extra_path, path_prefixes=cli.path_prefixes(path))
    env.pop("PI_CODING_AGENT_SESSION_DIR", None)
    env[pi_home.FOLDER_VARIABLE] = str(pi_home.agent_folder(home))
    env["PI_OFFLINE"] = env["PI_SKIP_VERSION_CHECK"] = "1"
    env["PI_TELEMETRY"] = "0"
    return env


def _read(
    result: ProcessResult,
    invocation: Invocation | JudgeInvocation | None,
    servers: tuple[str, ...] = (),
    planted: int = 0,
) -> AgentReply:
    """The reply in the stream, or where that was cut before its end, in the session."""
    reply = read_stream(result.stdout, servers)
    if invocation is None or not result.cut or reply.finished:
        return reply
    kept = read_session(pi_session.kept_session(invocation), planted, servers)
    return kept if kept.spoke else reply
