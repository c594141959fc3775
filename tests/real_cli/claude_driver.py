"""Drives the real Claude Code CLI through the backend, against a model that plays scenarios."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_server import ModelServer, Request

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.transcript import AgentReply, Turn
from caliper_pipeline.execution.backends.base import Invocation, Operator, Refusal
from caliper_pipeline.execution.backends.claude_code import ClaudeCode
from caliper_pipeline.execution.command import ProcessResult, StopToken
from caliper_pipeline.execution.judge.autorater import JudgeResult, ask_judge
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.throttle import Backoff, Gate
from caliper_pipeline.execution.workdir import AttemptFolder, make_attempt_folder

LIMIT_SECONDS = 60.0
SKILL = (
    "---\nname: zebra-counter\ndescription: Counts zebras. Use when asked about zebras.\n---\n\nRun `grep -c zebra`.\n"
)


@dataclass
class Ran:
    """One attempt as the backend saw it."""

    result: ProcessResult
    reply: AgentReply
    refusal: Refusal | None
    requests: list[Request]
    folder: AttemptFolder

    @property
    def init(self) -> dict[str, Any]:
        """What the CLI says it has loaded."""
        events = (json.loads(line) for line in self.result.stdout.splitlines() if line.startswith(b"{"))
        return next(event for event in events if event.get("subtype") == "init")


@dataclass
class Real:
    """Plays a scenario to the real CLI."""

    models: ModelServer
    launcher: ProcessLauncher
    claude_folder: Path
    folder: AttemptFolder
    stop: StopToken

    def operator(self, url: str, **agent: str) -> Operator:
        path = os.pathsep.join([str(self.claude_folder), os.environ["PATH"]])
        base = {"PATH": path, "LANG": "C.UTF-8"}
        given = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "NO_PROXY": "127.0.0.1",
            **agent,
        }
        given = {name: value for name, value in given.items() if value}
        self.theirs.mkdir(exist_ok=True)
        return Operator(environment={**base, **given}, allowed=base, agent_allowed=given, home=self.theirs)

    @property
    def theirs(self) -> Path:
        """The operator's home."""
        return self.folder.private / "operator"

    def customize(self) -> None:
        skill = self.theirs / ".claude" / "skills" / "own-skill"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: x\ndescription: Does their thing.\n---\n\nDo.\n", encoding="utf-8")
        (self.theirs / ".claude" / "CLAUDE.md").write_text("OPERATOR RULES", encoding="utf-8")
        settings = '{"model": "operator-model", "enabledPlugins": {"a@b": true}}'
        (self.theirs / ".claude" / "settings.json").write_text(settings, encoding="utf-8")
        servers = '{"mcpServers": {"theirs": {"command": "false"}}, "userID": "u"}'
        (self.theirs / ".claude.json").write_text(servers, encoding="utf-8")

    def attempt(
        self,
        scenario: dict[str, Any],
        *,
        prompt: str = "Do the task.",
        model: str | None = None,
        seconds: float = LIMIT_SECONDS,
        skill: bool = False,
        isolated: bool = True,
        agent: dict[str, str] | None = None,
        operator: Operator | None = None,
        **facts: Any,
    ) -> Ran:
        """`agent` reaches the CLI's environment; `facts` are of the invocation."""
        url = self.models.add(scenario)
        backend = ClaudeCode()
        given = Invocation(
            engine=Engine("claude-code", model),
            prompt=prompt,
            home=self.folder.home,
            workdir=self.folder.workdir,
            operator=operator or self.operator(url, **(agent or {})),
            timeout_seconds=seconds,
            isolated=isolated,
            group=self.folder.group,
            skills=("zebra-counter",) if skill else (),
            **facts,
        )
        backend.prepare(given)
        if skill:
            place = backend.skills_root(self.folder.home) / "zebra-counter"
            place.mkdir(parents=True)
            (place / "SKILL.md").write_text(SKILL, encoding="utf-8")
        if given.history:
            given = replace(given, session=backend.plant(given))
        result = self.launcher.run(backend.command(given), self.stop)
        reply = backend.read(result, given)
        return Ran(result, reply, backend.refusal(result, reply), self.models.requests(url), self.folder)

    def judge(
        self, scenario: dict[str, Any], *, agent: dict[str, str] | None = None, **facts: Any
    ) -> tuple[JudgeResult, list[Request]]:
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
            backend=ClaudeCode(),
            engine=Engine("claude-code"),
            operator=self.operator(url, **(agent or {})),
            **given,
        )
        return result, self.models.requests(url)


@contextlib.contextmanager
def driven(models: ModelServer, launcher: ProcessLauncher, claude_folder: Path) -> Iterator[Real]:
    stop = StopToken()
    with make_attempt_folder() as folder:
        yield Real(models, launcher, claude_folder, folder, stop)
        launcher.end_group(folder.group)
    stop.close()
