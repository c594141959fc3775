"""An agent, and a judge, that play a script instead of asking a model: for demos, tests, load tests and calibration.

Everything around the model is real: a process of its own (`scripted_agent.py`) in the attempt's home and workdir, its
stream, its exit code, its end by a time limit or a stop. What happens is in `<spec>.script.yaml` beside the spec
(`x.eval.yaml` → `x.script.yaml`), or in the FILE of `--model scripted:FILE`, looked for in the working directory and
then beside the spec. docs/scripted.md describes the format, `script_file.py` reads it, `scripted_stream.py` knows what
the process is told and what it prints.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import (
    BadInput,
    CannotRun,
    LoginRequired,
    Problem,
    SpecError,
    SpendingCap,
    UnavailableModel,
)
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends.base import (
    BackendInfo,
    Capabilities,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.backends.script_file import (
    EVERY,
    Failure,
    Ruling,
    Script,
    load_script,
    task_names,
)
from caliper_pipeline.execution.backends.scripted_stream import Plan, read_stream, scripted_tokens
from caliper_pipeline.execution.command import Command, ProcessResult
from caliper_pipeline.execution.environment import agent_environment

NAME = "scripted"
_KINDS = {400: "configuration", 401: "login", 402: "cap", 404: "model", 429: "throttle", 529: "throttle"}
_TEXT_CHARS = 300


class Scripted:
    name = NAME
    capabilities = Capabilities(mcp=True, history=True, token_counter=scripted_tokens)
    """A script does what it does: servers are not started, and what was said before it is for the judge to see."""

    def __init__(self) -> None:
        self._spec_path: Path | None = None
        """The spec that was checked: for judges that are not told of one."""

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        """Find the script and check all of it. Raises `BadInput`, `SpecError` for what is wrong in it."""
        script = load_script(find_script(engine, spec_path))
        self._spec_path = spec_path
        if spec_path is not None and (names := task_names(spec_path)) is not None:
            _check_names(script, names)
        return BackendInfo(str(script.path), f"script {script.digest[:12]}")

    def skills_root(self, home: Path) -> Path:
        return home / ".agent" / "skills"

    def prepare(self, invocation: Invocation) -> None:
        """It needs no login and has no settings."""

    def command(self, invocation: Invocation) -> Command:
        script = load_script(find_script(invocation.engine, invocation.spec_path))
        session = _digest("session", invocation.task_name, invocation.attempt, invocation.retry, *invocation.ablated)
        plan = Plan(session, script.model)
        outcome = script.outcome(invocation.task_name, invocation.ablated, invocation.attempt)
        if outcome is None:
            arm = f"without {', '.join(invocation.ablated)}" if invocation.ablated else "the full arm"
            text = f"{script.path} does not say what happens in the task {invocation.task_name!r} ({arm})"
            plan.fail(Failure("configuration", message=text), invocation.retry)
        else:
            told = any(step.kind == "tokens" for step in outcome.steps)
            plan.play(outcome.steps, invocation.skills, invocation.retry, None if told else script.tokens)
        return plan.command(
            agent_environment(invocation.operator, invocation.home, extra_path=invocation.extra_path), invocation
        )

    def plant(self, invocation: Invocation) -> str:
        return ""

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        return None

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        return None

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        return None

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        return read_stream(result.stdout)

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        return _refusal(result, reply.cli_error, reply.error_status)

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        """It needs no login and has no settings."""

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        """Without a script it passes everything; `check` has seen to it that there is one in a run."""
        spec_path = invocation.spec_path or self._spec_path
        script = None
        if spec_path is not None or invocation.engine.model is not None:
            script = load_script(find_script(invocation.engine, spec_path))
        question = str(invocation.attempt) if invocation.task_name else _digest(invocation.prompt)
        plan = Plan(_digest("judge", question, invocation.retry), script.judge_model if script else None)
        if script is None:
            plan.rule(Ruling(passed=True), invocation.retry, None)
        elif script.judge_tasks and EVERY not in script.judge_tasks and not invocation.task_name:
            plan.fail(Failure("configuration", message=f"{script.path}: nobody told which task is judged"), 0)
        else:
            ruling = script.ruling(invocation.task_name, invocation.ablated, question)
            plan.rule(ruling, invocation.retry, script.judge_tokens)
        return plan.command(agent_environment(invocation.operator, invocation.home), invocation)

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer:
        reply = read_stream(result.stdout)
        return JudgeAnswer(
            text=reply.final_answer,
            model=reply.model,
            usage=reply.usage,
            cli_error=reply.cli_error,
            error_status=reply.error_status,
        )

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
        return _refusal(result, answer.cli_error, answer.error_status)

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        kinds: dict[str, type[CannotRun]] = {
            "login": LoginRequired,
            "cap": SpendingCap,
            "model": UnavailableModel,
        }
        who = f"The {NAME} {'judge' if judge else 'agent'}"
        hint = None if refusal.kind == "configuration" else "The script says so: nothing is wrong with this machine."
        return kinds.get(refusal.kind, CannotRun)(f"{who} cannot run: {refusal.text}", hint=hint)


def find_script(engine: Engine, spec_path: Path | None) -> Path:
    """The script that the engine names, or the one beside the spec. Raises `BadInput`."""
    if engine.model is not None:
        tried = [Path(engine.model)] if spec_path is None else [Path(engine.model), spec_path.parent / engine.model]
    elif spec_path is not None:
        stem = spec_path.name.removesuffix(spec_path.suffix).removesuffix(".eval")
        tried = [spec_path.with_name(f"{stem}.script{suffix}") for suffix in (".yaml", ".yml")]
    else:
        tried = []
    for path in tried:
        if path.is_file():
            return path.absolute()
    shown = ", ".join(dict.fromkeys(str(path.absolute()) for path in tried)) or "no spec and no FILE"
    raise BadInput(
        f"The {NAME} agent has no script. Looked for: {shown}.",
        hint="Write <spec>.script.yaml beside the spec, or name a file: --model scripted:FILE. "
        "docs/scripted.md describes the format.",
    )


def _check_names(script: Script, names: Sequence[str]) -> None:
    """Tasks that do not exist are typing errors; tasks without a word would fail one by one."""
    problems = [
        Problem(str(script.path), f"the spec has no task called {name!r}; it has: {', '.join(names)}", key)
        for key, tasks in (("tasks", script.tasks), ("judge → tasks", script.judge_tasks))
        for name in tasks
        if name != EVERY and name not in names
    ]
    missing = [name for name in names if name not in script.tasks]
    if script.tasks and EVERY not in script.tasks and missing:
        problems.append(
            Problem(
                str(script.path), f"nothing is said of {', '.join(missing)}; `*` stands for every other task", "tasks"
            )
        )
    if problems:
        raise SpecError(problems)


def _refusal(result: ProcessResult, error: str | None, status: int | None) -> Refusal | None:
    if result.timed_out or result.cancelled or result.exit_code is None or error is None or status not in _KINDS:
        return None
    return Refusal(_KINDS[status], error[:_TEXT_CHARS])


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
