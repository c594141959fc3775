"""From the lines of a run to Dagster's events, each told once.

Whoever tells Dagster about a run (the step that executes it, the recorder beside a command, `caliper sync`) does it
through a `Recording`. It asks Dagster first what it has of the run, so that telling twice, or going on after a crash,
adds only what is missing.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    RunsFilter,
)

from caliper_pipeline.defs import metadata
from caliper_pipeline.defs.owner import owner_tags
from caliper_pipeline.defs.partitions import add_keys, add_run_keys, attempt_partition, unjudged
from caliper_pipeline.domain.records import AttemptRecord, Line, RunHeader, SkillHeader, VerdictRecord
from caliper_pipeline.domain.results import Results
from caliper_pipeline.domain.series import slug
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.standing import Chosen, covers_all, enough_usable, summarize
from caliper_pipeline.storage.runs import RunFolder, RunState

SPECS, SKILL_SOURCES = AssetKey("specs"), AssetKey("skill_sources")
ATTEMPTS, VERDICTS = AssetKey("attempts"), AssetKey("verdicts")
SCORES, SCOREBOARD = AssetKey("scores"), AssetKey("scoreboard")
EVAL_RUNS = AssetKey("eval_runs")
FROM_SOURCES, FROM_VERDICTS, FROM_SCORES = unjudged("specs", "skill_sources"), unjudged("verdicts"), unjudged("scores")
USABLE_ATTEMPTS = "usable_attempts"

DATA_VERSION_TAG = "dagster/data_version"
RUN_TAG = "caliper/run"
RUNS_TAG_PREFIX = "caliper.run/"
"""With the run id behind it: on Dagster runs that serve several runs of ours."""
PART_TAG = "caliper/part"
MOST_EVENTS = 2_000
"""Asset events in one Dagster run; its page grows slow beyond (the step statistics take 0.6 ms an event)."""

Event = AssetMaterialization | AssetCheckEvaluation
Told = tuple[str, str, int]
"""Asset, partition, and how many verdict lines it rests on."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tasks of a run that one Dagster run tells about."""

    number: int
    """From 1. The first also tells about spec, sources and scoreboard."""
    count: int
    task_ids: frozenset[str]

    @property
    def label(self) -> str:
        return f"{self.number} of {self.count}"


