"""`caliper history import`: results files of any age, of the reference product or of this one, into the history."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.interfaces.problems import say, show_error, show_warnings
from caliper_pipeline.interfaces.render.text import one_line, plural
from caliper_pipeline.storage.root import root_for_saving

_MANY = 50
"""Files from which on a person is shown how far it has come."""


@click.command(name="import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be taken in, and change nothing.")
@click.pass_context
def import_files(context: click.Context, paths: tuple[Path, ...], dry_run: bool) -> None:
    """Take results files into the history: of caliper-eval from 0.4 on, and of this product.

    PATH is a file, or a folder: then all *.json below folders called results in it, or, where it has none, all *.json.

    What is there already is passed over, so it can be done again. A file that cannot be read is named and keeps no
    other back; the exit code is then 1. The bytes of what is taken in are kept in .caliper/records.
    """
    from caliper_pipeline.evaluation.history_import import files_meant, import_into

    root = root_for_saving(Path.cwd())
    files = list(files_meant(paths))
    recorded = there = refused = 0
    with _counted(files) as counted:
        for found in import_into(root, counted, dry_run=dry_run, told=lambda text: show_warnings([text])):
            if found.refused is not None:
                refused += 1
                show_error(BadInput(f"{one_line(str(found.path))}: {one_line(found.refused)}"))
            elif found.new:
                recorded += 1
            else:
                there += 1
    say(
        f"{'Would record' if dry_run else 'Recorded'} {plural(recorded, 'run')}, "
        f"already there {there}, refused {refused}."
    )
    if refused:
        context.exit(1)


@contextmanager
def _counted(files: Sequence[Path]) -> Iterator[Sequence[Path] | Iterator[Path]]:
    """The files, with a bar that shows how many are done where a person waits for it."""
    if len(files) < _MANY or not sys.stderr.isatty():
        yield files
        return
    with click.progressbar(files, label="Reading", file=sys.stderr) as bar:
        yield iter(bar)
