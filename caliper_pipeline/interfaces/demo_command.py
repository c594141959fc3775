"""`caliper demo`: an example skill and spec in a folder of one's own, evaluated with the skill and without it."""

import shutil
import sys
from pathlib import Path

import click

from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.project import MOST_ATTEMPTS, MOST_WORKERS
from caliper_pipeline.evaluation.prepare import prepare
from caliper_pipeline.evaluation.project import find_project
from caliper_pipeline.evaluation.request import RunRequest, RunSummary
from caliper_pipeline.interfaces.run_command import exit_code, refuse_beyond, run_evaluation

EXAMPLE = "release-notes"
EXAMPLES = (EXAMPLE, "meeting-minutes")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("caliper-demo"))
@click.option("--model", default="scripted", show_default=True, metavar="ENGINE", help="claude-code: the real agent.")
@click.option("--k", type=int, default=5, show_default=True, help="Attempts a task.")
@click.option("--workers", type=int, default=4, show_default=True, help="Attempts at once.")
def demo(folder: Path, model: str, k: int, workers: int) -> None:
    """Copy an example skill and its spec into FOLDER, then run it with the skill and without it."""
    engine = parse_engine(model)
    refuse_beyond("--k", k, MOST_ATTEMPTS)
    refuse_beyond("--workers", workers, MOST_WORKERS)
    try:
        spec = lay_out(folder)
    except OSError as error:
        raise BadInput(
            f"The example cannot be written to {folder}: {error.strerror}.", hint="Name a folder: caliper demo FOLDER"
        ) from error
    project = find_project(folder)
    click.echo(f"The example is in {folder}: a skill (SKILL.md), its spec (.eval.yaml), and a neighbour.\n", err=True)
    codes = []
    for arm in ((), (EXAMPLE,)):
        summary = _run(project_spec=spec, engine=engine, k=k, workers=workers, ablate=arm)
        codes.append(exit_code(summary))
        if summary.interrupted or summary.fatal is not None:
            sys.exit(codes[-1])
    _say_what_next(folder, project.history_path, spec, engine)
    sys.exit(max(codes))


def _run(*, project_spec: Path, engine: Engine, k: int, workers: int, ablate: tuple[str, ...]) -> RunSummary:
    title = f"Without {', '.join(ablate)} (the control)" if ablate else "With every skill installed"
    click.secho(f"{title}\n", bold=True)
    project = find_project(project_spec.parent)
    request = RunRequest(spec_path=project_spec, engine=engine, k=k, workers=workers, ablate=ablate)
    summary = run_evaluation(prepare(project, request), project, panels=False)
    click.echo()
    return summary


def lay_out(folder: Path) -> Path:
    """Copy the bundled example; gives its spec. Files that are there already are left as they are."""
    source = bundled_examples()
    (folder / ".caliper").mkdir(parents=True, exist_ok=True)
    for name in EXAMPLES:
        for path in sorted((source / name).iterdir()):
            target = folder / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and not target.exists():
                shutil.copyfile(path, target)
    return folder / EXAMPLE / f"{EXAMPLE}.eval.yaml"


def bundled_examples() -> Path:
    """The example skills: inside an installed package, or in the checkout that is run in place."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "examples", package.parent / "skills" / "examples"):
        if candidate.is_dir():
            return candidate
    raise BadInput("The bundled examples are missing from this installation.", hint="Reinstall caliper-pipeline.")


def _say_what_next(folder: Path, history: Path, spec: Path, engine: Engine) -> None:
    if engine.simulated:
        click.echo(
            "A script played the agent: these figures are simulated. `caliper demo --model claude-code` is real."
        )
    relative = spec.relative_to(folder)
    click.echo(f"Run history (DuckDB):  {history}")
    click.echo(f"Web UI:                cd {folder} && caliper ui")
    click.echo(f"What went wrong:       cd {folder} && caliper report {spec.stem.removesuffix('.eval')}")
    click.echo(f"Change and run again:  cd {folder} && caliper run {relative} --model {engine}")
