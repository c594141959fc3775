"""`caliper run`: starts the evaluation at once, and a recorder beside it that tells Dagster."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import click

from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.domain.errors import BadInput, LoginRequired
from caliper_pipeline.interfaces.lean_imports import without_pydantic_plugins

with without_pydantic_plugins():
    from caliper_pipeline.domain.project import MOST_ATTEMPTS, MOST_DOLLARS, MOST_SECONDS, MOST_TOKENS, MOST_WORKERS
    from caliper_pipeline.evaluation.prepare import prepare
    from caliper_pipeline.evaluation.project import Project, find_project
    from caliper_pipeline.evaluation.recorder import start_recorder
    from caliper_pipeline.evaluation.request import RunRequest, RunSummary
    from caliper_pipeline.evaluation.resume import resume as resume_run
    from caliper_pipeline.evaluation.run import Evaluation
from caliper_pipeline.execution.budget import Allowance
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.interfaces.login_offer import LoginOffer
from caliper_pipeline.interfaces.render.live import make_progress

EXIT_CANNOT_RUN = 2
EXIT_INTERRUPTED = 130


@click.command()
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@click.option("--k", type=int, help="Attempts a task. [default: 3]")
@click.option("--workers", type=int, help="Attempts at once. [default: 4]")
@click.option("--timeout", type=float, help="Seconds an attempt's agent may take. [default: 120]")
@click.option("--fail-fast", type=int, metavar="N", help="Give a task up after N lost attempts in a row.")
@click.option("--model", metavar="ENGINE", help="BACKEND, BACKEND:MODEL or a model. [default: claude-code]")
@click.option("--judge-model", metavar="ENGINE", help="Engine that judges `expect`. [default: that of --model]")
@click.option(
    "--ablate", multiple=True, metavar="NAME", help="Leave a declared skill or server out: a control run. Repeatable."
)
@click.option(
    "--user-customizations/--no-user-customizations",
    default=None,
    help="Load your own rules, skills, settings and servers into each attempt, or keep them out.",
)
@click.option("--max-tokens", type=int, metavar="N", help="Start no attempt that may take the run above N tokens.")
@click.option("--max-cost", type=float, metavar="USD", help="The same in dollars, by the prices in caliper.yaml.")
@click.option("--max-tokens-per-attempt", type=int, metavar="N", help="End an agent that used more than N tokens.")
@click.option("--dry-run", is_flag=True, help="Show what would be installed and started, and start nothing.")
@click.option("--resume", is_flag=True, help="Finish the newest unfinished run (of SPEC, when given).")
@click.option("--run-id", metavar="ID", help="With --resume: the run to take up; a larger --k tops it up.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write a copy of the results there.")
@click.option("--wait", is_flag=True, help="Return only when Dagster has recorded the run.")
@click.option("--no-input", is_flag=True, help="Never ask, not even whether to log in where a login is missing.")
@click.option("-v", "--verbose", is_flag=True, help="Show pass@k and pass^k, and details of every task.")
def run(
    spec: Path | None,
    k: int | None,
    workers: int | None,
    timeout: float | None,
    fail_fast: int | None,
    model: str | None,
    judge_model: str | None,
    ablate: tuple[str, ...],
    user_customizations: bool | None,
    max_tokens: int | None,
    max_cost: float | None,
    max_tokens_per_attempt: int | None,
    dry_run: bool,
    resume: bool,
    run_id: str | None,
    output: Path | None,
    wait: bool,
    no_input: bool,
    verbose: bool,
) -> None:
    """Attempt every task of SPEC k times, judge each attempt, score and record the run."""
    refuse_beyond("--k", k, MOST_ATTEMPTS)
    refuse_beyond("--workers", workers, MOST_WORKERS)
    refuse_beyond("--timeout", timeout, MOST_SECONDS)
    refuse_beyond("--max-tokens", max_tokens, MOST_TOKENS)
    refuse_beyond("--max-tokens-per-attempt", max_tokens_per_attempt, MOST_TOKENS)
    if max_cost is not None and not 0 < max_cost <= MOST_DOLLARS:
        raise BadInput(f"--max-cost {max_cost:g}: must be above 0 and at most {MOST_DOLLARS}.")
    if fail_fast is not None and fail_fast < 0:
        raise BadInput(f"--fail-fast {fail_fast}: cannot be negative.", hint="0 never gives a task up.")
    engine = parse_engine(model) if model is not None else None
    judge = parse_engine(judge_model, flag="--judge-model") if judge_model is not None else None
    if run_id is not None and not resume:
        raise BadInput(
            "--run-id names the run to take up.", hint=f"Add --resume: caliper run --resume --run-id {run_id}"
        )
    project = find_project(Path.cwd())
    offer = LoginOffer(ask=not no_input)
    allowance = Allowance(max_tokens, max_cost, max_tokens_per_attempt) if resume else None

    def take_up(run: str | None) -> Evaluation:
        return resume_run(project, run_id=run, spec_path=spec, k=k, workers=workers, allowance=allowance)

    if resume:
        _refuse_with_resume(engine, judge, ablate, timeout, user_customizations)
        if dry_run:
            raise BadInput("--dry-run shows a new run.", hint="Leave out --resume.")
        evaluation = offer.until_logged_in(lambda: take_up(run_id))
    else:
        if spec is None:
            raise click.UsageError("Missing argument 'SPEC'.")
        request = RunRequest(
            spec_path=spec,
            engine=engine,
            judge_engine=judge,
            k=k,
            workers=workers,
            timeout_seconds=timeout,
            fail_fast=fail_fast or None,
            ablate=ablate,
            user_customizations=user_customizations,
            max_tokens=max_tokens,
            max_cost_usd=max_cost,
            max_tokens_per_attempt=max_tokens_per_attempt,
        )
        if dry_run:
            _show_plan(project, request)
            return
        evaluation = offer.until_logged_in(lambda: prepare(project, request))
    summary = run_evaluation(evaluation, project, output=output, wait=wait, verbose=verbose)
    while isinstance(summary.fatal, LoginRequired) and offer.take_up(summary.fatal):
        evaluation = offer.until_logged_in(partial(take_up, summary.header.run_id))
        summary = run_evaluation(evaluation, project, output=output, wait=wait, verbose=verbose)
    sys.exit(exit_code(summary))


def _show_plan(project: Project, request: RunRequest) -> None:
    from caliper_pipeline.evaluation.dry_run import dry_run
    from caliper_pipeline.interfaces.render.plan import plan_lines

    for line in plan_lines(dry_run(project, request)):
        click.echo(line)


def run_evaluation(
    evaluation: Evaluation,
    project: Project,
    *,
    output: Path | None = None,
    wait: bool = False,
    verbose: bool = False,
    panels: bool = True,
) -> RunSummary:
    """Execute with live progress, a recorder and signals handled; show the result."""
    recorder = _start_recorder(project, evaluation.header.run_id)
    stop = StopToken()
    with _stopping_on_signals(stop), make_progress(evaluation.header) as progress:
        summary = evaluation.execute(progress, stop)
    if summary.results_path is not None:
        if output is not None:  # before anything is shown: whoever reads that may have gone away
            _copy_results(summary.results_path, output)
        # Only now: the first agent need not wait for the library that draws tables.
        from caliper_pipeline.interfaces.render.run import show_run

        show_run(summary.results, verbose=verbose, panels=panels)
    _tell(summary, project)
    if wait and recorder is not None:
        click.echo("Waiting for Dagster to record the run …", err=True)
        if recorder.wait() != 0:
            click.echo("The recorder failed; `caliper sync` records the run later.", err=True)
    return summary


def exit_code(summary: RunSummary) -> int:
    """Fatal cause, save failure, interrupted, nothing measured, hook failures; else 0."""
    if summary.fatal is not None or summary.save_error is not None:
        return EXIT_CANNOT_RUN
    if summary.interrupted:
        return EXIT_INTERRUPTED
    attempts = [attempt for task in summary.results.task_results for attempt in task.attempts]
    if not attempts or all(attempt.outcome.noise for attempt in attempts):
        return EXIT_CANNOT_RUN
    return EXIT_CANNOT_RUN if summary.hook_failures or summary.ungraded else 0


def _tell(summary: RunSummary, project: Project) -> None:
    run_id = summary.header.run_id
    if summary.fatal is not None:
        click.echo(f"Run stopped: {summary.fatal.message}", err=True)
        if summary.fatal.hint is not None:
            click.echo(summary.fatal.hint, err=True)
    if summary.interrupted:
        click.echo("Interrupted: finished attempts are kept.", err=True)
    if summary.ungraded:
        click.echo(f"{summary.ungraded} attempts are stored but not judged yet.", err=True)
    if summary.fatal is not None or summary.interrupted or summary.ungraded:
        click.echo(f"Take the run up again with: caliper run --resume --run-id {run_id}", err=True)
    if summary.history_error is not None:
        click.echo(f"The history could not be updated: {summary.history_error}", err=True)
    if summary.save_error is not None:
        click.echo(f"The results could not be saved under {project.root}: {summary.save_error}", err=True)
    if summary.results_path is not None:
        click.echo(f"Results saved to {summary.results_path}")


def _copy_results(source: Path, target: Path) -> None:
    import shutil

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Not copyfile, which refuses pipes and devices such as /dev/stdout.
        with source.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer)
    except OSError as error:
        click.echo(f"Warning: --output {target}: {error.strerror}. The results are in {source}.", err=True)


def _start_recorder(project: Project, run_id: str) -> subprocess.Popen[bytes] | None:
    if os.environ.get("CALIPER_RECORDER", "").lower() in ("off", "0", "no", "false"):
        return None
    return start_recorder(project, run_id)


@contextmanager
def _stopping_on_signals(stop: StopToken) -> Iterator[None]:
    """The first signal stops the run and keeps what is finished; the second quits at once.

    On the second, agents end all the same: whatever starts them notices that this process is gone.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set:
            os._exit(EXIT_INTERRUPTED)
        stop.set()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refuse_beyond(flag: str, value: float | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise BadInput(f"{flag} {value:g}: must be at least 1 and at most {most}.")


def _refuse_with_resume(
    engine: Engine | None,
    judge: Engine | None,
    ablate: tuple[str, ...],
    timeout: float | None,
    customizations: bool | None,
) -> None:
    """A resumed run keeps what it began with, or its attempts could not be put together."""
    given = {
        "--model": engine,
        "--judge-model": judge,
        "--ablate": ablate or None,
        "--timeout": timeout,
        "--user-customizations": customizations,
    }
    named = [flag for flag, value in given.items() if value is not None]
    if named:
        raise BadInput(
            f"--resume takes a run up as it began; {', '.join(named)} cannot change it.",
            hint="Leave them out, or start a new run.",
        )
