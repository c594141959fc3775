"""What the cases under `shared/cases` call: the product's own functions behind the fixed commands of their README.

    cases_adapter.py history-import FILES...     records results files in the database at $HISTORY_DB
    cases_adapter.py history-json                prints that database as JSON
    cases_adapter.py dagster-import              loads the definitions
    cases_adapter.py dagster-eval SPEC K         evaluates the spec through Dagster and prints its scores as JSON
    cases_adapter.py dagster-spec-tick FOLDER    one tick of the sensor for specs, on that folder; prints what it asks

Exit status: 0 all well; 1 some input refused, the rest done; 2 the database (or whatever is asked) cannot be used.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def history_import(files: Sequence[str]) -> int:
    from caliper_pipeline.storage import history

    refused = 0
    for path, error in history.import_results(_database(), [Path(name) for name in files]):
        if error is not None:
            refused = 1
            sys.stderr.write(f"{path}: {error}\n")
    return refused


def history_json(_: Sequence[str]) -> int:
    from caliper_pipeline.storage import history

    json.dump(history.history_json(_database()), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


def dagster_import(_: Sequence[str]) -> int:
    from dagster import Definitions

    from caliper_pipeline.definitions import defs

    Definitions.validate_loadable(defs)
    return 0


def dagster_eval(arguments: Sequence[str]) -> int:
    from dagster import AssetKey, AssetRecordsFilter, RunConfig, materialize

    from caliper_pipeline.defs.eval_runs import EvalRunConfig, eval_runs
    from caliper_pipeline.defs.home import dagster_home, open_instance
    from caliper_pipeline.defs.resources import History, default_resources
    from caliper_pipeline.evaluation.project import find_project

    spec, k = arguments
    project = find_project(Path.cwd())
    config = EvalRunConfig(spec=spec, k=int(k), isolated=True)
    with open_instance(dagster_home(project.root)) as instance:
        result = materialize(
            [eval_runs],
            instance=instance,
            resources={**default_resources(), "history": History(path=str(_database()))},
            run_config=RunConfig(ops={"eval_runs": config}, loggers={"console": {"config": {"log_level": "ERROR"}}}),
        )
        [folder] = [run for run in project.store.runs() if run.header().dagster_run_id == result.run_id]
        tasks = []
        for task in folder.header().tasks:
            wanted = AssetRecordsFilter(AssetKey("scores"), asset_partitions=[task.key])
            [record] = instance.fetch_materializations(wanted, limit=1).records
            assert record.asset_materialization is not None
            told = {name: value.value for name, value in record.asset_materialization.metadata.items()}
            tasks.append(
                {
                    "name": task.name,
                    "task_key": task.key,
                    "score": told.get("success_rate"),
                    "usable": told["usable"],
                }
            )
        checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    json.dump({"tasks": tasks, "checks": checks}, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if result.success else 1


def dagster_spec_tick(arguments: Sequence[str]) -> int:
    from dagster import build_sensor_context

    from caliper_pipeline.defs.home import dagster_home, open_instance
    from caliper_pipeline.defs.resources import RunStore
    from caliper_pipeline.defs.sensors import new_and_edited_specs

    folder = Path(arguments[0]).resolve()
    home = dagster_home(folder)
    with open_instance(home) as instance:
        kept = home / "case-cursor.json"
        cursor = kept.read_text(encoding="utf-8") if kept.exists() else None
        context = build_sensor_context(
            instance=instance, cursor=cursor, resources={"run_store": RunStore(root=str(folder))}
        )
        tick = new_and_edited_specs(context)
        before = set(instance.get_dynamic_partitions("caliper_task"))
        for request in tick.dynamic_partitions_requests or []:
            instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        added = sorted(set(instance.get_dynamic_partitions("caliper_task")) - before)
        kept.write_text(tick.cursor or "", encoding="utf-8")
    requests = [{"run_key": request.run_key} for request in tick.run_requests or []]
    told = {
        "run_request_count": len(requests),
        "run_requests": requests,
        "added_task_count": len(added),
        "added_tasks": added,
    }
    json.dump(told, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "history-import": history_import,
    "history-json": history_json,
    "dagster-import": dagster_import,
    "dagster-eval": dagster_eval,
    "dagster-spec-tick": dagster_spec_tick,
}


def main(arguments: Sequence[str]) -> int:
    from caliper_pipeline.domain.errors import CaliperError

    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        sys.stderr.write(f"usage: cases_adapter.py {'|'.join(COMMANDS)} ...\n")
        return 2
    try:
        return command(arguments[1:])
    except CaliperError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _database() -> Path:
    return Path(os.path.abspath(os.environ["HISTORY_DB"]))  # noqa: PTH100


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
