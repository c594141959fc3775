"""Draws how a spec did from run to run, with the 95 % interval of each run.

    python docs/trend.py SPEC [--project FOLDER] [--engine ENGINE] [--arm full] [--output trend.png]

With matplotlib a picture, without it (or without --output) lines of text.
"""

import argparse
from collections.abc import Sequence

from caliper_pipeline import history
from caliper_pipeline.history import TrendPoint

WIDTH = 50


def as_text(points: Sequence[TrendPoint]) -> str:
    """A line a run: its interval as a bar, its score as a dot in it."""
    lines = []
    for point in points:
        if point.score is None or point.score_low is None or point.score_high is None:
            lines.append(f"{point.run_utc:%Y-%m-%d %H:%M}  not measured")
            continue
        low, dot, high = (round(rate * WIDTH) for rate in (point.score_low, point.score, point.score_high))
        bar = "".join("●" if place == dot else "─" if low <= place <= high else " " for place in range(WIDTH + 1))
        mark = " *" if point.spec_changed else ""
        lines.append(f"{point.run_utc:%Y-%m-%d %H:%M}  |{bar}| {point.score:6.1%} of {point.usable}{mark}")
    return "\n".join(lines)


def draw(points: Sequence[TrendPoint], path: str) -> None:
    """A picture: one line an engine, each run with its interval; a dotted line where the spec was edited."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4))
    for engine in sorted({point.engine for point in points}):
        shown = [point for point in points if point.engine == engine and point.score is not None]
        below = [point.score - point.score_low for point in shown]
        above = [point.score_high - point.score for point in shown]
        times = [point.run_utc for point in shown]
        axes.errorbar(times, [point.score for point in shown], [below, above], fmt="o-", capsize=3, label=engine)
    for point in points:
        if point.spec_changed:
            axes.axvline(point.run_utc, linestyle=":", color="grey")
    axes.set(ylim=(0, 1), ylabel="success rate", title=f"{points[0].spec} ({points[0].arm})")
    axes.legend()
    figure.autofmt_xdate()
    figure.savefig(path, dpi=150, bbox_inches="tight")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("--project", help="a folder of the project; left out: the one you are in")
    parser.add_argument("--engine", help="backend, or backend:model; left out: all")
    parser.add_argument("--arm", default="full", help="full, or what was taken away")
    parser.add_argument("--output", help="a picture: .png, .svg or .pdf")
    given = parser.parse_args(arguments)
    with history.open(given.project) as opened:
        points = opened.trend(given.spec, engine=given.engine, arm=given.arm).rows()
    if not points:
        parser.exit(1, f"No run of {given.spec!r} with the arm {given.arm!r}.\n")
    if any(point.simulated for point in points):
        print("Some of these runs are simulated: a script played the agent.")
    if given.output is not None:
        try:
            draw(points, given.output)
            return
        except ImportError:
            print("matplotlib is not installed; as text:")
    for engine in sorted({point.engine for point in points}):
        print(engine)
        print(as_text([point for point in points if point.engine == engine]))
    if any(point.spec_changed for point in points):
        print("* the spec was edited")


if __name__ == "__main__":
    main()
