"""The lines of a run: what is known of an attempt once its evidence is safe, its verdicts, and how the run ended.

A line stands for itself: whoever reads the log in any order and up to any point knows what has been paid for and
what is still to do. Bulky things (turns, stream, workdir) are not in the lines but in the attempt's evidence folder.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from caliper_pipeline.domain.prices import Price
from caliper_pipeline.domain.transcript import Usage


class Outcome(StrEnum):
    """What one attempt came to."""

    PASS = "pass"
    TASK_FAIL = "task_fail"
    CHEAT = "cheat"
    INFRA_ERROR = "infra_error"
    TIMEOUT = "timeout"
    JUDGE_ERROR = "judge_error"
    NOT_CHECKED = "not_checked"

    @property
    def usable(self) -> bool:
        """Counts in the denominator of the success rate."""
        return self in (Outcome.PASS, Outcome.TASK_FAIL, Outcome.CHEAT)

    @property
    def noise(self) -> bool:
        """The execution, not the agent, decided: reported apart, never scored."""
        return self in (Outcome.INFRA_ERROR, Outcome.TIMEOUT, Outcome.JUDGE_ERROR)

    @property
    def activation_usable(self) -> bool:
        """The transcript is whole, so what fired and what did not can be told."""
        return self not in (Outcome.INFRA_ERROR, Outcome.TIMEOUT)


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A `setup` or `cleanup` that exited nonzero or passed its limit."""

    type: ClassVar[str] = "hook_failure"
    task_id: str
    task_name: str
    attempt: int
    phase: str
    """`setup` or `cleanup`."""
    exit_code: int | None
    """`None`: it passed its limit."""
    output: str
    """Its last 4,000 characters."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt whose evidence is durable. Graded or not."""

    type: ClassVar[str] = "attempt"
    task_id: str
    task_name: str
    attempt: int
    """Counted from 1."""
    started_at: datetime
    ended_at: datetime
    agent_seconds: float
    """Inside the agent's invocations; waits between retries, hooks and judge are not in it."""
    setup_seconds: float | None = None
    exit_code: int | None = None
    """Of the agent's last invocation. `None`: it did not start."""
    timed_out: bool = False
    setup_error: str | None = None
    """`setup exited 3`: then no agent ran."""
    error: str | None = None
    """Why the agent gave nothing to grade, in the words of its CLI where it has some."""
    spoke: bool = True
    """A model was really called."""
    output: str = ""
    """The final answer, at most 32,768 characters."""
    usage: Usage | None = None
    model: str | None = None
    """The model that answered, as the stream tells it."""
    retries: int = 0
    """Invocations beyond the first."""
    turns: int = 0
    boundary: str = "none"
    """What kept the agent apart from the machine."""
    evidence: str = ""
    """Folder of the evidence, relative to the run's."""
    snapshot_files: int | None = None
    """Files kept of the workdir. `None`: no snapshot was made."""
    snapshot_left_out: int = 0
    """Files that the limits kept out of the snapshot."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """The judgement on one attempt. Regrading adds generations and never changes an older one."""

    type: ClassVar[str] = "verdict"
    task_id: str
    task_name: str
    attempt: int
    outcome: Outcome
    generation: int = 1
    graded_at: datetime | None = None
    activated: tuple[str, ...] | None = None
    """Installed skills that were brought into the context, sorted. `None`: could not be seen."""
    activation_passed: bool | None = None
    """`None`: not asserted, or nothing to judge it on."""
    builtin_activated: tuple[str, ...] | None = None
    cheat_evidence: tuple[str, ...] = ()
    assert_passed: bool | None = None
    assert_evidence: str | None = None
    """Last 500 characters of a failed assert, or why the attempt cannot be used."""
    autorater_passed: bool | None = None
    autorater_reasoning: str | None = None
    judge_seconds: float | None = None
    """`None`: the judge was not called."""
    judge_model: str | None = None
    judge_usage: Usage | None = None
    judge_retries: int = 0
    judge_backend: str | None = None
    """The judge that was asked. `None`: none was, or the line is older than this field."""
    judge_prompt_version: str | None = None
    """The question it was asked, which a regrading may put otherwise. `None`: as above."""


@dataclass(frozen=True, slots=True)
class AbortedRecord:
    """`--fail-fast` gave a task up: its later attempts were never started."""

    type: ClassVar[str] = "aborted"
    task_id: str
    task_name: str
    after_attempt: int


@dataclass(frozen=True, slots=True)
class ResumeRecord:
    """The run was taken up again, perhaps with a larger k."""

    type: ClassVar[str] = "resume"
    resumed_at: datetime
    k: int
    pid: int | None = None
    """The process that took it up."""
    dagster_run_id: str | None = None
    """The Dagster run that did. `None`: none did, or the line is older than this field."""


@dataclass(frozen=True, slots=True)
class EndRecord:
    """No more lines come, unless the run is resumed."""

    type: ClassVar[str] = "end"
    ended_at: datetime
    status: str
    """`completed`; `interrupted` by a person; `stopped` by a condition that made going on pointless."""
    reason: str | None = None
    results: str | None = None
    """The results file, relative to the store's root."""


