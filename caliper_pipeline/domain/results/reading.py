"""Results from plain data, of any version from 0.4 to 0.21 of the reference product and of ours.

Keys that are not known are passed over, optional ones that are missing take their default, and what can be derived
from the attempts is derived again, so that a figure edited by hand changes nothing. A number that cannot be (a
negative count, a rate above 1, NaN) makes the file unreadable. In 0.4 there was one skill, without a name, and the
headline had another name; its baseline is a control run without attempts of its own and is passed over.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from caliper_pipeline.domain.plain import utc_time
from caliper_pipeline.domain.records import HookFailure, Outcome
from caliper_pipeline.domain.results.values import (
    AttemptResult,
    Results,
    RunInfo,
    SkillSnapshot,
    SnapshotFile,
    TaskResult,
)
from caliper_pipeline.domain.scoring import combine, score_task
from caliper_pipeline.domain.transcript import Usage

T = TypeVar("T")

_LARGEST = 1e18
"""No count and no time comes near it; NaN and infinity do not stay below it."""
_RATES = ("avg_score", "avg_pass_at_k", "avg_activation_score")
_COUNTS = ("scored_tasks", "activation_tasks", "activation_asserted")
_SKILL_RATES = ("recall", "precision", "unwanted_rate")
_SKILL_COUNTS = ("total", "expected", "fired", "hits", "opportunities", "unwanted")


def parse_results(data: object) -> Results:
    """The results in a file's JSON. ValueError names the key that does not fit."""
    top = _Object(data, "")
    run = top.child("run")
    _check_aggregate(top)
    snapshots = [_snapshot(item) for item in top.children("skill_snapshots")]
    if not snapshots and top.get("skill_snapshot") is not None:
        snapshots = [_snapshot(top.child("skill_snapshot"))]
    tasks = sorted((_task(item) for item in top.children("task_results", required=True)), key=lambda t: t.task_id)
    return Results(
        run=_run(run, {task.task_id: task.task_name for task in tasks}),
        skill_snapshots=tuple(snapshots),
        task_results=tuple(tasks),
        aggregate=combine([(task.scored, task.attempts) for task in tasks], [item.name for item in snapshots]),
    )


def _run(item: "_Object", names: Mapping[str, str]) -> RunInfo:
    loaded = item.names("loaded_user_customizations")
    servers = item.names("mcp_servers")
    return RunInfo(
        spec=item.text("spec"),
        timestamp=item.needed(item.moment("timestamp"), "timestamp"),
        k=item.integer("k", minimum=1),
        backend=item.text("backend"),
        model=item.text_or_none("model"),
        era=item.text_or_none("era"),
        ablated=tuple(sorted(set(item.names("ablated") or ()))),
        mcp_servers=servers,
        user_customizations=item.flag("user_customizations"),
        loaded_user_customizations=None if loaded is None else tuple(sorted(set(loaded))),
        judge_backend=item.text_or_none("judge_backend"),
        judge_model=item.text_or_none("judge_model"),
        judge_prompt_version=item.text_or_none("judge_prompt_version"),
        cli_version=item.text_or_none("cli_version"),
        judge_cli_version=item.text_or_none("judge_cli_version"),
        interrupted=item.flag("interrupted"),
        hook_failures=_hook_failures(item, names),
        run_id=item.text_or_none("run_id"),
        started_at=item.moment("started_at"),
        simulated=item.flag("simulated"),
        requested_model=item.text_or_none("requested_model"),
        reported_model=item.text_or_none("reported_model"),
        series_key=item.text_or_none("series_key"),
        workers=item.integer_or_none("workers"),
        timeout_seconds=item.number_or_none("timeout_seconds"),
        fail_fast=item.integer_or_none("fail_fast"),
        boundary=item.text_or_none("boundary"),
        stop_reason=item.text_or_none("stop_reason"),
        spec_path=item.text_or_none("spec_path"),
        spec_digest=item.text_or_none("spec_digest"),
        product_version=item.text_or_none("product_version"),
        host=item.text_or_none("host"),
        platform=item.text_or_none("platform"),
        git_commit=item.text_or_none("git_commit"),
        git_dirty=item.flag_or_none("git_dirty"),
        origin=item.text_or_none("origin"),
        dagster_run_id=item.text_or_none("dagster_run_id"),
    )