def parts_of(header: RunHeader, *, most_events: int | None = None) -> list[Part]:
    """The run cut by task, so that no part gives more events than a Dagster run should hold.

    As it was begun: topping it up later does not move a task to another part.
    """
    each = 2 * header.k + 1
    size = max(1, ((MOST_EVENTS if most_events is None else most_events) - 4) // each)
    ids = [task.task_id for task in header.tasks]
    chunks = [ids[start : start + size] for start in range(0, len(ids), size)] or [[]]
    return [Part(number, len(chunks), frozenset(chunk)) for number, chunk in enumerate(chunks, 1)]


def tags_of(header: RunHeader, part: Part | None = None) -> dict[str, str]:
    """The tags by which the runs page is filtered, and by which a dead owner is known."""
    tags = {
        RUN_TAG: header.run_id,
        "caliper/spec": slug(header.spec),
        "caliper/engine": metadata.engine_of(header),
        "caliper/arm": metadata.arm_of(header),
        **owner_tags(),
    }
    if part is not None and part.count > 1:
        tags[PART_TAG] = part.label
    return tags


class Recording:
    """What Dagster is still to be told of a run, or of a part of one."""

    def __init__(
        self,
        instance: DagsterInstance,
        project: Project,
        folder: RunFolder,
        part: Part | None = None,
        *,
        only: Chosen | None = None,
    ) -> None:
        """`only`: the attempts to tell of, as (task name, number); others of the run are somebody else's."""
        self._instance = instance
        self._project = project
        self._folder = folder
        self._path = Path(folder.path).resolve()
        self._header = folder.header()
        ids = frozenset(task.task_id for task in self._header.tasks)
        self._part = part if part is not None else Part(1, 1, ids)
        self._only = only
        self._keys = {task.task_id: task.key for task in self._header.tasks}
        self._attempts: dict[tuple[str, int], AttemptRecord] = {}
        self._told = told_of(instance, self._header.run_id, part)
        self._most = 0
        """Numbers of attempts up to here are known to the instance."""

    def opening(self) -> Iterator[Event]:
        """Make the partitions known; spec and sources, where they are news."""
        self._most = self._folder.state().k or self._header.k
        add_run_keys(self._instance, self._header, k=self._most)
        if self._part.number != 1:
            return
        header, spec = self._header, slug(self._header.spec)
        digests = (
            (SPECS, header.spec_digest, metadata.spec_metadata(header)),
            (SKILL_SOURCES, sources_digest(header.skills), metadata.skill_sources_metadata(header.skills)),
        )
        for asset, digest, entries in digests:
            if self._is_news(asset, spec, digest):
                yield AssetMaterialization(asset, partition=spec, metadata=entries, tags={DATA_VERSION_TAG: digest})

    def line(self, line: Line) -> Iterator[Event]:
        """The events that a line gives; none when Dagster has them, or when they belong to another part."""
        if isinstance(line, AttemptRecord):
            self._attempts[line.task_id, line.attempt] = line
        elif not isinstance(line, VerdictRecord):
            return
        if line.task_id not in self._part.task_ids or line.task_id not in self._keys:
            return
        if self._only is not None and (line.task_name, line.attempt) not in self._only:
            return
        if line.attempt > self._most:
            self._most = line.attempt
            add_keys(self._instance, attempts=self._most)
        partition = attempt_partition(self._keys[line.task_id], line.attempt)
        if isinstance(line, AttemptRecord):
            if self._tell(ATTEMPTS, partition, 1):
                entries = metadata.attempt_metadata(self._header, self._path, line)
                yield AssetMaterialization(ATTEMPTS, partition=partition, metadata=entries, tags=FROM_SOURCES)
        elif self._tell(VERDICTS, partition, line.generation):
            attempt = self._attempts.get((line.task_id, line.attempt))
            entries = metadata.verdict_metadata(self._header, self._path, line, attempt)
            yield AssetMaterialization(VERDICTS, partition=partition, metadata=entries)

    def rest(self) -> Iterator[Event]:
        """Whatever of the stored lines was not told yet."""
        for line in self._folder.lines():
            yield from self.line(line)

    def closing(self) -> Iterator[Event]:
        """Scores and scoreboard, unless Dagster shows those of a later run already."""
        header, state = self._header, self._folder.state()
        results, basis = summarize(header, state), rests_on(state)
        for task in results.task_results:
            if basis[task.task_id] and task.task_id in self._part.task_ids and self._is_chosen(task.task_name):
                key = self._keys[task.task_id]
                if self._tell(SCORES, key, basis[task.task_id]) and not self._shows_later(SCORES, key):
                    entries = metadata.score_metadata(header, task, basis[task.task_id])
                    yield AssetMaterialization(SCORES, partition=key, metadata=entries, tags=FROM_VERDICTS)
        series = header.series_key
        if self._part.number != 1 or not covers_all(header, state):
            return
        if self._tell(SCOREBOARD, series, basis.total()) and not self._shows_later(SCOREBOARD, series):
            path = None if state.end is None or state.end.results is None else self._project.root / state.end.results
            entries = metadata.scoreboard_metadata(header, results, path, basis.total())
            yield AssetMaterialization(SCOREBOARD, partition=series, metadata=entries, tags=FROM_SCORES)
            yield check_usable_attempts(header, results)

    def _is_chosen(self, task_name: str) -> bool:
        return self._only is None or any(name == task_name for name, _ in self._only)

    def _tell(self, asset: AssetKey, partition: str, rests_on: int) -> bool:
        told = (asset.to_user_string(), partition, rests_on)
        if told in self._told:
            return False
        self._told.add(told)
        return True

    def _is_news(self, asset: AssetKey, partition: str, digest: str) -> bool:
        shown = self._shown(asset, partition)
        return shown is None or (shown.tags or {}).get(DATA_VERSION_TAG) != digest

    def _shows_later(self, asset: AssetKey, partition: str) -> bool:
        shown = self._shown(asset, partition)
        run = None if shown is None else shown.metadata.get("run")
        return run is not None and str(run.value) > self._header.run_id

    def _shown(self, asset: AssetKey, partition: str) -> AssetMaterialization | None:
        """The latest that Dagster has of the partition."""
        wanted = AssetRecordsFilter(asset, asset_partitions=[partition])
        records = self._instance.fetch_materializations(wanted, limit=1).records
        return records[0].asset_materialization if records else None


def told_of(instance: DagsterInstance, run_id: str, part: Part | None = None) -> set[Told]:
    """What Dagster has of a run of ours (of a part of it), from the events of the Dagster runs that carry its tag."""
    found: set[Told] = set()
    for dagster_run_id in dagster_runs_of(instance, run_id, part):
        for event in instance.all_logs(dagster_run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION):
            told = event.asset_materialization
            if told is None or told.partition is None:
                continue
            run = told.metadata.get("run")
            if run is not None and run.value == run_id:
                rests_on = told.metadata.get("generation") or told.metadata.get("verdict_lines")
                number = 1 if rests_on is None else int(str(rests_on.value))
                found.add((told.asset_key.to_user_string(), told.partition, number))
    return found


def dagster_runs_of(instance: DagsterInstance, run_id: str, part: Part | None = None) -> list[str]:
    """Ids of the Dagster runs that tell of the run; with a part, without those that tell of other parts."""
    filters = (RunsFilter(tags={RUN_TAG: run_id}), RunsFilter(tags={RUNS_TAG_PREFIX + run_id: "true"}))
    mine = None if part is None or part.count == 1 else part.label
    runs = [run for wanted in filters for run in instance.get_runs(wanted)]
    return list(dict.fromkeys(run.run_id for run in runs if mine is None or run.tags.get(PART_TAG, mine) == mine))


def rests_on(state: RunState) -> Counter[str]:
    """How many verdict lines stand behind each task: more of them, and its score is made anew."""
    counts = Counter[str]()
    for (task_id, _), verdict in state.verdicts.items():
        counts[task_id] += verdict.generation
    return counts


def check_usable_attempts(header: RunHeader, results: Results) -> AssetCheckEvaluation:
    passed, why = enough_usable(results)
    return AssetCheckEvaluation(
        asset_key=SCOREBOARD,
        check_name=USABLE_ATTEMPTS,
        passed=passed,
        severity=AssetCheckSeverity.WARN,
        description=why,
        metadata=metadata.origin_metadata(header),
        partition=header.series_key,
    )


def sources_digest(skills: Sequence[SkillHeader]) -> str:
    """One digest for the declared skills together."""
    parts = "".join(f"{skill.name}:{skill.digest}\n" for skill in sorted(skills, key=lambda skill: skill.name))
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()
