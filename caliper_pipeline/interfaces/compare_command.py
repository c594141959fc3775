"""`caliper compare`: two runs side by side, as a page or as data."""

from pathlib import Path

import click

from caliper_pipeline.domain.comparison import compare as compare_results
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.storage.results import load_results, resolve
from caliper_pipeline.storage.root import find_root


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show pass@k and pass^k of both sides.")
def compare(a: str, b: str, form: str, verbose: bool) -> None:
    """Show what changed from run A to run B.

    Each is a spec's name or file (its latest run) or a results file.
    """
    root = find_root(Path.cwd())
    paths = [resolve(root, reference) for reference in (a, b)]
    if paths[0].resolve() == paths[1].resolve():
        raise BadInput(
            f"{a} and {b} are the same run: {paths[0]}.",
            hint="A spec's name means its latest run. Name an older one by its file; "
            "`caliper list SPEC` shows them, under .caliper/results/SPEC/.",
        )
    found = compare_results(load_results(paths[0]), load_results(paths[1]))
    if form == "json":
        from caliper_pipeline.domain.comparison_json import comparison_dict
        from caliper_pipeline.interfaces.render.data import show_json

        show_json(comparison_dict(found))
        return
    from caliper_pipeline.interfaces.render.comparison import show_comparison
    from caliper_pipeline.interfaces.render.console import View

    show_comparison(View(), found, verbose=verbose)
