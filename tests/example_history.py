"""A small history that the documents show and tests ask: six nights of one spec, and a rehearsal. Always the same.

The story: the skill of `inbox-triage` is edited after the first night and its spec after the second; in the fourth a
new CLI brings a new model, and `Drafts a reply` passes no more. Now and then a control runs, and another engine.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.plain import to_plain
from caliper_pipeline.domain.prices import Price
from caliper_pipeline.domain.records import (
    AttemptRecord,
    EndRecord,
    Line,
    Outcome,
    RunHeader,
    SkillHeader,
    TaskHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.storage.files import json_bytes
from caliper_pipeline.storage.records import Acknowledgement, Alert, Label, Records
from caliper_pipeline.storage.run_log import encode_line
from caliper_pipeline.storage.runs import RunStore

FIRST_NIGHT = datetime(2026, 11, 23, 1, tzinfo=UTC)
SKILL = "inbox-triage"
CLAUDE, CODEX, SCRIPT = Engine("claude-code", None), Engine("codex", "gpt-large"), Engine("scripted", None)
PRICES = {"sonnet-*": Price(3.0, 15.0, 0.3, 3.75)}
OUTCOMES = {
    "P": Outcome.PASS,
    "F": Outcome.TASK_FAIL,
    "T": Outcome.TIMEOUT,
    "I": Outcome.INFRA_ERROR,
    "J": Outcome.JUDGE_ERROR,
}
REASONS = {
    Outcome.TASK_FAIL: "AssertionError: reply.md is missing",
    Outcome.TIMEOUT: "passed its limit of 120 s",
    Outcome.INFRA_ERROR: "API Error: 529 overloaded",
    Outcome.JUDGE_ERROR: "the judge's answer could not be read",
}
TASKS = ("Flags urgent mail", "Drafts a reply", "Answers a plain question")
FULL = ("PPPPP PPPPP PPPPP", "PPPPF PPPPP PPPPP", "PPPFP PPPPP PPPPT", "PPFPP FFFFF PPPPP", "PPPFF FFFFF PPPPP")
NIGHTS: tuple[tuple[int, Engine, tuple[str, ...], str], ...] = (
    *((night, CLAUDE, (), outcomes) for night, outcomes in enumerate((*FULL, "PPPPF FFFIF PPPPP"), 1)),
    (2, CLAUDE, (SKILL,), "FFPFF FFFFF PPPPP"),
    (5, CLAUDE, (SKILL,), "FFFPF FFFFF PPPPP"),
    (3, CODEX, (), "PPFFP PPPPF PPPPP"),
    (6, CODEX, (), "PPFPF PPPPP PPPJP"),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a night's runs have in common."""

    night: int

    @property
    def skill_digest(self) -> str:
        return sha256(f"{SKILL} {1 if self.night < 2 else 2}")

    @property
    def edition(self) -> int:
        return 1 if self.night < 3 else 2

    @property
    def cli(self) -> str:
        return "2.1.0" if self.night < 4 else "2.2.0"

    @property
    def model(self) -> str:
        return "sonnet-5" if self.night < 4 else "sonnet-5.1"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def build(root: Path) -> RunStore:
    """Lays the runs and records under a root, as real ones leave them, without evidence."""
    store = RunStore(root)
    for night, engine, ablated, outcomes in NIGHTS:
        _write(store, *_run(night, engine, ablated, outcomes))
    _write(store, *_rehearsal())
    _add_records(Records(root), store)
    return store


def _run(night: int, engine: Engine, ablated: tuple[str, ...], outcomes: str) -> tuple[RunHeader, list[Line]]:
    setting, claude = Setting(night), engine == CLAUDE
    started = FIRST_NIGHT + timedelta(days=night - 1, hours=2 * (not claude) + bool(ablated))
    series = Series("inbox-triage", engine, ablated, True)
    tasks = tuple(_task(number, name, series, setting.edition) for number, name in enumerate(TASKS, 1))
    skill = SkillHeader(SKILL, f"/skills/{SKILL}/SKILL.md", "path", setting.skill_digest, not ablated)
    header = _header(series, started, tasks, (skill,), sha256(f"spec {setting.edition}"))
    header = replace(
        header,
        cli_version=setting.cli if claude else "0.90",
        judge_backend="claude-code",
        judge_model="haiku-5",
        judge_prompt_version="7c2e9d01a4b8",
        judge_cli_version=setting.cli,
        prices=PRICES,
    )
    model = setting.model if claude else "gpt-large-2026"
    seconds = 30.0 if claude else 42.0
    lines = list(_lines(header, outcomes.split(), model, seconds, bool(ablated)))
    return header, lines


def _rehearsal() -> tuple[RunHeader, list[Line]]:
    series = Series("release-notes", SCRIPT, (), True)
    task = _task(1, "Notes in the house format", series, 1)
    started = FIRST_NIGHT + timedelta(days=5, hours=8)
    header = _header(series, started, (replace(task, activates=None),), (), sha256("release-notes"))
    header = replace(header, simulated=True)
    return header, list(_lines(header, ["PPFPP"], "rehearsal", 0.4, True))


