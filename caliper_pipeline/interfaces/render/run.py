"""The page at the end of `caliper run`: the same as `caliper report` shows."""

from caliper_pipeline.domain.results import Results
from caliper_pipeline.interfaces.render.console import View
from caliper_pipeline.interfaces.render.report import show_results


def show_run(results: Results, *, verbose: bool = False, panels: bool = True) -> None:
    """Print it to standard output."""
    view = View()
    show_results(view, results, verbose=verbose, panels=panels)
    view.print()
