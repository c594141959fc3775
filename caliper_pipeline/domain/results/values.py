"""The values of a results file. Derived figures are made once, when a file is read or a run is assembled."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.records import HookFailure, Outcome
from caliper_pipeline.domain.scoring import RunScore, TaskScore
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.transcript import Usage

ERA = "install-and-discover"
"""Skills are installed and left for the agent to find. Files without a mark stem from an older way of loading."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known of the run as a whole. The first part is the reference's `run` object."""

    spec: str
    timestamp: datetime
    """When it ended."""
    k: int
    backend: str
    model: str | None = None
    """As asked for; where nothing was asked for, the one that most attempts report."""
    era: str | None = None
    ablated: tuple[str, ...] = ()
    mcp_servers: tuple[str, ...] | None = None
    """`None`: not recorded."""
    user_customizations: bool = False
    loaded_user_customizations: tuple[str, ...] | None = None
    judge_backend: str | None = None
    judge_model: str | None = None
    judge_prompt_version: str | None = None
    cli_version: str | None = None
    judge_cli_version: str | None = None
    interrupted: bool = False
    hook_failures: tuple[HookFailure, ...] = ()

    run_id: str | None = None
    started_at: datetime | None = None
    simulated: bool = False
    requested_model: str | None = None
    reported_model: str | None = None
    """The model that most attempts name in their streams."""
    series_key: str | None = None
    workers: int | None = None
    timeout_seconds: float | None = None
    fail_fast: int | None = None
    boundary: str | None = None
    """What kept the agents apart from the machine; several are joined by `+`."""
    stop_reason: str | None = None
    """Why the run ended early, when a condition and not a person ended it."""
    spec_path: str | None = None
    spec_digest: str | None = None
    product_version: str | None = None
    host: str | None = None
    platform: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    origin: str | None = None
    dagster_run_id: str | None = None

    @property
    def engine(self) -> str:
        return self.backend if self.model is None else f"{self.backend}:{self.model}"

    @property
    def asked_model(self) -> str | None:
        """Files of other products have one field for what was asked and what was reported."""
        return self.model if self.run_id is None else self.requested_model

    @property
    def series(self) -> Series:
        return Series(self.spec, Engine(self.backend, self.asked_model), self.ablated, not self.user_customizations)

    @property
    def ablated_skills(self) -> tuple[str, ...]:
        return tuple(name for name in self.ablated if not name.startswith("mcp:"))


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    hash: str
    content: str | None = None
    """`None`: not text, or not kept."""


@dataclass(frozen=True, slots=True)
class SkillSnapshot:
    """One installed skill."""

    name: str
    path: str
    source_kind: str = "path"
    git_repo: str | None = None
    git_sha: str | None = None
    files: Mapping[str, SnapshotFile] = field(default_factory=dict)
    git_dirty: bool | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """One graded attempt."""

    attempt: int
    output: str
    duration_seconds: float
    outcome: Outcome
    hook_failures: tuple[HookFailure, ...] = ()
    usage: Usage | None = None
    cheat_evidence: tuple[str, ...] = ()
    activated: tuple[str, ...] | None = None
    activation_passed: bool | None = None
    builtin_activated: tuple[str, ...] | None = None
    assert_passed: bool | None = None
    assert_evidence: str | None = None
    autorater_passed: bool | None = None
    autorater_reasoning: str | None = None
    autorater_script: str | None = None
    judge_seconds: float | None = None
    retries: int = 0

    started_at: datetime | None = None
    ended_at: datetime | None = None
    model: str | None = None
    judge_model: str | None = None
    judge_usage: Usage | None = None
    generation: int = 1
    """Of the verdict; regrading makes higher ones."""
    boundary: str | None = None
    evidence: str | None = None
    """Folder of the evidence, relative to the run's."""
    turns: int | None = None
    """Length of the transcript. `None`: none was kept."""
    tool_calls: Mapping[str, int] = field(default_factory=dict)
    """Calls per tool, as far as the file's transcript tells."""
    warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASS

    @property
    def cheated(self) -> bool:
        return self.outcome is Outcome.CHEAT


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task with its graded attempts, sorted by number, and what they come to."""

    task_id: str
    task_name: str
    attempts: tuple[AttemptResult, ...]
    scored: TaskScore
    activation_expected: tuple[str, ...] | None = None
    expect: str | None = None
    prompt: str | None = None

    key: str | None = None
    """Its partition key."""
    checks: tuple[str, ...] | None = None
    """Of `assert` and `expect` those it has. `None`: not recorded."""
    aborted: bool = False
    """`--fail-fast` gave it up before all its attempts had run."""
    ungraded: int = 0
    """Attempts that ran and await their verdict."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the task's texts by their key in the spec."""


@dataclass(frozen=True, slots=True)
class Results:
    run: RunInfo
    skill_snapshots: tuple[SkillSnapshot, ...]
    task_results: tuple[TaskResult, ...]
    """Sorted by id."""
    aggregate: RunScore

    @property
    def skill_names(self) -> tuple[str, ...]:
        return tuple(snapshot.name for snapshot in self.skill_snapshots)

    @property
    def probes_only(self) -> bool:
        """Nothing but activation was asked."""
        return bool(self.task_results) and all(task.scored.trigger_only for task in self.task_results)

    @property
    def simulated(self) -> bool:
        return self.run.simulated
