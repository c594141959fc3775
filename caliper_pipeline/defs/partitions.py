"""The partitions: spec, series, task, and task × attempt, all of them dynamic, and how keys get into an instance.

A key is made by `domain.series`, never here, and holds no `|`, which Dagster would not refuse and could not show.
Keys must be known to the instance before an event or a run names them.
"""

from collections.abc import Iterable, Sequence

from dagster import DagsterInstance, DynamicPartitionsDefinition, MultiPartitionKey, MultiPartitionsDefinition

from caliper_pipeline.domain.records import RunHeader
from caliper_pipeline.domain.series import attempt_key, slug

spec_partitions = DynamicPartitionsDefinition(name="caliper_spec")
series_partitions = DynamicPartitionsDefinition(name="caliper_series")
task_partitions = DynamicPartitionsDefinition(name="caliper_task")
attempt_numbers = DynamicPartitionsDefinition(name="caliper_attempt")
attempt_partitions = MultiPartitionsDefinition({"task": task_partitions, "attempt": attempt_numbers})


def attempt_partition(task_key: str, attempt: int) -> MultiPartitionKey:
    """The key of one attempt; the library decides the order of its dimensions."""
    return MultiPartitionKey({"task": task_key, "attempt": attempt_key(attempt)})


def read_attempt_partition(key: str) -> tuple[str, int]:
    """The task's key and the attempt's number. ValueError when the key is not one of ours."""
    parts = attempt_partitions.get_partition_key_from_str(key).keys_by_dimension
    return parts["task"], int(parts["attempt"])


def unjudged(*inputs: str) -> dict[str, str]:
    """Tags that keep Dagster from calling a materialization outdated for what happened to these inputs.

    Levels of different grain are joined by `AllPartitionMapping`, the only mapping that works there, and by it an edit
    of any spec would mark the attempts of all the others. What really changed is told by digests in the metadata.
    """
    tags = {"dagster/code_version": "1"}
    for name in inputs:
        tags[f"dagster/input_data_version/{name}"] = "unjudged"
        tags[f"dagster/input_event_pointer/{name}"] = str(2**62)
    return tags


def add_keys(
    instance: DagsterInstance,
    *,
    specs: Iterable[str] = (),
    series: Iterable[str] = (),
    tasks: Iterable[str] = (),
    attempts: int = 0,
) -> None:
    """Make the keys known, those of attempts 1 to `attempts` included. Known ones stay as they are."""
    wanted: tuple[tuple[DynamicPartitionsDefinition, Sequence[str]], ...] = (
        (spec_partitions, list(specs)),
        (series_partitions, list(series)),
        (task_partitions, list(tasks)),
        (attempt_numbers, [attempt_key(n) for n in range(1, attempts + 1)]),
    )
    for definition, keys in wanted:
        if keys and definition.name is not None:
            _add(instance, definition.name, list(dict.fromkeys(keys)))


def add_run_keys(instance: DagsterInstance, header: RunHeader, *, k: int) -> None:
    """Make every key of a run known."""
    add_keys(
        instance,
        specs=[slug(header.spec)],
        series=[header.series_key],
        tasks=[task.key for task in header.tasks],
        attempts=k,
    )


def _add(instance: DagsterInstance, name: str, keys: Sequence[str]) -> None:
    """Dagster looks before it inserts, so two processes at once can both insert: then look again."""
    from sqlalchemy.exc import IntegrityError

    for _ in range(20):
        try:
            return instance.add_dynamic_partitions(name, list(keys))
        except IntegrityError:
            continue
    return instance.add_dynamic_partitions(name, list(keys))