def _header(
    series: Series, started: datetime, tasks: tuple[TaskHeader, ...], skills: tuple[SkillHeader, ...], digest: str
) -> RunHeader:
    return RunHeader(
        run_id=f"{started:%Y%m%dT%H%M%S}000Z-{sha256(series.key + started.isoformat())[:6]}",
        spec=series.spec,
        spec_path=f"/home/ada/skills/{series.spec}.eval.yaml",
        spec_text=f"# {digest}\n",
        spec_digest=digest,
        backend=series.engine.backend,
        model=series.engine.model,
        ablated=series.ablated,
        isolated=series.isolated,
        series_key=series.key,
        k=5,
        workers=4,
        timeout_seconds=120.0,
        fail_fast=None,
        started_at=started,
        tasks=tasks,
        skills=skills,
        product_version="0.1.0",
        host="nightly-1",
    )


def _task(number: int, name: str, series: Series, edition: int) -> TaskHeader:
    expect = f"Does what {name!r} says" + (", politely." if edition == 2 and number == 2 else ".")
    texts = {"prompt": f"Please: {name}.", "expect": expect}
    return TaskHeader(
        task_id=f"task-{number:03d}",
        name=name,
        key=series.task_key(name),
        prompt=texts["prompt"],
        expect=expect,
        activates=(SKILL,) if number < 3 else (),
        digests={key: sha256(text) for key, text in texts.items()},
    )


def _lines(header: RunHeader, outcomes: Sequence[str], model: str, seconds: float, bare: bool) -> Iterator[Line]:
    moment = header.started_at
    for number in range(1, header.k + 1):
        for task, marks in zip(header.tasks, outcomes, strict=True):
            outcome = OUTCOMES[marks[number - 1]]
            took = 120.0 if outcome is Outcome.TIMEOUT else seconds + number
            ended, lost = moment + timedelta(seconds=took), outcome in (Outcome.TIMEOUT, Outcome.INFRA_ERROR)
            failed = outcome is not Outcome.PASS
            yield AttemptRecord(
                task_id=task.task_id,
                task_name=task.name,
                attempt=number,
                started_at=moment,
                ended_at=ended,
                agent_seconds=took,
                exit_code=None if lost else 0,
                timed_out=outcome is Outcome.TIMEOUT,
                error=REASONS[outcome] if lost else None,
                output="" if lost else "Done.",
                usage=None if outcome is Outcome.INFRA_ERROR else Usage(900 + number, 400, 12_000, 3_000),
                model=model,
                turns=8,
                boundary="landlock",
            )
            fired = (SKILL,) if not bare and (task.activates or (number == 5 and header.started_at.day > 26)) else ()
            judged = outcome is not Outcome.TASK_FAIL and not lost
            yield VerdictRecord(
                task_id=task.task_id,
                task_name=task.name,
                attempt=number,
                outcome=outcome,
                graded_at=ended + timedelta(seconds=4),
                activated=None if lost else fired,
                activation_passed=None if lost or bare or task.activates is None else fired == task.activates,
                assert_passed=None if lost else outcome is not Outcome.TASK_FAIL,
                assert_evidence=REASONS[outcome] if failed and not lost else None,
                autorater_passed=True if outcome is Outcome.PASS else None,
                autorater_reasoning="It does what was asked." if outcome is Outcome.PASS else None,
                judge_seconds=4.0 if judged else None,
                judge_usage=Usage(2_000, 60, None, None) if judged else None,
            )
            moment += timedelta(seconds=10)
    yield EndRecord(moment + timedelta(minutes=2), "completed")


def _write(store: RunStore, header: RunHeader, lines: Sequence[Line]) -> None:
    folder = store.path / header.run_id
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(json_bytes(to_plain(header), indent=1))
    (folder / "attempts.jsonl").write_bytes(b"".join(map(encode_line, lines)))
    (folder / "lock").touch()


def _add_records(records: Records, store: RunStore) -> None:
    ids = {run_id[:8]: run_id for run_id in reversed(store.run_ids()) if run_id[9:11] == "01"}
    series = Series("inbox-triage", CLAUDE, (), True).key
    raised = FIRST_NIGHT + timedelta(days=3, minutes=20)
    regression = Alert(
        key=f"regression/{series}/Drafts a reply/{ids['20261126']}",
        kind="regression",
        raised_at=raised,
        message="Drafts a reply: 0 of 5, 15 of 15 before",
        series_key=series,
        spec="inbox-triage",
        task_name="Drafts a reply",
        run_id=ids["20261126"],
    )
    drift = Alert(
        key=f"drift/{series}/{ids['20261126']}",
        kind="drift",
        raised_at=raised,
        message="model: sonnet-5 became sonnet-5.1",
        series_key=series,
        spec="inbox-triage",
        run_id=ids["20261126"],
    )
    for alert in (regression, drift):
        records.append(alert)
    moment = raised + timedelta(hours=7)
    records.append(Acknowledgement("kim", moment, alert_key=drift.key, reason="new CLI, meant", new_baseline=True))
    for number, passed in ((1, False), (2, True)):
        records.append(Label(ids["20261126"], "task-002", "Drafts a reply", number, passed, "kim", moment))
