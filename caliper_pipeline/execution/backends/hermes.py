"""The hermes CLI as an agent and as a judge.

Of its two forms without a terminal the single shot (`hermes -z`) is used, not `hermes chat -Q -q`. Measured on 0.19.0:

- An agent that asks the user something gets an answer at once (`-z`), or waits for one until its time is over (`chat`).
- Sub-agents finish before their caller goes on (`-z`), or are interrupted and their work is lost (`chat`).
- `chat` approves nothing by itself, prints notes among the answer, and takes 0.4 s of processor time more.
- What speaks for `chat`: it exits 1 when the provider refuses, it can resume a session, and it waits for MCP servers.

So a refusal is read from the report (`--usage-file`), planted conversations are refused, and for servers the command
gets the words `mcp serve` besides: with them it starts the servers before the shot, not beside it, where one that
needs more than a second is missing from the tools without a word. The shot itself ends the process before `mcp serve`
would begin.

The conversation is not in the output; the session is exported afterwards, which is also how one is told that was cut
off. A single shot leaves the command it was running behind; ending whole trees is the launcher's business. The prompt
stands behind `--oneshot=` in the same argument, so nothing in it can be an option or the name of a subcommand.
"""

from dataclasses import replace
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import (
    MissingCli,
)
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends import hermes_config, hermes_home
from caliper_pipeline.execution.backends.base import (
    BackendInfo,
    Capabilities,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.backends.hermes_binary import (
    BINARY,
    PROMPT_FROM_STDIN,
    find_binary,
    has_mcp,
    python_script,
    search_path,
    version_of,
)
from caliper_pipeline.execution.backends.hermes_refusals import refusal_in
from caliper_pipeline.execution.backends.hermes_servers import has_servers, missed_servers, reached_servers
from caliper_pipeline.execution.backends.hermes_skills import bundled_names
from caliper_pipeline.execution.backends.hermes_stream import Report, read_call, read_judgement
from caliper_pipeline.execution.backends.refusals import Remedies, explained
from caliper_pipeline.execution.command import Command, ProcessResult
from caliper_pipeline.execution.environment import agent_environment

NAME = "hermes"
ARGUMENT_BYTES = 100_000
"""Linux takes at most 128 KiB in one argument."""
_LOG_BYTES = 1024 * 1024
EXPORT_SECONDS = 60.0
"""It takes half a second, more on a busy machine; what it tells has been paid for."""

_NO_HISTORY = (
    "Its single shot takes up no session, and its chat, which does, loses what sub-agents answer and waits for a user "
    "when the agent asks something."
)
_NO_MCP = "The installed hermes lacks the package for it: pip install 'hermes-agent[mcp]' where it is installed."
_CAN = Capabilities(mcp=True, user_customizations=True, why_not={"history": _NO_HISTORY})
_CAN_WITHOUT_MCP = Capabilities(user_customizations=True, why_not={"history": _NO_HISTORY, "mcp": _NO_MCP})


class Hermes:
    name = NAME
    capabilities = _CAN

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        """Find the command and ask its version, once. Raises `MissingCli`, or `CannotRun` for a bad configuration."""
        hermes_config.read_config(hermes_home.config_folder(operator) / hermes_config.CONFIG)
        binary, path = find_binary(operator, extra_path), search_path(operator, extra_path)
        if binary is None:
            raise MissingCli(
                f"{BINARY} CLI not found. Searched: {path}",
                hint="Install it (pip install 'hermes-agent[mcp]'), name its folder in the spec's sandbox.extra_path, "
                "or the command itself in HERMES_CLI_PATH.",
            )
        can = _CAN if has_mcp(binary) else _CAN_WITHOUT_MCP
        return BackendInfo(binary, version_of(operator, binary, path), can)

    def skills_root(self, home: Path) -> Path:
        return hermes_home.hermes_home(home) / "skills"

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        return hermes_home.user_layer(operator, declared, servers)

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        return (find_binary(operator) or BINARY, "model")

    def prepare(self, invocation: Invocation) -> None:
        hermes_home.seed(invocation, _environment(invocation, invocation.extra_path)["PATH"])

    def plant(self, invocation: Invocation) -> str:
        raise NotImplementedError

    def command(self, invocation: Invocation) -> Command:
        hermes_home.forget_sessions(invocation.home)
        config = self._config_file(invocation.home)
        # Without servers the two words would only cost time.
        servers = ("mcp", "serve") if has_servers(config) else ()
        return _shot(invocation, invocation.extra_path, config, servers)

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        if result.exit_code is None:
            return None
        return Command(
            argv=(find_binary(invocation.operator, invocation.extra_path) or BINARY, "sessions", "export", "-"),
            env=_environment(invocation, invocation.extra_path),
            cwd=invocation.workdir,
            timeout_seconds=EXPORT_SECONDS,
            group=invocation.group,
        )

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        cut_off = _cut_off(result)
        if invocation is None:
            return read_call(result.stdout, result.stderr, Report(), exit_code=result.exit_code, cut_off=cut_off)
        reply = read_call(
            result.stdout,
            result.stderr,
            _report(invocation.home),
            exit_code=result.exit_code,
            cut_off=cut_off,
            servers=[server.name for server in invocation.servers],
        )
        log = _log(invocation.home)
        missed = missed_servers(log, [server.name for server in invocation.servers])
        if missed and not cut_off and reply.cli_error is None:
            told = "; ".join(f"{name}: {reason}" for name, reason in missed.items())
            # What was done without a declared server tells nothing about the task.
            reply = replace(reply, cli_error=f"without the MCP servers that did not start ({told})", finished=False)
        return replace(
            reply,
            mcp_servers=reached_servers(log),
            builtin_skills=bundled_names(self.skills_root(invocation.home)) or None,
        )

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        if _cut_off(result) or result.exit_code is None:
            return None
        texts = [reply.cli_error]
        if result.exit_code != 0 or not reply.spoke:
            texts.append(result.stderr.decode("utf-8", "replace"))
        return refusal_in(texts, exit_code=result.exit_code, status=reply.error_status)

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        hermes_home.seed_judge(invocation.operator, invocation.home, invocation.system)

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        hermes_home.forget_sessions(invocation.home)
        return _shot(invocation, (), self._config_file(invocation.home), ())

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer:
        return read_judgement(
            result.stdout,
            result.stderr,
            _report(invocation.home if invocation is not None else None),
            exit_code=result.exit_code,
            start_error=result.start_error,
        )

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
        if _cut_off(result) or result.exit_code is None:
            return None
        texts = [answer.cli_error]
        if result.exit_code != 0:
            texts.append(result.stderr.decode("utf-8", "replace"))
        return refusal_in(texts, exit_code=result.exit_code, status=answer.error_status)

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        remedies = Remedies(
            login=f"Choose a provider and log in with `{BINARY} model`, or put its key into ~/.hermes/.env.",
            model=f"Name one that the configured provider has with {{flag}} {NAME}:<model>, or choose another "
            f"provider with `{BINARY} model`.",
            option=f"Update it: `{BINARY} update`, or pip install --upgrade 'hermes-agent[mcp]'.",
            other=f"Look at ~/.hermes/config.yaml; `{BINARY} doctor` helps.",
            cap="Once there is credit again",
            unnamed_model="the configured model",
        )
        return explained(refusal, engine, remedies, judge=judge)

    @staticmethod
    def _config_file(home: Path) -> Path:
        return hermes_home.hermes_home(home) / hermes_config.CONFIG


def _shot(
    invocation: Invocation | JudgeInvocation, extra_path: tuple[str, ...], config: Path, words: tuple[str, ...]
) -> Command:
    """A single shot. A prompt that no argument can carry goes to standard input, where the command is a Python script;
    where it is none, the system refuses to start it and says why."""
    binary = find_binary(invocation.operator, extra_path) or BINARY
    prompt = invocation.prompt.encode("utf-8", "replace")
    model = invocation.engine.model
    options = (
        "--usage-file",
        str(hermes_home.usage_file(invocation.home)),
        "--yolo",
        *(hermes_config.model_flags(model, hermes_config.read_config(config)) if model is not None else ()),
    )
    too_long = len(prompt) > ARGUMENT_BYTES or b"\0" in prompt
    script = python_script(binary) if too_long else None
    if script is not None:
        argv = (script.interpreter, "-c", PROMPT_FROM_STDIN, script.path, *options, *words)
    else:
        argv = (binary, f"--oneshot={prompt.decode('utf-8')}", *options, *words)
    return Command(
        argv=argv,
        env=_environment(invocation, extra_path),
        cwd=invocation.workdir,
        timeout_seconds=invocation.timeout_seconds,
        stdin=prompt if script is not None else None,
        group=invocation.group,
    )


def _environment(invocation: Invocation | JudgeInvocation, extra_path: tuple[str, ...]) -> dict[str, str]:
    """The environment of the command. Nothing in it tells that this is an evaluation."""
    env = agent_environment(invocation.operator, invocation.home, extra_path=extra_path)
    env["HERMES_HOME"] = str(hermes_home.hermes_home(invocation.home))
    # A new home looks like an installation to be completed.
    env["HERMES_DISABLE_LAZY_INSTALLS"] = "1"
    return env


def _cut_off(result: ProcessResult) -> bool:
    """Whether we ended it."""
    return result.timed_out or result.cancelled or result.ended_because is not None


def _report(home: Path | None) -> Report:
    if home is None:
        return Report()
    try:
        return Report.of(hermes_home.usage_file(home).read_bytes())
    except OSError:
        return Report()


def _log(home: Path) -> str:
    """The beginning of the log, where servers are started."""
    try:
        with hermes_home.log_file(home).open("rb") as file:
            return file.read(_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
