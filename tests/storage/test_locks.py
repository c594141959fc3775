from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.storage.files import exclusive_lock

Start = Callable[..., "Popen[bytes]"]
HOLD = """
import sys
from pathlib import Path
from caliper_pipeline.storage.files import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""


def held(python: Start, path: Path) -> "Popen[bytes]":
    process = python(HOLD, path)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    return process


def let_go(process: "Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def test_who_waits_gets_the_lock_when_it_is_free(tmp_path: Path, python: Start) -> None:
    path = tmp_path / "lock"
    owner = held(python, path)
    let_go(owner)
    with exclusive_lock(path, limit_seconds=30):
        other = python(HOLD, path)
        with (
            pytest.raises(StorageError, match="held by another process for 0 s"),
            exclusive_lock(path, limit_seconds=0.05),
        ):
            raise AssertionError("two have it")
    assert other.communicate(b"\n")[0] == b"held\nreleased\n"
    owner.communicate()


def test_who_has_given_up_waiting_does_not_keep_the_lock_from_others(tmp_path: Path, python: Start) -> None:
    path = tmp_path / "lock"
    owner = held(python, path)
    for _ in range(3):
        with pytest.raises(StorageError, match="held by another process"), exclusive_lock(path, limit_seconds=0.02):
            raise AssertionError("two have it")
    owner.communicate(b"\n")
    assert python(HOLD, path).communicate(b"\n")[0] == b"held\nreleased\n"
    with exclusive_lock(path, limit_seconds=30):
        pass
