"""The codex CLI as an agent and as a judge.

What was measured on 0.171.0 and decides the flags:

- The prompt goes to standard input, behind `-`: of any length up to a million characters, and never an option.
- `--skip-git-repo-check` and the bypass of approvals are what a run without a person needs outside a repository; MCP
  calls are refused without the latter. `features.apps` and `features.plugins` keep the connectors of an account out.
- A judge has no use for the bypass: it stays in the read-only sandbox, which refuses the one tool that is left to it.
  Its role is an instruction beside the CLI's own ones for a plan login, whose service takes no others ("Instructions
  are not valid"), and stands in their place (4,500 tokens a call) for a key.
- A refused request ends a call after 7 s, a failing service after 25 s; for a provider of the operator's own both fit
  into a quarter of the time limit. A server that never answers is waited for without end: our limit ends that.
- `CODEX_API_KEY` wins over a login; `OPENAI_API_KEY`, which older releases read, no longer counts.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends import codex_config, codex_home, codex_refusals
from caliper_pipeline.execution.backends.base import (
    BackendInfo,
    Capabilities,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.backends.codex_access import Access, check_plan, chosen_access, login_words
from caliper_pipeline.execution.backends.codex_cli import BINARY, find_binary, find_cli
from caliper_pipeline.execution.backends.codex_rollout import Session, read_session
from caliper_pipeline.execution.backends.codex_session import plant_session
from caliper_pipeline.execution.backends.codex_stream import read_stream, skipped_skills, thread_of
from caliper_pipeline.execution.backends.home_files import write_private
from caliper_pipeline.execution.command import Command, ProcessResult
from caliper_pipeline.execution.environment import agent_environment, temp_folder

NAME = codex_refusals.NAME
_KEY = "CODEX_API_KEY"
_OLD_KEY = "OPENAI_API_KEY"
_FLAGS = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--color", "never")
_JUDGE_FLAGS = ("--skip-git-repo-check", "--sandbox", "read-only", "--color", "never")
_NO_APPS = "features.apps=false"
_NO_PLUGINS = "features.plugins=false"
_ROLE_FILE = "instructions.md"
_ANSWER_FILE = "last-message.txt"


class Codex:
    name = NAME
    capabilities = Capabilities(mcp=True, history=True, user_customizations=True)

    def __init__(self, access: Callable[[Operator, float], Access] = chosen_access) -> None:
        self._access = access

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        """Find the command and ask its version, once. Raises `MissingCli`, or `CannotRun` for what cannot work."""
        codex_home.operator_config(operator)
        cli = find_cli(operator, extra_path)
        check_plan(operator)
        return BackendInfo(cli.binary, cli.version)

    def skills_root(self, home: Path) -> Path:
        return home / codex_home.CONFIG_FOLDER / "skills"

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        return codex_home.user_layer(operator, declared, servers)

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        return login_words(operator, find_binary(operator) or BINARY)

    def prepare(self, invocation: Invocation) -> None:
        operator, home = invocation.operator, invocation.home
        theirs = codex_home.operator_config(operator)
        if self._access(operator, invocation.timeout_seconds).seeds_login:
            codex_home.seed_login(operator, home)
        _write_config(home, codex_config.agent_config(theirs, invocation))
        codex_home.seed_path(home, agent_environment(operator, home, extra_path=invocation.extra_path)["PATH"])
        if not invocation.isolated:
            codex_home.seed_customizations(operator, home, (*invocation.skills, *invocation.ablated))

    def plant(self, invocation: Invocation) -> str:
        access = self._access(invocation.operator, invocation.timeout_seconds)
        version = find_cli(invocation.operator, invocation.extra_path).version or ""
        return plant_session(
            invocation.history,
            config_home=invocation.home / codex_home.CONFIG_FOLDER,
            workdir=invocation.workdir,
            skills_root=self.skills_root(invocation.home),
            skills=invocation.skills,
            provider=access.provider or codex_config.provider_of(codex_home.attempt_config(invocation.home)),
            version=version.split()[-1] if version else "0.0.0",
        )

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        return None

    def command(self, invocation: Invocation) -> Command:
        access = self._access(invocation.operator, invocation.timeout_seconds)
        features: tuple[str, ...] = (_NO_APPS, _NO_PLUGINS) if invocation.isolated else ()
        clash = codex_home.CONNECTORS in codex_config.declared_names(invocation)
        if not features and (clash or not codex_config.takes_user_servers(invocation)):
            features = (_NO_APPS,)
        resumed = ("resume", invocation.session) if invocation.session else ()
        return _command(invocation, access, _FLAGS, features, (*resumed, "-"), invocation.extra_path)

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        reply = self._reply(result, invocation)
        return replace(reply, warnings=(*reply.warnings, *skipped_skills(result.stderr)))

    def _reply(self, result: ProcessResult, invocation: Invocation | None) -> AgentReply:
        if invocation is None:
            return read_stream(result.stdout)
        thread = thread_of(result.stdout)
        session = read_session(invocation.home / codex_home.CONFIG_FOLDER, thread) if thread else Session()
        return read_stream(result.stdout, session, servers=_servers(invocation))

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        return codex_refusals.agent_refusal(result, reply)

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        operator, home = invocation.operator, invocation.home
        theirs = codex_home.operator_config(operator)
        access = self._access(operator, invocation.timeout_seconds)
        if access.seeds_login:
            codex_home.seed_login(operator, home)
        config = codex_config.judge_config(theirs, invocation)
        folder = home / codex_home.CONFIG_FOLDER
        if invocation.system and (access.plan or codex_home.is_plan_login(folder / codex_home.LOGIN_FILE)):
            config["developer_instructions"] = invocation.system
        elif invocation.system:
            write_private(folder / _ROLE_FILE, invocation.system.encode("utf-8", "replace"))
            config["model_instructions_file"] = str(folder / _ROLE_FILE)
        _write_config(home, config)

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        access = self._access(invocation.operator, invocation.timeout_seconds)
        flags = (*_JUDGE_FLAGS, "--output-last-message", str(_answer_file(invocation)))
        return _command(invocation, access, flags, (_NO_APPS, _NO_PLUGINS), ("-",), ())

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer:
        session = read_session(invocation.home / codex_home.CONFIG_FOLDER, None) if invocation else Session()
        model, usage = (session.main.model, session.main.usage) if session.main is not None else (None, None)
        printed = result.stdout.decode("utf-8", "replace").strip()
        said = _last_message(invocation) or read_stream(result.stdout).final_answer or printed
        complaint = None
        if result.exit_code != 0 or not said:
            complaint = codex_refusals.judge_complaint(result.stderr, invocation.prompt if invocation else "")
            if result.exit_code != 0 and complaint is None:
                complaint = said[-1000:] or None
        failed = result.exit_code != 0 or complaint is not None
        return JudgeAnswer(
            text="" if failed else said,
            model=model,
            usage=usage,
            cli_error=complaint,
            too_long=codex_refusals.is_too_long(complaint),
        )

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
        return codex_refusals.judge_refusal(result, answer)

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        return codex_refusals.explain(refusal, engine, (BINARY, "login"), judge=judge)


def _command(
    invocation: Invocation | JudgeInvocation,
    access: Access,
    flags: tuple[str, ...],
    features: tuple[str, ...],
    ending: tuple[str, ...],
    extra_path: tuple[str, ...],
) -> Command:
    model = () if invocation.engine.model is None else ("--model", invocation.engine.model)
    overrides = [word for value in (*features, *access.overrides) for word in ("-c", value)]
    return Command(
        argv=(
            find_binary(invocation.operator, extra_path) or BINARY,
            "exec",
            *model,
            *flags,
            *overrides,
            *ending,
        ),
        env=_environment(invocation, access, extra_path),
        cwd=invocation.workdir,
        timeout_seconds=invocation.timeout_seconds,
        stdin=invocation.prompt.encode("utf-8", "replace"),
        group=invocation.group,
    )


def _environment(
    invocation: Invocation | JudgeInvocation, access: Access, extra_path: tuple[str, ...]
) -> dict[str, str]:
    """The environment of the CLI. Nothing in it tells that this is an evaluation."""
    home = invocation.home
    env = agent_environment(invocation.operator, home, extra_path=extra_path)
    config = codex_home.attempt_config(home)
    if not codex_config.takes_login(config) or access.provider is not None:
        pass  # a provider with a key of its own, in whatever variable
    elif codex_home.has_login_file(home):
        # A key wins over a login, and the key may belong to an account without credit.
        env.pop(_KEY, None)
    elif _OLD_KEY in env:
        env.setdefault(_KEY, env[_OLD_KEY])
    return {**env, **access.environment, "CODEX_HOME": str(home / codex_home.CONFIG_FOLDER)}


def _write_config(home: Path, config: codex_config.Config) -> None:
    write_private(home / codex_home.CONFIG_FOLDER / codex_home.CONFIG_FILE, codex_config.written(config))


def _servers(invocation: Invocation) -> tuple[str, ...] | None:
    """The servers that the agent has. `None`: an account brings some that nothing lists."""
    names = tuple(server.name for server in invocation.servers)
    if not codex_config.takes_user_servers(invocation):
        return names
    try:
        config = codex_home.operator_config(invocation.operator)
    except CannotRun:
        return None
    if codex_home.has_unlisted_servers(invocation.operator, config):
        return None
    declared = codex_config.declared_names(invocation)
    return (*names, *codex_home.loaded_servers(invocation.operator, config, declared))


def _answer_file(invocation: JudgeInvocation) -> Path:
    return temp_folder(invocation.home) / _ANSWER_FILE


def _last_message(invocation: JudgeInvocation | None) -> str:
    try:
        return _answer_file(invocation).read_bytes().decode("utf-8", "replace").strip() if invocation else ""
    except OSError:
        return ""
