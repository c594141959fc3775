"""Where exported data goes: files that are whole or not there and replace nothing unasked, or a stream."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.storage.files import aside_name, finish, storage_errors, sync_path

T = TypeVar("T")
FORCE_HINT = "--force replaces what is there."


def write_file(path: Path, write: Callable[[BinaryIO], T], *, force: bool = False) -> T:
    """Writes the file in one step and gives what `write` gave. A pipe or a device is written to as it is.

    Raises `BadInput` when something is there already, `StorageError` when it cannot be written.
    """
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                return write(stream)
        with _aside(path, force) as aside, aside.open("xb") as stream:
            given = write(stream)
            finish(stream)
        return given


def let_write(path: Path, write: Callable[[Path], None], *, force: bool = False) -> None:
    """Like `write_file` for what writes by itself into a new file that it is told."""
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _aside(path, force) as aside:
            write(aside)
            sync_path(aside)


def let_stream(stream: BinaryIO, write: Callable[[Path], None]) -> None:
    """Copies to the stream what is written into a file that goes again."""
    with tempfile.TemporaryDirectory(prefix="export-") as folder:
        path = Path(folder) / "export"
        write(path)
        with path.open("rb") as written:
            shutil.copyfileobj(written, stream)


def refuse_existing(paths: list[Path]) -> None:
    """Before anything is written. Raises `BadInput`."""
    there = [path for path in paths if os.path.lexists(path)]
    if there:
        others = f", and {len(there) - 1} more of the files to be written" if len(there) > 1 else ""
        raise BadInput(f"{there[0]} exists already{others}.", hint=FORCE_HINT)


@contextmanager
def _aside(path: Path, force: bool) -> Iterator[Path]:
    if path.is_dir():
        raise BadInput(f"{path} is a folder.", hint="Name a file in it.")
    if not force:
        refuse_existing([path])
    aside = aside_name(path)
    try:
        yield aside
        if force:
            aside.replace(path)
        else:
            _claim(aside, path)
        sync_path(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def _claim(aside: Path, path: Path) -> None:
    """Gives the file its name unless somebody else has taken it by now."""
    try:
        os.link(aside, path)
    except FileExistsError:
        refuse_existing([path])
    except OSError:  # a file system without links
        refuse_existing([path])
        aside.replace(path)
