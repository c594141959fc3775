"""Two runs side by side: what changed from A to B, and what makes the two not comparable.

Delta is always B − A. A drop is any fall of a rate, however small: whether it means something is for a test to say,
and this module only lines up what such a test needs. Costs are told but never count as a drop. What a side did not
record is unknown: no warning and no label rests on it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.results import Results, RunInfo, SkillSnapshot, TaskResult, UsageTotals, usage_totals
from caliper_pipeline.domain.skills import files_digest
from caliper_pipeline.domain.statistics import Interval, suite_wilson


@dataclass(frozen=True, slots=True)
class MatchedTask:
    """One task that both runs have, by its name."""

    task_name: str
    a: TaskResult
    b: TaskResult

    @property
    def delta(self) -> float | None:
        """B − A. `None`: not measured on both sides."""
        return _difference(self.a.scored.score, self.b.scored.score)

    @property
    def dropped(self) -> bool:
        return (self.delta or 0) < 0

    @property
    def activation_delta(self) -> float | None:
        return _difference(self.a.scored.activation_score, self.b.scored.activation_score)

    @property
    def activation_dropped(self) -> bool:
        return (self.activation_delta or 0) < 0

    @property
    def probe(self) -> bool:
        """On both sides activation is all that is asked."""
        return self.a.scored.trigger_only and self.b.scored.trigger_only

    @property
    def unmeasured(self) -> bool:
        return self.delta is None and not self.probe


@dataclass(frozen=True, slots=True)
class SkillDrift:
    """A skill whose installed bytes differ between the runs."""

    name: str
    source_kind: str
    """`git` when it was on either side: such a spec had promised the bytes."""
    a_ref: str
    b_ref: str
    """First seven digits of the commit, or else of the digest."""


@dataclass(frozen=True, slots=True)
class Mismatches:
    """What differs besides the agent's results."""

    spec: bool
    k: bool
    neighbourhood: bool
    mcp: bool
    cross_backend_user_customizations: bool
    user_customizations: bool
    judge: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    a: Results
    b: Results
    a_label: str | None
    b_label: str | None
    """What a side is in a pair of full run and control: `with X`, `without X`. `None`: no such pair."""
    matched: tuple[MatchedTask, ...]
    unmatched_a: tuple[str, ...]
    unmatched_b: tuple[str, ...]
    mismatches: Mismatches
    skill_drift: tuple[SkillDrift, ...]
    warnings: tuple[str, ...]
    a_usage: UsageTotals
    b_usage: UsageTotals
    measured_tasks: int
    """Tasks with a score on both sides: what the two averages are over."""
    a_matched_avg: float | None
    b_matched_avg: float | None
    a_matched_activation_avg: float | None
    b_matched_activation_avg: float | None
    a_interval: Interval | None
    b_interval: Interval | None
    """Of the averages: how reliable on these very tasks."""
    a_activation_interval: Interval | None
    b_activation_interval: Interval | None

    @property
    def aggregate_delta(self) -> float | None:
        return _difference(self.a_matched_avg, self.b_matched_avg)

    @property
    def aggregate_activation_delta(self) -> float | None:
        return _difference(self.a_matched_activation_avg, self.b_matched_activation_avg)

    @property
    def drops(self) -> tuple[str, ...]:
        return tuple(task.task_name for task in self.matched if task.dropped)

    @property
    def activation_drops(self) -> tuple[str, ...]:
        return tuple(task.task_name for task in self.matched if task.activation_dropped)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        return tuple(task.task_name for task in self.matched if task.unmeasured)

    @property
    def ablation_pair(self) -> bool:
        return self.a_label is not None

    @property
    def tokens_delta(self) -> int:
        """Over the whole runs, not only the matched tasks."""
        return self.b_usage.total_tokens - self.a_usage.total_tokens

    @property
    def wall_delta(self) -> float:
        return self.b_usage.wall_seconds - self.a_usage.wall_seconds


