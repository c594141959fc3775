"""`caliper validate`: is a spec, with everything it names, fit to be run? Offline, and without starting anything."""

from pathlib import Path

import click

from caliper_pipeline.domain.errors import CaliperError
from caliper_pipeline.interfaces.lean_imports import without_pydantic_plugins
from caliper_pipeline.interfaces.problems import print_line, show_error, show_warnings

with without_pydantic_plugins():
    from caliper_pipeline.sources.spec_file import LoadedSpec, load_spec


@click.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.pass_context
def validate(context: click.Context, specs: tuple[Path, ...]) -> None:
    """Check specs and their skills, without running anything.

    Exit code 0: all are valid. 1: something is wrong with at least one.
    """
    refused = False
    for path in specs:
        try:
            loaded = load_spec(path, Path.home())
        except CaliperError as error:
            show_error(error)
            refused = True
        else:
            _show(loaded)
            show_warnings(loaded.warnings)
            show_warnings(f"{skill.path}: {text}" for skill in loaded.skills for text in skill.warnings)
    if refused:
        context.exit(1)


def facts(loaded: LoadedSpec) -> list[tuple[str, str]]:
    """What a spec holds, as labelled lines."""
    spec = loaded.spec
    skills = ", ".join(skill.name for skill in loaded.skills)
    if loaded.git_sources:
        count = len(loaded.git_sources)
        fetched = f"{count} from git, not fetched: {'their names are' if count > 1 else 'its name is'} not known here"
        skills = f"{skills}; {fetched}" if skills else fetched
    asserting = sum(task.activates is not None for task in spec.tasks)
    lines = [
        ("skills", skills or "none: the bare agent"),
        ("tasks", f"{len(spec.tasks)} ({asserting} asserting activates)"),
        ("engine", "chosen when it runs (--model, --judge-model)"),
    ]
    if spec.mcp_declared:
        lines.insert(1, ("mcp", ", ".join(spec.mcp) or "none: the operator's own servers stay out too"))
    if spec.user_customizations is not None:
        wish = "load into attempts" if spec.user_customizations else "stay out of attempts"
        stated = str(spec.user_customizations).lower()
        lines.append(("user", f"customizations {wish} (user_customizations: {stated})"))
    return lines


def _show(loaded: LoadedSpec) -> None:
    # By hand: rich would cost a fifth of this command's time for a frame around five lines.
    print_line(f"✓ Spec is valid: {loaded.name}", fg="green")
    for label, text in facts(loaded):
        print_line(f"  {label:<8} {text}")
