"""What a run can still do once its evidence is gone."""

from datetime import UTC, datetime

import pytest

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.evaluation.history_care import plan_pruning, prune
from caliper_pipeline.evaluation.resume import regrade, resume

from .conftest import Bench

TASK = "  - name: T\n    prompt: Say hi.\n    assert: assert True\n"
SCRIPT = 'tasks:\n  "*": [{steps: [{say: Hi.}]}]\n'
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def pruned(bench: Bench) -> str:
    run_id = bench.prepare(bench.write(TASK, SCRIPT), k=1).execute().header.run_id
    root = bench.project.root
    freed, stayed = prune(root, plan_pruning(root, LATER, keep_bytes=0).going, LATER)
    assert (freed > 0, stayed) == (True, [])
    return run_id


def test_a_pruned_run_is_not_judged_again_and_stays_as_it_was(bench: Bench) -> None:
    run_id = pruned(bench)
    before = bench.project.store.open(run_id).log.path.read_bytes()
    with pytest.raises(StorageError, match="was pruned"):
        regrade(bench.project, run_id)
    assert bench.project.store.open(run_id).log.path.read_bytes() == before


def test_a_pruned_run_can_have_more_attempts(bench: Bench) -> None:
    run_id = pruned(bench)
    summary = resume(bench.project, run_id=run_id, k=2).execute()
    assert [attempt.attempt for attempt in summary.results.task_results[0].attempts] == [1, 2]
