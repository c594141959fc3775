"""Questions to an open history whose answers are our own values; opens nothing itself."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from caliper_pipeline.domain.plain import from_plain
from caliper_pipeline.domain.prices import Price
from caliper_pipeline.domain.records import (
    AbortedRecord,
    AttemptRecord,
    HookFailure,
    Outcome,
    ResumeRecord,
    RunHeader,
    SkillHeader,
    TaskHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.transcript import Usage

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = dict[str, Any]
_DIGESTS = ("prompt", "expect", "assert", "setup", "cleanup", "history", "activates")


def rows(con: "DuckDBPyConnection", query: str, parameters: object = None) -> list[Row]:
    """The answer as dicts, in its order."""
    cursor = con.execute(query, parameters)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def history_dict(con: "DuckDBPyConnection") -> dict[str, Any]:
    """Everything in brief, runs sorted by instant: what other programs compare."""
    runs = con.execute(
        "SELECT run_id, spec, ended_utc, k, backend, coalesce(model, reported_model), era, score FROM runs "
        "ORDER BY coalesce(ended_utc, started_utc), run_id"
    ).fetchall()
    scores = con.execute("SELECT run_id, task_id, task_name, score FROM scores ORDER BY run_id, task_id").fetchall()
    attempts = con.execute(
        "SELECT a.run_id, a.task_id, v.outcome, a.output, a.agent_seconds, a.has_usage, a.input_tokens, "
        "a.output_tokens, a.cache_read_tokens, a.cache_creation_tokens "
        "FROM attempts a LEFT JOIN verdicts v ON v.run_id = a.run_id AND v.task_id = a.task_id "
        "AND v.attempt = a.attempt AND v.is_latest ORDER BY a.run_id, a.task_id, a.attempt"
    ).fetchall()
    by_task: dict[tuple[str, str], list[Row]] = {}
    for run_id, task_id, outcome, output, seconds, has_usage, *counts in attempts:
        by_task.setdefault((run_id, task_id), []).append(
            {
                "outcome": outcome,
                "output": output,
                "duration_seconds": seconds,
                "usage": _usage_dict(Usage(*counts)) if has_usage else None,
            }
        )
    by_run: dict[str, list[Row]] = {}
    for run_id, task_id, name, score in scores:
        task = {"name": name, "score": score, "attempts": by_task.get((run_id, task_id), [])}
        by_run.setdefault(run_id, []).append(task)
    return {
        "run_count": len(runs),
        "attempt_count": len(attempts),
        "runs": [
            {
                "spec": spec,
                "timestamp_utc": _utc_text(ended),
                "k": k,
                "backend": backend,
                "model": model,
                "era": era,
                "avg_score": score,
                "tasks": by_run.get(run_id, []),
                "run_id": run_id,
            }
            for run_id, spec, ended, k, backend, model, era, score in runs
        ],
    }


def read_header(con: "DuckDBPyConnection", run_id: str) -> RunHeader:
    """What went into a run, as `run.json` has it. KeyError when it is not there, or only an imported file."""
    found = rows(con, "SELECT * FROM runs WHERE run_id = $1 AND source = 'run_store'", [run_id])
    if not found:
        raise KeyError(run_id)
    (run,) = found
    texts = dict(con.execute("SELECT digest, text FROM texts").fetchall())
    return RunHeader(
        run_id=run["run_id"],
        spec=run["spec"],
        spec_path=run["spec_path"],
        spec_text=texts[run["spec_digest"]],
        spec_digest=run["spec_digest"],
        backend=run["backend"],
        model=run["model"],
        ablated=tuple(run["ablated"]),
        isolated=run["isolated"],
        series_key=run["series_key"],
        k=run["k"],
        workers=run["workers"],
        timeout_seconds=run["timeout_seconds"],
        fail_fast=run["fail_fast"],
        started_at=run["started_utc"].replace(tzinfo=UTC),
        tasks=tuple(
            _task(row, texts) for row in rows(con, "SELECT * FROM tasks WHERE run_id = $1 ORDER BY task_id", [run_id])
        ),
        skills=tuple(
            _skill(con, row) for row in rows(con, "SELECT * FROM skills WHERE run_id = $1 ORDER BY place", [run_id])
        ),
        judge_backend=run["judge_backend"],
        judge_model=run["judge_model"],
        judge_prompt_version=run["judge_prompt_version"],
        mcp_servers=tuple(run["mcp_servers"] or ()),
        forbidden_files=tuple(run["forbidden_files"] or ()),
        loaded_user_customizations=_names(run["loaded_user_customizations"]),
        cli_version=run["cli_version"],
        judge_cli_version=run["judge_cli_version"],
        product_version=run["product_version"],
        python_version=run["python_version"],
        host=run["host"],
        platform=run["platform"],
        cpu_count=run["cpu_count"],
        git_commit=run["git_commit"],
        git_dirty=run["git_dirty"],
        origin=run["origin"],
        dagster_run_id=run["dagster_run_id"],
        pid=run["pid"],
        limits=json.loads(run["limits"]),
        prices=from_plain(dict[str, Price], json.loads(run["prices"] or "{}")),
        simulated=run["simulated"],
        schema=run["header_schema"],
    )


def read_lines(
    con: "DuckDBPyConnection", run_id: str
) -> list[AttemptRecord | VerdictRecord | HookFailure | AbortedRecord | ResumeRecord]:
    """The attempts, verdicts, hook failures, given-up tasks and resumptions of a run from the store, as its log has
    them; seconds to the millisecond, and of long texts what the history keeps."""
    found: list[AttemptRecord | VerdictRecord | HookFailure | AbortedRecord | ResumeRecord] = []
    for table, make in (("attempts", _attempt), ("verdicts", _verdict), ("hook_failures", _hook_failure)):
        found += [make(row) for row in rows(con, f"SELECT * FROM {table} WHERE run_id = $1 ORDER BY rowid", [run_id])]
    aborted = rows(con, "SELECT * FROM tasks WHERE run_id = $1 AND aborted_after IS NOT NULL ORDER BY rowid", [run_id])
    found += [AbortedRecord(row["task_id"], row["task_name"], row["aborted_after"]) for row in aborted]
    for row in rows(con, "SELECT * FROM resumes WHERE run_id = $1 ORDER BY place", [run_id]):
        found.append(ResumeRecord(row["resumed_utc"].replace(tzinfo=UTC), row["k"], row["pid"], row["dagster_run_id"]))
    return found


def _task(row: Row, texts: dict[str, str]) -> TaskHeader:
    digests = {key: row[f"{key}_digest"] for key in _DIGESTS if row[f"{key}_digest"] is not None}
    found = {key: texts.get(digest) for key, digest in digests.items()}
    return TaskHeader(
        task_id=row["task_id"],
        name=row["task_name"],
        key=row["task_key"],
        prompt=found["prompt"] or "",
        expect=found.get("expect"),
        assert_script=found.get("assert"),
        assert_path=row["assert_path"],
        activates=_names(row["activates"]),
        setup=found.get("setup"),
        cleanup=found.get("cleanup"),
        history=found.get("history"),
        digests=digests,
    )


def _skill(con: "DuckDBPyConnection", row: Row) -> SkillHeader:
    files = con.execute("SELECT path, hash FROM skill_files WHERE digest = $1 ORDER BY rowid", [row["digest"]])
    return SkillHeader(
        name=row["skill"],
        path=row["path"],
        source_kind=row["source_kind"],
        digest=row["digest"],
        installed=row["installed"],
        description=row["description"],
        git_repo=row["git_repo"],
        git_sha=row["git_sha"],
        git_dirty=row["git_dirty"],
        files=dict(files.fetchall()),
    )


def _attempt(row: Row) -> AttemptRecord:
    return AttemptRecord(
        task_id=row["task_id"],
        task_name=row["task_name"],
        attempt=row["attempt"],
        started_at=row["started_utc"].replace(tzinfo=UTC),
        ended_at=row["ended_utc"].replace(tzinfo=UTC),
        agent_seconds=row["agent_seconds"],
        setup_seconds=row["setup_seconds"],
        exit_code=row["exit_code"],
        timed_out=row["timed_out"],
        setup_error=row["setup_error"],
        error=row["error"],
        spoke=row["spoke"],
        output=row["output"] or "",
        usage=_usage(row, ""),
        model=row["model"],
        retries=row["retries"],
        turns=row["turns"],
        boundary=row["boundary"],
        evidence=row["evidence"],
        snapshot_files=row["snapshot_files"],
        snapshot_left_out=row["snapshot_left_out"],
        warnings=tuple(row["warnings"]),
    )


def _verdict(row: Row) -> VerdictRecord:
    return VerdictRecord(
        task_id=row["task_id"],
        task_name=row["task_name"],
        attempt=row["attempt"],
        outcome=Outcome(row["outcome"]),
        generation=row["generation"],
        graded_at=None if row["graded_utc"] is None else row["graded_utc"].replace(tzinfo=UTC),
        activated=_names(row["activated"]),
        activation_passed=row["activation_passed"],
        builtin_activated=_names(row["builtin_activated"]),
        cheat_evidence=tuple(row["cheat_evidence"]),
        assert_passed=row["assert_passed"],
        assert_evidence=row["assert_evidence"],
        autorater_passed=row["autorater_passed"],
        autorater_reasoning=row["autorater_reasoning"],
        judge_seconds=row["judge_seconds"],
        judge_model=row["judge_model"],
        judge_usage=_usage(row, "judge_"),
        judge_retries=row["judge_retries"],
        judge_backend=row["judge_backend"],
        judge_prompt_version=row["judge_prompt_version"],
    )


def _hook_failure(row: Row) -> HookFailure:
    names = ("task_id", "task_name", "attempt", "phase", "exit_code", "output")
    return HookFailure(**{name: row[name] for name in names})


def _usage(row: Row, prefix: str) -> Usage | None:
    if not row[f"{prefix}has_usage"]:
        return None
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
    return Usage(*(row[prefix + name] for name in names))


def _usage_dict(usage: Usage) -> Row:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_creation_tokens": usage.cache_creation_tokens,
        "total_tokens": usage.total_tokens,
    }


def _names(value: list[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


def _utc_text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return f"{moment.isoformat()}Z"