def _snapshot(item: "_Object") -> SkillSnapshot:
    path = item.text("path")
    files = item.child("files") if item.get("files") is not None else _Object({}, "")
    entries = {name: files.child(name) for name in files.data}
    return SkillSnapshot(
        name=item.text_or_none("name") or _folder_of(path),
        path=path,
        source_kind=item.text_or_none("source_kind") or "path",
        git_repo=item.text_or_none("git_repo"),
        git_sha=item.text_or_none("git_sha"),
        files={name: SnapshotFile(file.text("hash"), file.text_or_none("content")) for name, file in entries.items()},
        git_dirty=item.flag_or_none("git_dirty"),
        description=item.text_or_none("description"),
    )


def _task(item: "_Object") -> TaskResult:
    task_id, name = item.text("task_id"), item.text("task_name")
    expected = item.names("activation_expected")
    checks = item.names("checks")
    attempts = sorted((_attempt(entry, name) for entry in item.children("attempts", required=True)), key=_number)
    return TaskResult(
        task_id=task_id,
        task_name=name,
        attempts=tuple(attempts),
        scored=score_task(task_id, name, attempts, expected, checked=None if checks is None else bool(checks)),
        activation_expected=expected,
        expect=item.text_or_none("expect"),
        prompt=item.text_or_none("prompt"),
        key=item.text_or_none("key"),
        checks=checks,
        aborted=item.flag("aborted"),
        ungraded=item.integer_or_none("ungraded") or 0,
        digests={key: str(value) for key, value in item.mapping("digests").items()},
    )


def _attempt(item: "_Object", task_name: str) -> AttemptResult:
    transcript = item.get("transcript")
    turns = len(transcript) if isinstance(transcript, list) else item.integer_or_none("turns")
    return AttemptResult(
        attempt=item.integer("attempt"),
        output=item.text("output"),
        duration_seconds=item.needed(item.number_or_none("duration_seconds"), "duration_seconds"),
        outcome=_outcome(item),
        hook_failures=_hook_failures(item, {}, task_name),
        usage=_usage(item, "usage"),
        cheat_evidence=item.names("cheat_evidence") or (),
        activated=item.names("activated"),
        activation_passed=item.flag_or_none("activation_passed"),
        builtin_activated=item.names("builtin_activated"),
        assert_passed=item.flag_or_none("assert_passed"),
        assert_evidence=item.text_or_none("assert_evidence"),
        autorater_passed=item.flag_or_none("autorater_passed"),
        autorater_reasoning=item.text_or_none("autorater_reasoning"),
        autorater_script=item.text_or_none("autorater_script"),
        judge_seconds=item.number_or_none("judge_seconds"),
        retries=item.integer_or_none("retries") or 0,
        started_at=item.moment("started_at"),
        ended_at=item.moment("ended_at"),
        model=item.text_or_none("model"),
        judge_model=item.text_or_none("judge_model"),
        judge_usage=_usage(item, "judge_usage"),
        generation=item.integer_or_none("generation") or 1,
        boundary=item.text_or_none("boundary"),
        evidence=item.text_or_none("evidence"),
        turns=turns,
        tool_calls=_tool_calls(transcript),
        warnings=item.names("warnings") or (),
    )


def _number(attempt: AttemptResult) -> int:
    return attempt.attempt


def _outcome(item: "_Object") -> Outcome:
    value = item.text("outcome")
    try:
        return Outcome(value)
    except ValueError:
        known = ", ".join(outcome.value for outcome in Outcome)
        raise ValueError(f"{item.place('outcome')}: {value!r} is none of {known}") from None


def _hook_failures(item: "_Object", names: Mapping[str, str], task_name: str = "") -> tuple[HookFailure, ...]:
    found = []
    for entry in item.children("hook_failures"):
        task_id = entry.text("task_id")
        timed_out = entry.flag("timed_out")
        found.append(
            HookFailure(
                task_id=task_id,
                task_name=names.get(task_id, task_name),
                attempt=entry.integer("attempt"),
                phase=entry.text("phase"),
                exit_code=None if timed_out else entry.integer_or_none("exit_code", minimum=None),
                output=entry.text_or_none("output") or "",
            )
        )
    return tuple(found)


def _usage(item: "_Object", key: str) -> Usage | None:
    if item.get(key) is None:
        return None
    usage = item.child(key)
    return Usage(
        usage.integer_or_none("input_tokens"),
        usage.integer_or_none("output_tokens"),
        usage.integer_or_none("cache_read_tokens"),
        usage.integer_or_none("cache_creation_tokens"),
    )