Line = AttemptRecord | VerdictRecord | HookFailure | AbortedRecord | ResumeRecord | EndRecord
LINE_TYPES: dict[str, type[Line]] = {
    kind.type: kind for kind in (AttemptRecord, VerdictRecord, HookFailure, AbortedRecord, ResumeRecord, EndRecord)
}


@dataclass(frozen=True, slots=True)
class TaskHeader:
    """One task as it was when the run began."""

    task_id: str
    name: str
    key: str
    """Its partition key."""
    prompt: str
    expect: str | None = None
    assert_script: str | None = None
    """The Python text, also when the spec names a file."""
    assert_path: str | None = None
    activates: tuple[str, ...] | None = None
    setup: str | None = None
    cleanup: str | None = None
    history: str | None = None
    """The planted history's text."""
    digests: dict[str, str] = field(default_factory=dict)
    """sha256 of `prompt`, `expect`, `assert`, `setup`, `cleanup`, `history`, `activates`; only those present."""


@dataclass(frozen=True, slots=True)
class SkillHeader:
    """One skill as it was declared when the run began."""

    name: str
    path: str
    source_kind: str
    digest: str
    installed: bool
    """False: removed by `--ablate`."""
    description: str | None = None
    git_repo: str | None = None
    git_sha: str | None = None
    git_dirty: bool | None = None
    files: dict[str, str] = field(default_factory=dict)
    """path → `sha256:…`. The bytes are in the run's `skills/` folder."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Everything that went into a run. Written before anything is paid for."""

    run_id: str
    spec: str
    spec_path: str
    """Absolute."""
    spec_text: str
    spec_digest: str
    """sha256 of the spec file's bytes."""
    backend: str
    model: str | None
    """As requested."""
    ablated: tuple[str, ...]
    isolated: bool
    series_key: str
    k: int
    workers: int
    timeout_seconds: float
    fail_fast: int | None
    started_at: datetime
    tasks: tuple[TaskHeader, ...]
    skills: tuple[SkillHeader, ...]
    judge_backend: str | None = None
    """`None`: no task has `expect`."""
    judge_model: str | None = None
    judge_prompt_version: str | None = None
    mcp_servers: tuple[str, ...] = ()
    """Declared servers left after ablation."""
    forbidden_files: tuple[str, ...] = ()
    loaded_user_customizations: tuple[str, ...] | None = None
    """Kind-prefixed names. `None`: isolated, or not known."""
    cli_version: str | None = None
    judge_cli_version: str | None = None
    product_version: str = ""
    python_version: str = ""
    host: str = ""
    platform: str = ""
    cpu_count: int | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    origin: str = "cli"
    """Who started it: `cli` or `dagster`."""
    dagster_run_id: str | None = None
    pid: int | None = None
    limits: dict[str, float] = field(default_factory=dict)
    prices: dict[str, Price] = field(default_factory=dict)
    """As stated for the models of this run when it began."""
    simulated: bool = False
    """A script played the agent: the figures say nothing about a real one."""
    schema: int = 1