def compare(a: Results, b: Results) -> Comparison:
    """A and B side by side. Raises `BadInput` when their figures do not measure the same thing."""
    if a.run.era != b.run.era:
        older = "A" if a.run.era is None else "B"
        raise BadInput(
            f"The two runs brought their skills to the agent in different ways "
            f"(A: {a.run.era or 'not recorded'}, B: {b.run.era or 'not recorded'}), so their scores do not measure the "
            f"same thing.",
            hint=f"Run the spec of {older} again with the present version, then compare.",
        )
    matched, unmatched_a, unmatched_b = _match(a.task_results, b.task_results)
    mismatches = _mismatches(a, b)
    pair = None if mismatches.user_customizations or mismatches.cross_backend_user_customizations else _pair(a, b)
    if pair is not None:
        mismatches = _without_arms(mismatches)
    drift = _drift(a, b)
    measured = [task for task in matched if task.delta is not None]
    fired = [task for task in matched if task.activation_delta is not None]
    return Comparison(
        a=a,
        b=b,
        a_label=pair[0] if pair else None,
        b_label=pair[1] if pair else None,
        matched=matched,
        unmatched_a=unmatched_a,
        unmatched_b=unmatched_b,
        mismatches=mismatches,
        skill_drift=drift,
        warnings=tuple(_warnings(a, b, mismatches, drift)),
        a_usage=usage_totals(a),
        b_usage=usage_totals(b),
        measured_tasks=len(measured),
        a_matched_avg=_mean(task.a.scored.score for task in measured),
        b_matched_avg=_mean(task.b.scored.score for task in measured),
        a_matched_activation_avg=_mean(task.a.scored.activation_score for task in fired),
        b_matched_activation_avg=_mean(task.b.scored.activation_score for task in fired),
        a_interval=_interval(task.a for task in measured),
        b_interval=_interval(task.b for task in measured),
        a_activation_interval=_activation_interval(task.a for task in fired),
        b_activation_interval=_activation_interval(task.b for task in fired),
    )


def _interval(tasks: Iterable[TaskResult]) -> Interval | None:
    return suite_wilson([(task.scored.successes, task.scored.usable) for task in tasks])


def _activation_interval(tasks: Iterable[TaskResult]) -> Interval | None:
    return suite_wilson([(task.scored.activation_successes, task.scored.activation_usable) for task in tasks])


def _match(
    a: Sequence[TaskResult], b: Sequence[TaskResult]
) -> tuple[tuple[MatchedTask, ...], tuple[str, ...], tuple[str, ...]]:
    """Tasks by name; several of one name pair in their order. What is left over is named on its side."""
    waiting: defaultdict[str, list[TaskResult]] = defaultdict(list)
    for task in b:
        waiting[task.task_name].append(task)
    matched: list[MatchedTask] = []
    alone: list[str] = []
    for task in a:
        if waiting[task.task_name]:
            matched.append(MatchedTask(task.task_name, task, waiting[task.task_name].pop(0)))
        else:
            alone.append(task.task_name)
    partners = {id(pair.b) for pair in matched}
    return tuple(matched), tuple(alone), tuple(task.task_name for task in b if id(task) not in partners)


def _mismatches(a: Results, b: Results) -> Mismatches:
    cross = a.run.backend != b.run.backend and (_may_have_loaded(a.run) or _may_have_loaded(b.run))
    return Mismatches(
        spec=a.run.spec != b.run.spec,
        k=a.run.k != b.run.k,
        neighbourhood=set(a.skill_names) != set(b.skill_names),
        mcp=_differ(a.run.mcp_servers, b.run.mcp_servers),
        cross_backend_user_customizations=cross,
        user_customizations=_setups_differ(a.run, b.run),
        judge=_judges_differ(a, b),
    )


def _without_arms(found: Mismatches) -> Mismatches:
    """What is left when the removed skills and servers are the very question."""
    return Mismatches(
        spec=found.spec,
        k=found.k,
        neighbourhood=False,
        mcp=False,
        cross_backend_user_customizations=found.cross_backend_user_customizations,
        user_customizations=found.user_customizations,
        judge=found.judge,
    )


def _pair(a: Results, b: Results) -> tuple[str, str] | None:
    """The labels of A and B when one is the other without some skills or servers, and nothing recorded denies it."""
    if bool(a.run.ablated) == bool(b.run.ablated):
        return None
    full, cut = (b, a) if a.run.ablated else (a, b)
    removed = set(cut.run.ablated)
    skills = set(cut.run.ablated_skills)
    servers = {name.removeprefix("mcp:") for name in removed if name.startswith("mcp:")}
    had, kept = set(full.skill_names), set(cut.skill_names)
    if not skills <= had or kept != had - skills:
        return None
    if full.run.mcp_servers is not None and cut.run.mcp_servers is not None:
        had_servers, kept_servers = set(full.run.mcp_servers), set(cut.run.mcp_servers)
        if not servers <= had_servers or kept_servers != had_servers - servers:
            return None
    bare = not kept and cut.run.mcp_servers == () and not cut.run.user_customizations
    names = ", ".join(sorted(removed))
    with_label, without_label = f"with {names}", "without any skills or servers" if bare else f"without {names}"
    return (with_label, without_label) if full is a else (without_label, with_label)


