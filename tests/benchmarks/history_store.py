"""A run store of years, made up: the folders and lines that real runs leave, without evidence. Always the same.

    python tests/benchmarks/history_store.py FOLDER [--runs 20000] [--tasks 10] [--k 5]

Forty specs, each with three series (two engines, and a control without its skill), night after night. Answers and the
judges' reasons are made of words with the frequencies of English, so that they compress about as English does; spec and
skill change every few weeks. Lines are written without being forced to the disk: what is measured comes later.
"""

import argparse
import hashlib
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.plain import to_plain
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
from caliper_pipeline.storage.run_log import encode_line

SPECS, FIRST_NIGHT = 40, datetime(2024, 1, 1, 1, tzinfo=UTC)
ARMS: tuple[tuple[Engine, tuple[str, ...]], ...] = (
    (Engine("claude-code", None), ()),
    (Engine("codex", "gpt-large"), ()),
    (Engine("claude-code", None), ("guide",)),
)
OUTCOMES = (Outcome.PASS, Outcome.TASK_FAIL, Outcome.TIMEOUT, Outcome.INFRA_ERROR, Outcome.JUDGE_ERROR)


@cache
def vocabulary() -> tuple[list[str], list[float]]:
    """Made-up words and how often each comes, cumulated (Zipf)."""
    chance = random.Random(7)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "er", "an", "st")]
    words = ["".join(chance.choices(syllables, k=1 + n % 4)) for n in range(6000)]
    return words, list(accumulate(1 / (n + 2) for n in range(len(words))))


def prose(chance: random.Random, words: int) -> str:
    known, weights = vocabulary()
    return " ".join(chance.choices(known, cum_weights=weights, k=words))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def parts_of(spec: int, edition: int, tasks: int) -> tuple[str, tuple[TaskHeader, ...], tuple[SkillHeader, ...]]:
    """Text, tasks and skills of a spec, as they were for some weeks."""
    chance = random.Random(spec * 1000 + edition)
    headers = []
    for number in range(1, tasks + 1):
        fixed = random.Random(spec * 100 + number)
        texts = {"prompt": prose(fixed, 60), "assert": f"assert open('{prose(fixed, 1)}').read()"}
        texts["expect"] = prose(chance if number == 1 else fixed, 30)
        headers.append(
            TaskHeader(
                task_id=f"task-{number:03d}",
                name=f"{prose(fixed, 3)} {number}",
                key="",
                prompt=texts["prompt"],
                expect=texts["expect"],
                assert_script=texts["assert"],
                activates=("guide",),
                digests={key: digest(text) for key, text in texts.items()},
            )
        )
    files = {f"{name}.md": "sha256:" + digest(f"{spec} {edition} {name}") for name in ("SKILL", "tables", "notes")}
    skill = SkillHeader("guide", "/skills/guide/SKILL.md", "path", digest(str(files)), True, prose(chance, 20))
    return prose(chance, 900), tuple(headers), (replace(skill, files=files),)


