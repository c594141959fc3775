"""The sensor for specs, called as the daemon calls it."""

from pathlib import Path

import pytest
from dagster import DagsterInstance, SensorResult, build_sensor_context

from caliper_pipeline.defs.recording import Recording
from caliper_pipeline.defs.resources import RunStore
from caliper_pipeline.defs.sensors import new_and_edited_specs
from caliper_pipeline.evaluation.prepare import prepare
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.registry import look_up
from caliper_pipeline.evaluation.request import RunRequest
from tests.defs.scripted import SPEC, lay_out


@pytest.fixture(autouse=True)
def config(root: Path) -> None:
    (root / "caliper.yaml").write_text("model: scripted\n", encoding="utf-8")


def tick(instance: DagsterInstance, cursor: str | None = None) -> SensorResult:
    context = build_sensor_context(instance=instance, cursor=cursor, resources={"run_store": RunStore()})
    result = new_and_edited_specs(context)
    assert isinstance(result, SensorResult)
    return result


def asked(result: SensorResult) -> list[str | None]:
    return [request.partition_key for request in result.run_requests or []]


def test_a_new_spec_is_asked_for_once_with_its_partitions(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    lay_out(root)
    first = tick(instance)
    assert asked(first) == ["mail"]
    added = {r.partitions_def_name: list(r.partition_keys) for r in first.dynamic_partitions_requests or []}
    assert added == {
        "caliper_spec": ["mail"],
        "caliper_series": ["mail/scripted+isolated"],
        "caliper_task": ["mail/scripted+isolated/One", "mail/scripted+isolated/Two"],
        "caliper_attempt": ["001", "002", "003"],
    }
    assert look_up(project, "mail/scripted+isolated").tasks["mail/scripted+isolated/One"] == "One"
    assert asked(tick(instance, first.cursor)) == []


def test_an_edit_is_told_by_content_and_not_by_time(root: Path, instance: DagsterInstance) -> None:
    path = lay_out(root)
    first = tick(instance)
    path.touch()
    assert asked(tick(instance, first.cursor)) == []
    path.write_text(SPEC.replace("Go.", "Go on."), encoding="utf-8")
    second = tick(instance, first.cursor)
    assert asked(second) == ["mail"]
    assert first.run_requests and second.run_requests
    assert first.run_requests[0].run_key != second.run_requests[0].run_key


def test_a_half_written_spec_waits_and_holds_nobody_up(root: Path, instance: DagsterInstance) -> None:
    lay_out(root)
    (root / "other.eval.yaml").write_text(SPEC[:60], encoding="utf-8")
    first = tick(instance)
    assert asked(first) == ["mail"]
    (root / "other.eval.yaml").write_text(SPEC, encoding="utf-8")
    assert asked(tick(instance, first.cursor)) == ["other"]


def test_two_specs_of_one_name_do_not_fight_over_a_partition(root: Path, instance: DagsterInstance) -> None:
    lay_out(root)
    (root / "sub").mkdir()
    lay_out(root / "sub")
    first = tick(instance)
    assert asked(first) == ["mail"]
    assert asked(tick(instance, first.cursor)) == []


def test_a_spec_that_a_run_told_of_is_not_read_again(root: Path, project: Project, instance: DagsterInstance) -> None:
    from dagster import AssetMaterialization

    evaluation = prepare(project, RunRequest(lay_out(root), k=1))
    for event in Recording(instance, project, evaluation.folder).opening():
        assert isinstance(event, AssetMaterialization)
        instance.report_runless_asset_event(event)
    assert asked(tick(instance)) == []
