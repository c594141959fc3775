"""Files that people wrote, as text: UTF-8 whatever the locale, of a bounded size, and regular files only.

A name may lead to a pipe that never ends or to a device, so the file is looked at after it is opened and before it is
read. Each fault becomes one `Problem` that says where the bytes are and what would be right.
"""

import contextlib
import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.errors import Problem, SpecError

LARGEST = 8 * 1024**2
"""Bytes of a spec, a history or an assert script."""
_MARKS = ((b"\xff\xfe\0\0", "UTF-32"), (b"\0\0\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class TextFile:
    text: str
    """Without a byte order mark; line ends as they are."""
    data: bytes
    """The bytes as they are."""


def read_text(path: Path, shown: str, *, limit: int = LARGEST) -> TextFile:
    """The text of a file; `shown` is what messages call it. Raises `SpecError`."""
    data = read_bytes(path, shown, limit=limit)
    return TextFile(decode(data, shown), data)


def read_bytes(path: Path, shown: str, *, limit: int) -> bytes:
    """The bytes of a regular file of at most so many bytes; links are followed. Raises `SpecError`."""
    try:
        # O_NONBLOCK: opening a named pipe would otherwise wait for its writer.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refused(shown, _why(error)) from error
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise refused(shown, f"is {_kind(status.st_mode)}, not a file")
        if status.st_size > limit:
            raise refused(shown, f"is too large: {status.st_size:,} bytes, at most {limit:,} are read")
        with os.fdopen(number, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise refused(shown, _why(error)) from error
    finally:
        os.close(number)
    if len(data) > limit:
        raise refused(shown, f"is too large: more than {limit:,} bytes")
    return data


def decode(data: bytes, shown: str) -> str:
    """Bytes as UTF-8 text, with or without a byte order mark. Raises `SpecError` that names byte and line."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            raise refused(shown, f"is saved as {name}; save it as UTF-8")
    start = len(_BOM) if data.startswith(_BOM) else 0
    head = data[:2000]
    if head.count(0) * 4 > len(head):
        raise refused(shown, "looks like UTF-16 without a byte order mark; save it as UTF-8")
    try:
        text = data[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset = start + error.start
        line = data.count(b"\n", 0, offset) + 1
        message = (
            f"is not UTF-8: byte 0x{data[offset]:02X} at offset {offset} cannot be read. "
            "It may be saved in an older encoding such as Latin-1; save it as UTF-8"
        )
        raise refused(shown, message, line) from None
    if "\0" in text:
        raise refused(shown, "holds a NUL character: is this a text file?", line_at(text, text.index("\0")))
    return text


def line_at(text: str, offset: int) -> int:
    """The line of a place in a text, counted from 1; `\\n`, `\\r\\n` and `\\r` end lines."""
    return 1 + len(re.findall(r"\r\n?|\n", text[:offset]))


def refused(shown: str, message: str, line: int | None = None) -> SpecError:
    """The error for one problem with a file as a whole."""
    return SpecError([Problem(printable(shown), message, line=line)])


def named_path(text: str) -> str:
    """A path that stands in a file, for the system: UTF-8 whatever encoding the locale has for file names."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def absolute_path(path: Path) -> Path:
    """The path from the root, without `.` and `..`; when its last part is a link, that is not followed."""
    tidy = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow the last link
    try:
        # `a/../b` is not `b` where `a` is a link.
        same = tidy.parent.samefile(path.parent)
    except (OSError, ValueError):
        same = True
    return tidy if same else Path(os.path.realpath(path.parent)) / path.name


def file_identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, by which a file is known under all its names. `None`: it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def printable(text: str) -> str:
    """The text with what could steer a terminal, or cannot be written at all, made visible."""
    with contextlib.suppress(UnicodeError):
        text = text.encode("utf-8", "surrogateescape").decode("utf-8")  # a file name read in an ASCII locale
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


def _why(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "does not exist"
    if error.errno == errno.ELOOP:
        return "is a link that leads in a circle"
    if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        return f"is no usable path: {os.strerror(error.errno)}"
    return f"cannot be read: {error.strerror or error}"


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return name
    return "something special"
