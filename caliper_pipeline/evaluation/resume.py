"""Taking up a run that has stored attempts: to finish what is missing, or to judge again what is there."""

from dataclasses import replace
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.evaluation.prepare import Backends, prepare
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.run import Evaluation, Regrading, planned_k
from caliper_pipeline.execution.budget import Allowance
from caliper_pipeline.storage.evidence import refuse_pruned
from caliper_pipeline.storage.results import load_results, saved_runs
from caliper_pipeline.storage.runs import RunFolder

_SHOWN = 5


def find_unfinished(project: Project, *, run_id: str | None, spec_path: Path | None) -> RunFolder:
    """The named run, else the newest that lacks attempts or verdicts (of that spec, when one is named).

    Raises `BadInput` when there is none, or when another process is still at it.
    """
    if run_id is not None:
        run_id = _by_results_file(project, run_id) or run_id
        if run_id not in project.store.run_ids():
            newest = project.store.run_ids()[: -1 - _SHOWN : -1]
            raise BadInput(
                f"There is no run {run_id} under {project.root}.",
                hint=f"The newest are: {', '.join(newest)}." if newest else "There are none yet.",
            )
        return _not_busy(project.store.open(run_id))
    wanted = spec_path.resolve() if spec_path is not None else None
    going: RunFolder | None = None
    for candidate in reversed(project.store.run_ids()):
        folder = project.store.open(candidate)
        if (wanted is None or Path(folder.header().spec_path).resolve() == wanted) and not is_complete(folder):
            if not folder.busy():
                return folder
            going = going or folder
    if going is not None:
        return _not_busy(going)
    whose = f" of {spec_path}" if spec_path is not None else ""
    raise BadInput(
        f"Nothing to resume: no unfinished run{whose} under {project.root}.",
        hint="Name a run to top it up to a larger --k: --resume --run-id ID.",
    )


def _by_results_file(project: Project, file_id: str) -> str | None:
    """The run behind a results file that `caliper list` names; `None` when there is none, or more than one."""
    found = {load_results(saved.path).run.run_id for saved in saved_runs(project.root) if saved.file_id == file_id}
    return found.pop() if len(found) == 1 else None


def is_complete(folder: RunFolder) -> bool:
    """Every planned attempt is there and graded, or its task was given up on purpose, and the end is recorded."""
    header, state = folder.header(), folder.state()
    if state.end is None or state.end.status != "completed":
        return False
    wanted = [(task.task_id, n) for task in header.tasks for n in range(1, planned_k(folder) + 1)]
    missing = [key for key in wanted if key not in state.verdicts and key[0] not in state.aborted]
    return not missing


def resume(
    project: Project,
    *,
    run_id: str | None = None,
    spec_path: Path | None = None,
    k: int | None = None,
    workers: int | None = None,
    allowance: Allowance | None = None,
    backends: Backends | None = None,
) -> Evaluation:
    """The evaluation that completes a stored run: only what is missing is made, only what is ungraded is graded.

    `allowance`: what the whole run may use from now on, where it says so.
    """
    folder = find_unfinished(project, run_id=run_id, spec_path=spec_path)
    request = _request(folder, k=k, workers=workers)
    if allowance is not None:
        request = replace(
            request,
            max_tokens=allowance.max_tokens,
            max_cost_usd=allowance.max_cost_usd,
            max_tokens_per_attempt=allowance.max_tokens_per_attempt,
        )
    return prepare(project, request, backends=backends)


def regrade(
    project: Project,
    run_id: str,
    only: frozenset[tuple[str, int]] | None = None,
    *,
    backends: Backends | None = None,
) -> Evaluation:
    """The evaluation that makes a new generation of verdicts on a run's stored attempts. No agent is paid for."""
    if run_id not in project.store.run_ids():
        raise BadInput(f"There is no run {run_id} under {project.root}.")
    folder = _not_busy(project.store.open(run_id))
    refuse_pruned(folder.path)
    evaluation = prepare(project, _request(folder, k=None, workers=None), backends=backends, probe=False)
    return replace(evaluation, regrading=Regrading(only))


def _request(folder: RunFolder, *, k: int | None, workers: int | None) -> RunRequest:
    header = folder.header()
    judge = None if header.judge_backend is None else Engine(header.judge_backend, header.judge_model)
    return RunRequest(
        spec_path=Path(header.spec_path),
        engine=Engine(header.backend, header.model),
        judge_engine=judge,
        k=max(k or 0, header.k),
        workers=workers or header.workers,
        ablate=tuple(name if name.startswith("mcp:") else f"skill:{name}" for name in header.ablated),
        user_customizations=not header.isolated,
        run_id=header.run_id,
        origin=header.origin,
    )


def _not_busy(folder: RunFolder) -> RunFolder:
    if folder.busy():
        raise BadInput(
            f"Run {folder.header().run_id} is still going (process {folder.header().pid}).",
            hint="Wait for it, or stop it first.",
        )
    return folder