def header_of(number: int, tasks: int, k: int) -> RunHeader:
    per_night = SPECS * len(ARMS)
    night, place = divmod(number, per_night)
    spec, (engine, ablated) = place % SPECS, ARMS[place // SPECS]
    started = FIRST_NIGHT + timedelta(days=night, seconds=37 * place)
    text, headers, skills = parts_of(spec, night // 21, tasks)
    name = f"spec-{spec:02d}"
    series = Series(name, engine, ablated, True)
    return RunHeader(
        run_id=f"{started:%Y%m%dT%H%M%S}{number % 1000:03d}Z-{digest(str(number))[:6]}",
        spec=name,
        spec_path=f"/home/ada/evals/{name}.eval.yaml",
        spec_text=text,
        spec_digest=digest(text),
        backend=engine.backend,
        model=engine.model,
        ablated=ablated,
        isolated=True,
        series_key=series.key,
        k=k,
        workers=8,
        timeout_seconds=600.0,
        fail_fast=None,
        started_at=started,
        tasks=tuple(replace(task, key=series.task_key(task.name)) for task in headers),
        skills=tuple(replace(skill, installed=not ablated) for skill in skills),
        judge_backend="claude-code",
        judge_model="judge-large",
        judge_prompt_version="0123456789ab",
        cli_version=f"2.{night // 10}.0",
        judge_cli_version=f"2.{night // 10}.0",
        product_version="0.1.0",
        python_version="3.11.7",
        host="nightly-1",
        platform="Linux x86_64",
        cpu_count=8,
        git_commit=digest(f"commit {night}")[:40],
        git_dirty=False,
        pid=1000 + number,
        limits={"setup_seconds": 600.0, "cleanup_seconds": 60.0, "retries": 2.0},
    )


def lines_of(header: RunHeader, chance: random.Random) -> Iterator[Line]:
    moment = header.started_at
    control = bool(header.ablated)
    for number in range(1, header.k + 1):
        for place, task in enumerate(header.tasks):
            seconds = round(chance.lognormvariate(4, 0.5), 6)
            ended = moment + timedelta(seconds=seconds)
            rate = (0.97, 0.9, 0.5, 0.8, 1.0)[place % 5] - (0.4 if control else 0.0)
            weights = (100 * rate, 100 * (1 - rate), 1, 1, 0.5)
            (outcome,) = chance.choices(OUTCOMES, weights=weights)
            lost = outcome in (Outcome.TIMEOUT, Outcome.INFRA_ERROR)
            tokens = chance.randrange(4000, 60_000)
            yield AttemptRecord(
                task_id=task.task_id,
                task_name=task.name,
                attempt=number,
                started_at=moment,
                ended_at=ended,
                agent_seconds=seconds,
                setup_seconds=round(chance.uniform(0.05, 0.4), 6),
                exit_code=None if lost else 0,
                timed_out=outcome is Outcome.TIMEOUT,
                error=prose(chance, 15) if lost else None,
                output=prose(chance, chance.randrange(20, 150)),
                usage=Usage(tokens // 9, tokens // 20, tokens, tokens // 7),
                model=f"model-{header.started_at:%Y}",
                turns=chance.randrange(6, 60),
                boundary="landlock",
                evidence=f"evidence/{task.name.replace(' ', '-')}/{number:03d}",
                snapshot_files=chance.randrange(1, 9),
            )
            asked = not lost
            yield VerdictRecord(
                task_id=task.task_id,
                task_name=task.name,
                attempt=number,
                outcome=outcome,
                graded_at=ended + timedelta(seconds=chance.uniform(2, 9)),
                activated=None if lost else () if control or chance.random() < 0.05 else ("guide",),
                activation_passed=None if lost or control else True,
                assert_passed=None if lost else outcome is Outcome.PASS,
                assert_evidence=prose(chance, 70) if outcome is Outcome.TASK_FAIL else None,
                autorater_passed=outcome is Outcome.PASS if asked else None,
                autorater_reasoning=prose(chance, 40) if asked else None,
                judge_seconds=round(chance.uniform(2, 9), 6) if asked else None,
                judge_model="judge-large-2" if asked else None,
                judge_usage=Usage(chance.randrange(900, 9000), chance.randrange(50, 300), None, None)
                if asked
                else None,
            )
            moment += timedelta(seconds=chance.uniform(1, 12))
    yield EndRecord(moment + timedelta(seconds=30), "completed")


def write_run(runs: Path, number: int, tasks: int, k: int) -> str:
    header = header_of(number, tasks, k)
    folder = runs / header.run_id
    folder.mkdir()
    (folder / "run.json").write_bytes(json_bytes(to_plain(header), indent=1))
    (folder / "attempts.jsonl").write_bytes(b"".join(map(encode_line, lines_of(header, random.Random(number)))))
    (folder / "lock").touch()
    return header.run_id


def make_store(root: Path, *, runs: int, tasks: int, k: int, first: int = 0) -> None:
    folder = root / ".caliper" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + runs):
        write_run(folder, number, tasks, k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--k", type=int, default=5)
    args = parser.parse_args()
    begun = time.perf_counter()
    make_store(args.folder, runs=args.runs, tasks=args.tasks, k=args.k)
    print(f"{args.runs} runs, {args.runs * args.tasks * args.k} attempts: {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
