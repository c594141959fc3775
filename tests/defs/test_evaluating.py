"""Both ways of evaluating through Dagster, with an agent that plays a script: by configuration and by partitions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, AssetRecordsFilter, DagsterInstance, ExecuteInProcessResult, RunConfig, materialize

from caliper_pipeline.defs.attempts import AttemptsConfig, attempts_and_verdicts
from caliper_pipeline.defs.eval_runs import EvalRunConfig, eval_runs
from caliper_pipeline.defs.partitions import attempt_partition
from caliper_pipeline.defs.resources import BackendResource, Judge, default_resources
from caliper_pipeline.defs.scores import scoreboard, scores, usable_attempts
from caliper_pipeline.defs.specs import skill_sources, specs
from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.execution.backends.base import Backend
from caliper_pipeline.execution.backends.scripted import Scripted
from caliper_pipeline.storage.runs import RunFolder
from tests.defs.scripted import SCRIPT, SPEC, lay_out

SERIES = "mail/scripted+isolated"


def evaluate(
    instance: DagsterInstance,
    *,
    resources: Mapping[str, object] | None = None,
    tags: dict[str, str] | None = None,
    **config: Any,
) -> ExecuteInProcessResult:
    settings = EvalRunConfig(**{"spec": "mail", "engine": "scripted", "k": 2, **config})
    return materialize(
        [eval_runs],
        instance=instance,
        resources={**default_resources(), **(resources or {})},
        run_config=RunConfig(ops={"eval_runs": settings}),
        tags=tags,
        raise_on_error=False,
    )


def evaluate_range(
    instance: DagsterInstance,
    first: tuple[str, int],
    last: tuple[str, int],
    *,
    select: Sequence[str] = ("attempts", "verdicts"),
    backfill: str | None = None,
) -> ExecuteInProcessResult:
    start, end = (attempt_partition(f"{SERIES}/{task}", number) for task, number in (first, last))
    tags = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
    return materialize(
        [attempts_and_verdicts],
        selection=[AssetKey(name) for name in select],
        instance=instance,
        resources=default_resources(),
        run_config=RunConfig(ops={"attempts_and_verdicts": AttemptsConfig()}),
        tags=tags | ({"dagster/backfill": backfill} if backfill else {}),
        raise_on_error=False,
    )


def register(instance: DagsterInstance, name: str = "mail") -> ExecuteInProcessResult:
    instance.add_dynamic_partitions("caliper_spec", [name])
    return materialize(
        [specs, skill_sources],
        instance=instance,
        resources=default_resources(),
        partition_key=name,
        raise_on_error=False,
    )


def shown(instance: DagsterInstance, asset: str, partition: str) -> dict[str, Any]:
    """The metadata of the latest materialization."""
    wanted = AssetRecordsFilter(AssetKey(asset), asset_partitions=[partition])
    [record] = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    return {name: value.value for name, value in record.asset_materialization.metadata.items()}


def partitions(instance: DagsterInstance, asset: str) -> set[str]:
    return set(instance.get_materialized_partitions(AssetKey(asset)))


def why(result: ExecuteInProcessResult) -> str:
    """The description of the failure."""
    [failure] = result.filter_events(lambda event: event.is_step_failure)
    data = failure.step_failure_data.user_failure_data
    return "" if data is None else data.description or ""


def runs(project: Project) -> list[RunFolder]:
    return list(project.store.runs())


@pytest.fixture(autouse=True)
def spec(root: Path) -> Path:
    (root / "caliper.yaml").write_text("model: scripted\n", encoding="utf-8")
    return lay_out(root)


# -- by configuration


def test_an_evaluation_makes_every_asset_below_it(project: Project, instance: DagsterInstance) -> None:
    assert evaluate(instance).success
    every = {attempt_partition(f"{SERIES}/{task}", number) for task in ("One", "Two") for number in (1, 2)}
    assert partitions(instance, "attempts") == partitions(instance, "verdicts") == every
    assert partitions(instance, "scores") == {f"{SERIES}/One", f"{SERIES}/Two"}
    assert partitions(instance, "scoreboard") == {SERIES}
    assert partitions(instance, "specs") == partitions(instance, "skill_sources") == {"mail"}
    [folder] = runs(project)
    told = shown(instance, "verdicts", attempt_partition(f"{SERIES}/One", 1))
    assert (told["outcome"], told["activated"], told["simulated"], told["arm"]) == ("pass", "triage", True, "full")
    assert Path(told["evidence"], "evidence.json").exists()
    board = shown(instance, "scoreboard", SERIES)
    assert (board["success_rate"], board["attempts"], board["run"]) == (0.5, 4, folder.run_id)
    [run] = instance.get_runs()
    assert run.tags["caliper/run"] == folder.run_id
    assert folder.header().dagster_run_id == run.run_id


def test_events_are_stored_while_the_run_goes_on(instance: DagsterInstance) -> None:
    result = evaluate(instance, k=3)
    order = [
        event.asset_key.to_user_string()
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    ]
    assert order[-4:] == ["scores", "scores", "scoreboard", "eval_runs"]
    assert order.index("verdicts") < len(order) - 1 - order[::-1].index(
        "attempts"
    )  # graded before the last agent ended


def test_a_control_run_is_a_series_of_its_own(instance: DagsterInstance) -> None:
    evaluate(instance)
    evaluate(instance, ablate=["triage"])
    control = "mail/scripted~triage+isolated"
    assert partitions(instance, "scoreboard") == {SERIES, control}
    assert shown(instance, "scores", f"{control}/Two")["success_rate"] == 1.0
    assert shown(instance, "scores", f"{SERIES}/Two")["success_rate"] == 0.0


def test_chosen_tasks_move_their_scores_and_not_the_headline(instance: DagsterInstance) -> None:
    assert evaluate(instance, tasks=["One"], k=1).success
    assert partitions(instance, "scores") == {f"{SERIES}/One"}
    assert partitions(instance, "scoreboard") == set()


def test_a_short_run_is_topped_up_under_its_own_id(project: Project, instance: DagsterInstance) -> None:
    evaluate(instance, k=1)
    [folder] = runs(project)
    assert evaluate(instance, resume=folder.run_id, k=3).success
    assert len(runs(project)) == 1
    assert len(partitions(instance, "attempts")) == 6
    assert shown(instance, "scoreboard", SERIES)["attempts"] == 6


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"spec": "male"}, "There is no spec called 'male'"),
        ({"engine": "gpt:x"}, "there is no backend called 'gpt'"),
        ({"ablate": ["trage"]}, "the spec declares no skill or server of that name"),
        ({"resume": "20200101T000000000Z-abcdef"}, "There is no run"),
    ],
)
def test_a_wrong_wish_fails_with_what_would_be_right(
    instance: DagsterInstance, config: dict[str, Any], told: str
) -> None:
    result = evaluate(instance, **config)
    assert not result.success
    assert told in why(result)


def test_re_executing_from_failure_completes_the_same_run(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    lay_out(root, script=SCRIPT.replace("{say: I did not.}", "{fail: cap}"))
    failed = evaluate(instance, workers=1)
    assert not failed.success
    lay_out(root)
    again = {"dagster/parent_run_id": failed.run_id, "dagster/is_resume_retry": "true"}
    assert evaluate(instance, tags=again).success
    [folder] = runs(project)
    assert len(folder.state().verdicts) == 4


def test_a_stopped_run_fails_and_keeps_what_was_finished(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    lay_out(root, script="tasks:\n  One: [{steps: [{say: a}]}]\n  Two: [{fail: cap}]\n")
    result = evaluate(instance, workers=1)
    assert not result.success
    assert "--resume" in why(result)
    assert attempt_partition(f"{SERIES}/One", 1) in partitions(instance, "attempts")


# -- by partitions


def test_chosen_partitions_run_exactly_those(project: Project, instance: DagsterInstance) -> None:
    register(instance)
    assert evaluate_range(instance, ("Two", 1), ("Two", 2)).success
    assert partitions(instance, "attempts") == {attempt_partition(f"{SERIES}/Two", number) for number in (1, 2)}
    [folder] = runs(project)
    assert {(r.task_name, r.attempt) for r in folder.state().attempts.values()} == {("Two", 1), ("Two", 2)}


def test_registering_a_spec_makes_its_tasks_choosable_and_runs_nothing(
    project: Project, instance: DagsterInstance
) -> None:
    assert register(instance).success
    assert instance.get_dynamic_partitions("caliper_task") == [f"{SERIES}/One", f"{SERIES}/Two"]
    assert instance.get_dynamic_partitions("caliper_attempt") == ["001", "002", "003"]
    assert shown(instance, "specs", "mail")["tasks"] == 2
    assert runs(project) == []


def test_a_series_that_ran_is_found_by_its_key(instance: DagsterInstance) -> None:
    evaluate(instance, k=1)
    assert evaluate_range(instance, ("One", 1), ("One", 1)).success


def test_a_key_that_stands_for_nothing_is_refused(instance: DagsterInstance) -> None:
    instance.add_dynamic_partitions("caliper_task", [f"{SERIES}/Gone"])
    instance.add_dynamic_partitions("caliper_attempt", ["001"])
    assert "Nothing is known of the series" in why(evaluate_range(instance, ("Gone", 1), ("Gone", 1)))
    register(instance)
    assert "is not in" in why(evaluate_range(instance, ("Gone", 1), ("Gone", 1)))


def test_pieces_of_one_backfill_share_a_run(project: Project, instance: DagsterInstance) -> None:
    register(instance)
    assert evaluate_range(instance, ("One", 1), ("One", 2), backfill="b").success
    assert evaluate_range(instance, ("Two", 1), ("Two", 2), backfill="b").success
    assert len(runs(project)) == 1
    assert shown(instance, "scoreboard", SERIES)["attempts"] == 4
    assert evaluate_range(instance, ("Two", 1), ("Two", 2), backfill="c").success
    assert len(runs(project)) == 2


def test_verdicts_alone_are_made_again_without_an_agent(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    evaluate(instance, k=1)
    (root / "mail.script.yaml").write_text("tasks: {'*': [{fail: crash}]}\n", encoding="utf-8")
    assert evaluate_range(instance, ("One", 1), ("Two", 1), select=["verdicts"]).success
    [folder] = runs(project)
    assert {verdict.generation for verdict in folder.state().verdicts.values()} == {2}
    told = shown(instance, "verdicts", attempt_partition(f"{SERIES}/One", 1))
    assert (told["outcome"], told["generation"]) == (str(Outcome.PASS), 2)
    assert len(folder.state().attempts) == 2


def test_verdicts_on_attempts_that_never_ran_are_refused(instance: DagsterInstance) -> None:
    register(instance)
    assert "never ran" in why(evaluate_range(instance, ("One", 1), ("One", 1), select=["verdicts"]))


# -- sums and resources


def test_scores_and_scoreboard_can_be_summed_up_again(instance: DagsterInstance) -> None:
    evaluate(instance)
    before = shown(instance, "scoreboard", SERIES)
    assert materialize(
        [scores], instance=instance, resources=default_resources(), partition_key=f"{SERIES}/One"
    ).success
    result = materialize(
        [scoreboard, usable_attempts], instance=instance, resources=default_resources(), partition_key=SERIES
    )
    assert [check.passed for check in result.get_asset_check_evaluations()] == [True]
    assert shown(instance, "scoreboard", SERIES) == before


class Renamed(BackendResource):
    """A stand-in under the key of the real agent."""

    why: str = "Dagster looks for the fields of a resource without any in a way that pydantic warns of."

    def backend(self) -> Backend:
        backend = Scripted()
        backend.name = "claude-code"
        return backend


def test_a_backend_is_swapped_by_its_key(root: Path, project: Project, instance: DagsterInstance) -> None:
    assert evaluate(instance, engine="claude-code", k=1, resources={"claude_code": Renamed()}).success
    [folder] = runs(project)
    assert folder.header().backend == "claude-code"
    assert len(folder.state().verdicts) == 2


def test_the_judge_resource_is_asked_when_the_run_names_nobody(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    lay_out(root, spec=SPEC.replace("    activates: [triage]\n", "    expect: It is sorted.\n"))
    judge = Judge(engine="scripted:mail.script.yaml")
    assert evaluate(instance, k=1, resources={"judge": judge}).success
    [folder] = runs(project)
    assert folder.header().judge_model == "mail.script.yaml"


def test_the_history_has_the_run(project: Project, instance: DagsterInstance) -> None:
    from caliper_pipeline.storage.history import history_json

    evaluate(instance)
    told = history_json(project.history_path)
    assert (told["run_count"], told["attempt_count"]) == (1, 4)