def _tool_calls(transcript: object) -> Mapping[str, int]:
    if not isinstance(transcript, list):
        return {}
    calls = [turn for turn in transcript if isinstance(turn, dict) and turn.get("role") == "tool_use"]
    return dict(Counter(name for turn in calls if isinstance(name := turn.get("tool_name"), str)))


def _check_aggregate(top: "_Object") -> None:
    """Nothing in it is taken over, but a file with such numbers in it is not what it says it is."""
    if top.get("aggregate") is None:
        return
    aggregate = top.child("aggregate")
    _check_numbers(aggregate, _RATES, _COUNTS)
    for task in aggregate.children("per_task"):
        _check_numbers(task, ("score",), ("k", "successes"))
    for skill in aggregate.children("activation_per_skill"):
        _check_numbers(skill, _SKILL_RATES, _SKILL_COUNTS)


def _check_numbers(item: "_Object", rates: Sequence[str], counts: Sequence[str]) -> None:
    for key in rates:
        value = item.number_or_none(key)
        if value is not None and value > 1:
            raise ValueError(f"{item.place(key)}: a rate between 0 and 1 is needed, not {value}")
    for key in counts:
        item.integer_or_none(key)


def _folder_of(path: str) -> str:
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    return parts[-2] if len(parts) > 1 else path


class _Object:
    """One JSON object that knows its place in the file, so that an error can name the key."""

    __slots__ = ("data", "where")

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise ValueError(f"{where or 'the file'}: an object is needed, not {_kind(data)}")
        self.data: dict[str, Any] = data
        self.where = where

    def place(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str) -> Any:
        return self.data.get(key)

    def needed(self, value: T | None, key: str) -> T:
        if value is None:
            raise ValueError(f"{self.place(key)}: is missing")
        return value

    def child(self, key: str) -> "_Object":
        return _Object(self.needed(self.get(key), key), self.place(key))

    def children(self, key: str, *, required: bool = False) -> list["_Object"]:
        value = self.get(key)
        if value is None and not required:
            return []
        items = self._list(self.needed(value, key), key)
        return [_Object(item, f"{self.place(key)}[{index}]") for index, item in enumerate(items)]

    def mapping(self, key: str) -> Mapping[str, Any]:
        return {} if self.get(key) is None else self.child(key).data

    def names(self, key: str) -> tuple[str, ...] | None:
        value = self.get(key)
        if value is None:
            return None
        items = self._list(value, key)
        for item in items:
            if not isinstance(item, str):
                raise ValueError(f"{self.place(key)}: a list of texts is needed; it holds {_kind(item)}")
        return tuple(items)

    def text(self, key: str) -> str:
        return self.needed(self.text_or_none(key), key)

    def text_or_none(self, key: str) -> str | None:
        return self._of(key, str, "a text")

    def flag(self, key: str) -> bool:
        return self.flag_or_none(key) or False

    def flag_or_none(self, key: str) -> bool | None:
        return self._of(key, bool, "true or false")

    def integer(self, key: str, *, minimum: int = 0) -> int:
        return self.needed(self.integer_or_none(key, minimum=minimum), key)

    def integer_or_none(self, key: str, *, minimum: int | None = 0) -> int | None:
        value = self._number(key, minimum)
        if value is None:
            return None
        if value != int(value):
            raise ValueError(f"{self.place(key)}: a whole number is needed, not {value}")
        return int(value)

    def number_or_none(self, key: str) -> float | None:
        value = self._number(key, 0)
        return None if value is None else float(value)

    def moment(self, key: str) -> datetime | None:
        value = self.text_or_none(key)
        if value is None:
            return None
        try:
            return utc_time(value)
        except (ValueError, OverflowError):
            raise ValueError(f"{self.place(key)}: a time like 2026-11-20T10:00:00Z is needed, not {value!r}") from None

    def _number(self, key: str, minimum: int | None) -> int | float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.place(key)}: a number is needed, not {_kind(value)}")
        if not -_LARGEST < value < _LARGEST:
            raise ValueError(f"{self.place(key)}: a finite number is needed, not {str(value)[:40]}")
        if minimum is not None and value < minimum:
            raise ValueError(f"{self.place(key)}: a number of at least {minimum} is needed, not {value}")
        return value

    def _of(self, key: str, kind: type[T], words: str) -> T | None:
        value = self.get(key)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{self.place(key)}: {words} is needed, not {_kind(value)}")
        return value

    def _list(self, value: object, key: str) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{self.place(key)}: a list is needed, not {_kind(value)}")
        return value


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
