"""`caliper migrate`: a spec of release 0.4 in the present form, in place."""

import os
import tempfile
from pathlib import Path

import click

from caliper_pipeline.domain.errors import BadInput, SpecError
from caliper_pipeline.interfaces.problems import say, show_error
from caliper_pipeline.sources.migrate import Migration, migrate_spec
from caliper_pipeline.sources.spec_file import check_spec
from caliper_pipeline.sources.text_file import TextFile, read_text

_BOM = b"\xef\xbb\xbf"


@click.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when a spec is still in the old form.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print the new form instead of writing it.")
@click.pass_context
def migrate(context: click.Context, specs: tuple[Path, ...], check: bool, to_stdout: bool) -> None:
    """Rewrite specs of release 0.4 in the present form, in place.

    `skill:` becomes the list `skills:`, `judge:` goes, and every comment and every other line stays as it is. A file is
    written only when the result is valid, and then in one step.
    """
    if check and to_stdout:
        raise click.UsageError("--check and --stdout exclude each other.")
    failed = False
    for path in specs:
        try:
            failed |= not _one(path, check=check, to_stdout=to_stdout)
        except BadInput as error:
            show_error(error)
            failed = True
    if failed:
        context.exit(1)


def _one(path: Path, *, check: bool, to_stdout: bool) -> bool:
    """Whether all is well with one spec."""
    file = read_text(path, str(path))
    migration = migrate_spec(file.text, str(path), path.parent)
    data = (_BOM if file.data.startswith(_BOM) else b"") + migration.text.encode()
    if to_stdout:
        click.echo(data, nl=False)
    elif not migration.changed:
        say(f"{path}: nothing to do, it is in the present form.")
    elif check:
        say(f"{path}: is in the form of release 0.4.")
        return False
    else:
        try:
            check_spec(path, TextFile(migration.text, data), Path.home())
        except SpecError as error:
            hint = "Nothing was written: the lines are those of the new form, which --stdout shows. Mend these first."
            raise SpecError(error.problems, hint=hint) from error
        _replace(path, data)
        say(f"{path}: rewritten.")
    if migration.changed:
        _advise(path, migration)
    return True


def _advise(path: Path, migration: Migration) -> None:
    if migration.flags:
        say(f"  Its engines are now chosen when it runs: caliper run {path} {' '.join(migration.flags)}")
    say(
        "  Hooks and asserts now run in the attempt's own empty folder; $CALIPER_SPEC_DIR is the spec's. "
        "The old keys inside prompts and scripts, if any, are left as they are."
    )


def _replace(path: Path, data: bytes) -> None:
    """Put the data in the file's place in one step; where the path is a link, in that of its target."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o7777
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        draft = Path(file.name)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            draft.chmod(mode)
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
