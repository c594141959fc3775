"""Dagster's own launcher, which besides knows the runs that it did not launch: those a `caliper run` recorded.

Terminating such a run is a request (the recorder sees it and stops the command), and the daemon can tell whether its
process still lives. Named in the `dagster.yaml` that we write; with another launcher all works but these two.
"""

from dagster import DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.storage.tags import GRPC_INFO_TAG

from caliper_pipeline.defs.owner import PID_TAG, owner_is_gone


class CaliperRunLauncher(DefaultRunLauncher):
    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished or GRPC_INFO_TAG in run.tags or PID_TAG not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        self._instance.report_run_canceling(run)
        return not owner_is_gone(run.tags)

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        if owner_is_gone(run.tags):
            return CheckRunHealthResult(
                WorkerStatus.NOT_FOUND, "Its process is gone. `caliper sync` records what it left behind."
            )
        return CheckRunHealthResult(WorkerStatus.RUNNING)
