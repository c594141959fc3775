"""The bytes of a results file, and the plain data in them; what is wrong with either is said in a person's words."""

import codecs
import json
import os
import stat
from pathlib import Path
from typing import Any

LARGEST_FILE = 256 * 1024 * 1024
"""Bytes. A run of 200 attempts with long transcripts is 6 MB; a file beyond this would not fit into memory well."""
_OTHER_ENCODINGS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


def read_bytes(path: Path) -> bytes:
    """OSError or ValueError, whose words say why the file cannot be read."""
    try:
        status = path.stat()
    except FileNotFoundError:
        gone = "the file it links to is gone" if path.is_symlink() else "there is no such file"
        raise ValueError(gone) from None
    if stat.S_ISDIR(status.st_mode):
        raise ValueError("it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no plain file")
    if status.st_size > LARGEST_FILE:
        raise ValueError(
            f"it has {status.st_size / 2**20:,.0f} MiB, and at most {LARGEST_FILE / 2**20:,.0f} MiB are read"
        )
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        return stream.read()


def plain_data(data: bytes) -> Any:
    """The data in the JSON. ValueError says what is wrong, and where."""
    if not data.strip():
        raise ValueError("it is empty")
    for mark, name in _OTHER_ENCODINGS.items():
        if data.startswith(mark):
            raise ValueError(f"it is not JSON in UTF-8: it is in {name}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not JSON in UTF-8: byte {data[error.start]:#04x} at {error.start}") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or "Unterminated string" in error.msg:
            raise ValueError(f"it is not JSON: it breaks off in line {error.lineno}") from None
        raise ValueError(f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise ValueError("it is not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise ValueError(f"it is not JSON that can be read: {error}") from None
