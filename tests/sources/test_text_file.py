"""Reading text that may be anything."""

import os
from pathlib import Path

import pytest

from caliper_pipeline.domain.errors import SpecError
from caliper_pipeline.sources.text_file import decode, printable, read_text


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"a", "a"), (b"\xef\xbb\xbfa", "a"), ("café 🌊".encode(), "café 🌊"), (b"a\r\nb\r", "a\r\nb\r"), (b"", "")],
)
def test_utf8_is_read_with_and_without_a_mark(data: bytes, text: str) -> None:
    assert decode(data, "f") == text


@pytest.mark.parametrize(
    ("data", "words", "line"),
    [
        ("a: é".encode("latin-1"), "byte 0xE9 at offset 3", 1),
        (b"a\nb\n\xff", "byte 0xFF at offset 4", 3),
        (b"\xef\xbb\xbfa\xff", "byte 0xFF at offset 4", 1),  # offsets count the mark
        (b"ok\n\xed\xa0\xbc", "not UTF-8", 2),  # half a surrogate pair, encoded
        ("x: 1".encode("utf-16"), "UTF-16", None),
        ("x: 1".encode("utf-16-le"), "UTF-16", None),
        ("x: 1".encode("utf-16-be"), "UTF-16", None),
        ("x: 1".encode("utf-32"), "UTF-32", None),
        (b"abcdefgh\nij\0", "NUL", 2),
    ],
)
def test_another_encoding_is_one_clear_error(data: bytes, words: str, line: int | None) -> None:
    with pytest.raises(SpecError) as caught:
        decode(data, "f.yaml")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == ("f.yaml", line)
    assert words in problem.message


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for path, words in (
        (tmp_path / "pipe", "a pipe"),
        (tmp_path, "a folder"),
        (Path("/dev/zero"), "a device"),
        (tmp_path / "loop", "circle"),
        (tmp_path / "none", "does not exist"),
        (tmp_path / ("x" * 300), "no usable path"),
    ):
        with pytest.raises(SpecError, match=words):
            read_text(path, "f")


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * 11)
    with pytest.raises(SpecError, match="too large: 11 bytes"):
        read_text(path, "f", limit=10)


def test_what_could_steer_a_terminal_is_made_visible() -> None:
    assert printable("a\x1b[31m\n\ud800 é→") == "a\\x1b[31m\\n\\ud800 é→"
    assert printable("\udcc3\udca9") == "é"  # the bytes of a file name, as an ASCII locale has them
    assert printable("\udcff") == "\\udcff"