def _drift(a: Results, b: Results) -> tuple[SkillDrift, ...]:
    others = {snapshot.name: snapshot for snapshot in b.skill_snapshots}
    found = []
    for one in a.skill_snapshots:
        other = others.get(one.name)
        if other is None or not one.files or not other.files or _digest(one) == _digest(other):
            continue
        kind = "git" if "git" in (one.source_kind, other.source_kind) else one.source_kind
        found.append(SkillDrift(one.name, kind, _ref(one), _ref(other)))
    return tuple(found)


def _digest(snapshot: SkillSnapshot) -> str:
    return files_digest({path: file.hash for path, file in snapshot.files.items()})


def _ref(snapshot: SkillSnapshot) -> str:
    return (snapshot.git_sha or _digest(snapshot))[:7]


def _warnings(a: Results, b: Results, found: Mismatches, drift: Sequence[SkillDrift]) -> Iterable[str]:
    """The warnings, each with what would mend it."""
    if found.spec:
        yield f"different specs: {a.run.spec} and {b.run.spec}; tasks of one name may ask for different things"
    if found.k:
        yield f"different k: A made {a.run.k} attempts a task, B {b.run.k}; pass@k and pass^k do not compare"
    cut = [side for side, run in (("A", a.run), ("B", b.run)) if run.interrupted]
    if cut:
        yield (
            f"{' and '.join(cut)} ended before every attempt had run, so fewer attempts stand behind the score; "
            f"complete with: caliper run --resume"
        )
    if found.neighbourhood:
        yield (
            f"different skills installed: {_names(a.skill_names)} and {_names(b.skill_names)}; more skills compete for "
            f"the agent's attention, so a change may come from the company a skill keeps"
        )
    if found.mcp:
        yield (
            f"different MCP servers: {_names(a.run.mcp_servers or ())} and {_names(b.run.mcp_servers or ())}; "
            f"tools can move the score without the skill"
        )
    if found.cross_backend_user_customizations:
        yield (
            f"different backends ({a.run.backend} and {b.run.backend}) with the user's own customizations, which each "
            f"backend has its own of; run both with --no-user-customizations"
        )
    elif found.user_customizations:
        yield _setup_warning(a.run, b.run)
    for skill in drift:
        if skill.source_kind == "git":
            yield f"{skill.name} changed: git source, {skill.a_ref} → {skill.b_ref}; pin its ref to hold it fixed"
    if found.judge:
        yield (
            f"different judges: {_judge(a.run)} and {_judge(b.run)}; one may be stricter; "
            f"run both with the same --judge-model"
        )
    if a.simulated != b.simulated:
        side = "A" if a.simulated else "B"
        yield f"{side} is simulated: a script played the agent, so the difference says nothing about a real one"


def _setup_warning(a: RunInfo, b: RunInfo) -> str:
    if a.user_customizations != b.user_customizations:
        side, other = ("A", "B") if a.user_customizations else ("B", "A")
        return (
            f"only {side} loaded the user's own customizations (skills, plugins, rules, settings, connectors); "
            f"run {side} with --no-user-customizations to match {other}"
        )
    return (
        f"different user customizations: {_names(a.loaded_user_customizations or ())} and "
        f"{_names(b.loaded_user_customizations or ())}; run both with --no-user-customizations"
    )


def _may_have_loaded(run: RunInfo) -> bool:
    return run.user_customizations and run.loaded_user_customizations != ()


def _setups_differ(a: RunInfo, b: RunInfo) -> bool:
    if a.user_customizations != b.user_customizations:
        return True
    return _differ(a.loaded_user_customizations, b.loaded_user_customizations)


def _judges_differ(a: Results, b: Results) -> bool:
    if not (_autorater_ran(a) and _autorater_ran(b)):
        return False
    return (a.run.judge_backend, a.run.judge_model) != (b.run.judge_backend, b.run.judge_model)


def _autorater_ran(results: Results) -> bool:
    return any(attempt.judge_seconds is not None for task in results.task_results for attempt in task.attempts)


def _judge(run: RunInfo) -> str:
    return f"{run.judge_backend or 'unknown'} ({run.judge_model or 'default model'})"


def _differ(a: Sequence[str] | None, b: Sequence[str] | None) -> bool:
    return a is not None and b is not None and set(a) != set(b)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else b - a


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
