"""What every backend offers. A backend finds its command, prepares an isolated home, says what to start, and reads
what came back; it starts nothing itself, decides no outcome and keeps no state between attempts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.planted import PlantedTurn
from caliper_pipeline.domain.transcript import AgentReply, Usage
from caliper_pipeline.execution.command import Command, ProcessResult


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can honour; a spec that needs more is refused before the first attempt."""

    mcp: bool = False
    history: bool = False
    user_customizations: bool = False
    judge: bool = True
    limits_tokens: bool = False
    """It ends an attempt by itself that used more than `Invocation.max_tokens`."""
    token_counter: Callable[[bytes], int] | None = None
    """Tokens that the output so far tells of, where it tells while the agent works."""
    why_not: Mapping[str, str] = field(default_factory=dict)
    """Field name → why it cannot be honoured and what would, for the message of the refusal."""


@dataclass(frozen=True, slots=True)
class Server:
    """A declared MCP server, ready for an attempt: variables filled in, relative paths anchored. Holds secrets: it is
    written into files of the attempt's home that only its owner can read, never into arguments or evidence."""

    name: str
    kind: str
    """`stdio`, `http` or `sse`."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operator:
    """The machine of the person who runs the evaluation, as far as backends may look at it."""

    environment: Mapping[str, str]
    """The operator's whole environment; only what a backend picks from it crosses into an attempt."""
    allowed: Mapping[str, str]
    """What every step may see: the base allow-list plus what caliper.yaml lets through, without `HOME`."""
    agent_allowed: Mapping[str, str]
    """What agents and judges may see besides (logins by key, cloud providers)."""
    home: Path


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What was found before the first attempt."""

    binary: str | None = None
    version: str | None = None
    capabilities: Capabilities | None = None
    """Where the installed version decides them. `None`: those of the backend."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One agent call in the home and workdir of its attempt."""

    engine: Engine
    prompt: str
    home: Path
    workdir: Path
    operator: Operator
    timeout_seconds: float
    isolated: bool = True
    extra_path: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    """Names of the installed skills; their files are already in place."""
    task_name: str = ""
    attempt: int = 1
    retry: int = 0
    ablated: tuple[str, ...] = ()
    spec_path: Path | None = None
    """For the scripted agent alone, which finds its script beside the spec."""
    group: str = ""
    servers: tuple[Server, ...] = ()
    """Declared servers that were not ablated."""
    declared_servers: tuple[str, ...] | None = None
    """All that the spec declares, ablated ones too: a name among them is never the operator's own server. `None`: the
    spec says nothing of servers; an empty `mcp:` still keeps the operator's out when isolated."""
    history: tuple[PlantedTurn, ...] = ()
    """The conversation to take up, oldest turn first."""
    session: str = ""
    """What `Backend.plant` gave for `history`."""
    max_tokens: int | None = None
    """A backend that can ends the attempt when it used more."""


@dataclass(frozen=True, slots=True)
class JudgeInvocation:
    """One question to a judge: an empty home and folder of its own, no tools."""

    engine: Engine
    prompt: str
    home: Path
    workdir: Path
    operator: Operator
    timeout_seconds: float
    system: str = ""
    """A role for the judge, where the CLI can set one; the prompt says all that is needed without it."""
    group: str = ""
    task_name: str = ""
    attempt: int = 1
    retry: int = 0
    """How often this question was asked before."""
    ablated: tuple[str, ...] = ()
    spec_path: Path | None = None
    """These five are for the scripted judge alone, which looks its answer up."""


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    text: str = ""
    model: str | None = None
    usage: Usage | None = None
    cli_error: str | None = None
    error_status: int | None = None
    too_long: bool = False
    """The prompt was refused for its length: a shorter one may be answered."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the CLI (never the agent) did not serve the call."""

    kind: str
    """`cap`, `throttle`, `login`, `model`, `option`, `configuration`."""
    text: str
    """The line that tells, at most 300 characters."""
    retry_after_seconds: float | None = None
    """What the service asked to wait, where the CLI tells."""

    @property
    def fatal(self) -> bool:
        """Every further attempt would meet the same: the run stops and keeps what it has."""
        return self.kind != "throttle"


class Backend(Protocol):
    name: str
    capabilities: Capabilities

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        """Find the command and its version. Raises `MissingCli` or another `CannotRun`."""
        ...

    def skills_root(self, home: Path) -> Path:
        """Where this agent looks for skills, inside an attempt's home."""
        ...

    def prepare(self, invocation: Invocation) -> None:
        """Put login, settings and servers into the attempt's home, before the skills are installed."""
        ...

    def plant(self, invocation: Invocation) -> str:
        """Write `history` as a session of this CLI and give what `command` resumes it by. Called for every spawn,
        after the skills are installed: what an earlier spawn appended must not be taken up."""
        ...

    def command(self, invocation: Invocation) -> Command: ...

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        """What to run after a spawn whose output is incomplete, so that its session is not lost. Its standard output
        is appended to the spawn's. `None`: nothing."""
        ...

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        """The reply in the output; with the invocation, session files in its home may be looked at besides. Never
        raises: what it cannot read it leaves out and counts."""
        ...

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        """Whether the CLI itself refused, from its own words and codes."""
        ...

    def prepare_judge(self, invocation: JudgeInvocation) -> None: ...

    def judge_command(self, invocation: JudgeInvocation) -> Command: ...

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer: ...

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None: ...

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        """The `CannotRun` that a fatal refusal ends the run with, with its remedy."""
        ...

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        """Kind-prefixed names of the operator's customizations that an attempt loads when it is not isolated;
        declared skills and servers win over namesakes. `None`: it cannot tell."""
        ...

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        """What a person runs to log in. `None`: there is no such command."""
        ...
