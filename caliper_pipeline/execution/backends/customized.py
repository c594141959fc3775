"""A backend that sees the operator's machine with additions of its own: a folder for its command, variables for its
agents. Everything else is the backend's own affair.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends.base import (
    Backend,
    BackendInfo,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.command import Command, ProcessResult


def customized(
    backend: Backend, *, folder: str = "", environment: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> Backend:
    """`folder` is searched for the command before `PATH`; `environment` holds names or globs of variables that
    agents and judges of this backend may see besides; `settings` are variables that this backend finds set to these
    values. Without any it is the backend itself."""
    if not folder and not environment and not settings:
        return backend
    return _Customized(backend, folder, tuple(environment), settings or {})


class _Customized:
    def __init__(self, inner: Backend, folder: str, environment: tuple[str, ...], settings: Mapping[str, str]) -> None:
        self.inner = inner
        self.folder = folder
        self.environment = environment
        self.settings = settings
        self.name = inner.name
        self.capabilities = inner.capabilities

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        return self.inner.check(self._seen(operator), extra_path, engine, spec_path)

    def skills_root(self, home: Path) -> Path:
        return self.inner.skills_root(home)

    def prepare(self, invocation: Invocation) -> None:
        self.inner.prepare(self._with(invocation))

    def plant(self, invocation: Invocation) -> str:
        return self.inner.plant(self._with(invocation))

    def command(self, invocation: Invocation) -> Command:
        return self.inner.command(self._with(invocation))

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        return self.inner.recovery(self._with(invocation), result)

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        return self.inner.read(result, None if invocation is None else self._with(invocation))

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        return self.inner.refusal(result, reply)

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        self.inner.prepare_judge(replace(invocation, operator=self._seen(invocation.operator)))

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        return self.inner.judge_command(replace(invocation, operator=self._seen(invocation.operator)))

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer:
        return self.inner.read_judge(result, invocation)

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
        return self.inner.judge_refusal(result, answer)

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        return self.inner.explain(refusal, engine, judge=judge)

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        return self.inner.user_layer(self._seen(operator), declared, servers)

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        return self.inner.login_command(self._seen(operator))

    def _with(self, invocation: Invocation) -> Invocation:
        return replace(invocation, operator=self._seen(invocation.operator))

    def _seen(self, operator: Operator) -> Operator:
        added = {
            name: value
            for name, value in operator.environment.items()
            if any(fnmatchcase(name, pattern) for pattern in self.environment)
        }
        paths = {"PATH": self._search_path(operator)} if self.folder else {}
        # A folder that is named here goes before the command's own variable, which would go before PATH.
        environment = {
            name: value
            for name, value in operator.environment.items()
            if not (self.folder and name.endswith("_CLI_PATH"))
        }
        return replace(
            operator,
            environment={**environment, **paths, **self.settings},
            allowed={**operator.allowed, **paths},
            agent_allowed={**operator.agent_allowed, **added},
        )

    def _search_path(self, operator: Operator) -> str:
        before = operator.environment.get("PATH", os.defpath)
        folder = str(Path(self.folder).expanduser())
        return before if before.split(os.pathsep)[0] == folder else os.pathsep.join([folder, before])
