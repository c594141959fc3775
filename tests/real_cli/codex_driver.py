"""Drives the real codex CLI through the backend, against a model that plays scenarios.

Time limits are many times what a call takes (0.3 s), since several run at once on few cores.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_server import ModelServer, Request

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.planted import read_turns
from caliper_pipeline.domain.transcript import AgentReply, Turn
from caliper_pipeline.execution.backends.base import Invocation, Operator, Refusal
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.command import ProcessResult, StopToken
from caliper_pipeline.execution.judge.autorater import JudgeResult, ask_judge
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.throttle import Backoff, Gate
from caliper_pipeline.execution.workdir import AttemptFolder

LIMIT_SECONDS = 60.0
MODEL = "gpt-5.5"  # in the CLI's own catalogue, so that it gets plain tools
SKILL = (
    "---\nname: zebra-counter\ndescription: Counts zebras. Use when asked about zebras.\n---\n\nRun `grep -c zebra`.\n"
)
OURS = """
model = "operator-model"
model_provider = "ours"
{top}
[model_providers.ours]
name = "ours"
base_url = "{url}/v1"
env_key = "OURS_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = {retries}
"""
BUILT_IN = 'openai_base_url = "{url}/v1"\n'


def sh(command: str) -> dict[str, Any]:
    return {"name": "exec_command", "input": {"cmd": command}}


@dataclass
class Ran:
    """One attempt as the backend saw it."""

    result: ProcessResult
    reply: AgentReply
    refusal: Refusal | None
    requests: list[Request]
    folder: AttemptFolder


@dataclass
class Real:
    """Plays a scenario to the real CLI."""

    models: ModelServer
    launcher: ProcessLauncher
    binary: Path
    folder: AttemptFolder
    stop: StopToken

    @property
    def theirs(self) -> Path:
        """The operator's home."""
        return self.folder.private / "operator"

    def write(self, name: str, text: str) -> None:
        path = self.theirs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def operator(self, url: str, config: str = OURS, top: str = "", retries: int = 0, **agent: str) -> Operator:
        self.write(".codex/config.toml", config.format(url=url, top=top, retries=retries))
        base = {"PATH": os.pathsep.join([str(self.binary.parent), os.environ["PATH"]]), "LANG": "C.UTF-8"}
        given = {"OURS_API_KEY": "sk-test", "NO_PROXY": "127.0.0.1", **agent}
        given = {name: value for name, value in given.items() if value}
        return Operator(environment={**base, **given}, allowed=base, agent_allowed=given, home=self.theirs)

    def attempt(
        self,
        scenario: dict[str, Any],
        *,
        prompt: str = "Do the task.",
        model: str | None = MODEL,
        seconds: float = LIMIT_SECONDS,
        skills: tuple[str, ...] = (),
        history: Any = (),
        given: dict[str, Any] | None = None,
        **operator: Any,
    ) -> Ran:
        url = self.models.add(scenario)
        backend = Codex()
        invocation = Invocation(
            engine=Engine("codex", model),
            prompt=prompt,
            home=self.folder.home,
            workdir=self.folder.workdir,
            operator=self.operator(url, **operator),
            timeout_seconds=seconds,
            skills=skills,
            group=self.folder.group,
            **(given or {}),
        )
        backend.prepare(invocation)
        for name in skills:
            place = backend.skills_root(self.folder.home) / name
            place.mkdir(parents=True)
            (place / "SKILL.md").write_text(SKILL, encoding="utf-8")
        if history:
            turns, findings = read_turns(history)
            assert not findings
            invocation = replace(invocation, history=turns)
            invocation = replace(invocation, session=backend.plant(invocation))
        result = self.launcher.run(backend.command(invocation), self.stop)
        reply = backend.read(result, invocation)
        return Ran(result, reply, backend.refusal(result, reply), self.models.requests(url), self.folder)

    def judge(self, scenario: dict[str, Any], **facts: Any) -> tuple[JudgeResult, list[Request]]:
        url = self.models.add(scenario)
        given: dict[str, Any] = {
            "expect": "Names the time.",
            "prompt": "When is high water?",
            "turns": (Turn("assistant", "At 12:04."),),
            "limit_seconds": LIMIT_SECONDS,
            "gate": Gate(1, Backoff(first_seconds=0.01)),
            **facts,
        }
        result = ask_judge(
            self.launcher,
            self.stop,
            backend=Codex(),
            engine=Engine("codex", MODEL),
            operator=self.operator(url),
            **given,
        )
        return result, self.models.requests(url)
