"""The code location as a whole: what it holds, kept as one readable page, and what loading it costs."""

import subprocess
import sys
from pathlib import Path

from dagster import AssetSpec, DagsterInstance, Definitions, PartitionsDefinition

from caliper_pipeline.definitions import defs

PAGE = Path(__file__).with_name("definitions.txt")


def partitions_text(definition: PartitionsDefinition[str] | None) -> str:
    if definition is None:
        return "-"
    dimensions = getattr(definition, "partitions_defs", None)
    if dimensions:
        return " x ".join(f"{item.name}: {partitions_text(item.partitions_def)}" for item in dimensions)
    return str(getattr(definition, "name", definition))


def asset_line(spec: AssetSpec) -> str:
    deps = ", ".join(sorted(dep.asset_key.to_user_string() for dep in spec.deps)) or "-"
    kinds = ", ".join(sorted(spec.kinds))
    return (
        f"  {spec.key.to_user_string()}: group {spec.group_name}; partitions {partitions_text(spec.partitions_def)}; "
        f"from {deps}; kinds {kinds}; owners {', '.join(spec.owners)}"
    )


def page(definitions: Definitions) -> str:
    repository = definitions.get_repository_def()
    jobs = sorted(job.name for job in repository.get_all_jobs() if not job.name.startswith("__"))
    lines = ["assets"]
    lines += sorted(asset_line(spec) for spec in definitions.resolve_all_asset_specs())
    lines += ["checks"]
    lines += sorted(f"  {key.to_user_string()}" for key in repository.asset_graph.asset_check_keys)
    lines += ["jobs", *(f"  {name}" for name in jobs)]
    lines += ["sensors", *sorted(f"  {sensor.name}" for sensor in repository.sensor_defs)]
    lines += ["schedules", *sorted(f"  {schedule.name}" for schedule in repository.schedule_defs)]
    lines += ["resources", *sorted(f"  {key}" for key in repository.get_top_level_resources())]
    for key, resource in sorted(definitions.resources.items() if definitions.resources else []):
        lines += sorted(f"    {key}.{name}" for name in type(resource).model_fields)
    return "\n".join(lines) + "\n"


def test_the_definitions_are_those_on_the_page() -> None:
    assert page(defs) == PAGE.read_text(encoding="utf-8")


def test_they_load_as_a_code_location_does() -> None:
    Definitions.validate_loadable(defs)


def test_everything_is_described() -> None:
    assert [s.key.to_user_string() for s in defs.resolve_all_asset_specs() if not s.description] == []
    repository = defs.get_repository_def()
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    assert [item.name for item in (*jobs, *repository.sensor_defs) if not item.description] == []
    for resource in (defs.resources or {}).values():
        assert type(resource).__doc__
        assert all(field.description for field in type(resource).model_fields.values())


def test_every_setting_of_a_run_is_described_and_only_the_spec_is_needed() -> None:
    from caliper_pipeline.defs.attempts import AttemptsConfig
    from caliper_pipeline.defs.eval_runs import EvalRunConfig

    for config in (EvalRunConfig, AttemptsConfig):
        assert all(field.description for field in config.model_fields.values())
    assert [name for name, field in EvalRunConfig.model_fields.items() if field.is_required()] == ["spec"]
    assert [name for name, field in AttemptsConfig.model_fields.items() if field.is_required()] == []


def test_loading_reads_no_spec_opens_no_history_and_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "broken.eval.yaml").write_text("{{{", encoding="utf-8")
    (tmp_path / "caliper.yaml").write_text("{{{", encoding="utf-8")
    program = """
import socket, sys
def refuse(*a, **k): raise AssertionError("no network")
socket.socket.connect = refuse
import dagster, time
begin = time.process_time()
import caliper_pipeline.definitions
spent = time.process_time() - begin
assert not {"duckdb", "pandas", "yaml_tree"} & set(sys.modules), "too much is imported"
assert spent < 1, f"{spent} s"
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_job_of_the_location_runs_where_no_project_is_yet(instance: DagsterInstance, root: Path) -> None:
    result = defs.resolve_job_def("evaluate").execute_in_process(
        instance=instance,
        run_config={"ops": {"eval_runs": {"config": {"spec": "none", "engine": "scripted"}}}},
        raise_on_error=False,
    )
    assert not result.success
