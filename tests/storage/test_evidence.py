import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.storage.evidence import Evidence, read_evidence, read_judgement, save_evidence, save_judgement
from caliper_pipeline.storage.runs import RunFolder

from .strategies import any_of

Start = Callable[..., "Popen[bytes]"]

TURNS = (
    Turn("assistant", "I look."),
    Turn("tool_use", tool_name="Bash", tool_input={"command": "ls", "n": 1.5}, call_id="a"),
    Turn("tool_result", "total 0", call_id="a", is_error=False),
)


def test_what_was_kept_is_read_back(run: RunFolder, tmp_path: Path) -> None:
    tar = tmp_path / "snapshot.tar"
    tar.write_bytes(b"archive")
    evidence = Evidence(
        TURNS, "It is empty.", "What is here?", b'{"type":"x"}\n', b"warned", Usage(1, 2), {"setup_seconds": 0.25}, tar
    )
    relative = run.save_evidence("What: is/here?", 7, evidence)
    kept = run.read_evidence(relative)
    assert relative.startswith("evidence/What-is-here".lower()) and relative.endswith("/007")
    assert (kept.turns, kept.final_answer, kept.prompt) == (TURNS, "It is empty.", "What is here?")
    assert (kept.usage, kept.extra) == (Usage(1, 2), {"setup_seconds": 0.25})
    assert kept.stream is not None and kept.stream.read_bytes() == b'{"type":"x"}\n'
    assert kept.stderr is not None and kept.stderr.read_bytes() == b"warned"
    assert kept.workdir_tar is not None and kept.workdir_tar.read_bytes() == b"archive"
    assert not tar.exists()


def test_what_there_was_not_is_none(run: RunFolder) -> None:
    kept = run.read_evidence(run.save_evidence("t", 1, Evidence()))
    assert (kept.usage, kept.stderr, kept.workdir_tar, kept.turns) == (None, None, None, ())


def test_a_snapshot_on_another_file_system_is_copied(run: RunFolder) -> None:
    other = Path("/dev/shm") / f"snapshot-{os.getpid()}.tar"
    if not other.parent.is_dir() or other.parent.stat().st_dev == run.path.stat().st_dev:
        pytest.skip("no second file system")
    other.write_bytes(b"archive")
    kept = run.read_evidence(run.save_evidence("t", 1, Evidence(workdir_tar=other)))
    assert kept.workdir_tar is not None and kept.workdir_tar.read_bytes() == b"archive"
    assert not other.exists()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@hypothesis_given(
    st.lists(
        st.builds(
            Turn,
            role=st.sampled_from(("assistant", "tool_use", "tool_result", "user")),
            content=any_of(str),
            tool_name=any_of(str | None),
            tool_input=st.none() | st.dictionaries(any_of(str), st.recursive(any_of(str) | any_of(int), st.lists)),
            call_id=any_of(str | None),
            is_error=any_of(bool | None),
            parent_call_id=any_of(str | None),
        ),
        max_size=4,
    ),
    any_of(str),
    any_of(Usage | None),
)
def test_every_transcript_comes_back_as_it_was(
    tmp_path: Path, turns: list[Turn], answer: str, usage: Usage | None
) -> None:
    kept = read_evidence(tmp_path, save_evidence(tmp_path, "t", 1, Evidence(turns, answer, usage=usage)))
    assert (list(kept.turns), kept.final_answer, kept.usage) == (turns, answer, usage)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    "odd",
    [
        {"text": "half \ud83d of a pair"},
        {"number": float("nan"), "more": float("-inf")},
        {"number": 10**6000},
        {"deep": nested(sys.getrecursionlimit() * 2)},
        {1: "a number for a key", "bytes": b"\xff"},
    ],
)
def test_what_json_cannot_hold_costs_no_attempt(tmp_path: Path, odd: dict[Any, Any]) -> None:
    turns = (Turn("tool_use", tool_name="Bash", tool_input=odd), Turn("assistant", "after"))
    kept = read_evidence(tmp_path, save_evidence(tmp_path, "t", 1, Evidence(turns)))
    assert [turn.role for turn in kept.turns] == ["tool_use", "assistant"]
    assert kept.turns[1].content == "after"


def test_an_orphan_of_a_crash_gives_way(run: RunFolder) -> None:
    first = run.save_evidence("t", 1, Evidence(final_answer="before the crash", raw_stderr=b"old"))
    second = run.save_evidence("t", 1, Evidence(final_answer="made again"))
    kept = run.read_evidence(second)
    assert (first, kept.final_answer, kept.stderr) == (second, "made again", None)
    assert [path.name for path in (run.path / "evidence/t").iterdir()] == ["001"]


def test_tasks_whose_names_differ_in_letter_case_alone_are_kept_apart(run: RunFolder) -> None:
    folders = {run.save_evidence(name, 1, Evidence(final_answer=name)).lower() for name in ("Happy", "happy", "HAPPY")}
    assert len(folders) == 3


def test_what_the_judge_was_asked_stays_with_every_generation(tmp_path: Path) -> None:
    relative = save_evidence(tmp_path, "t", 1, Evidence())
    save_judgement(tmp_path, relative, 1, "Did it?\ud800", ["no json", '{"passed": true}'])
    save_judgement(tmp_path, relative, 2, "And now?", ["yes"])
    assert read_judgement(tmp_path, relative, 1) == ("Did it?\ufffd", ("no json", '{"passed": true}'))
    assert read_judgement(tmp_path, relative, 2) == ("And now?", ("yes",))
    assert read_judgement(tmp_path, relative, 3) is None


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../../x", "evidence/../..", "evidence/a", "evidence/a/b/c", "a/b/c"]
)
def test_a_line_cannot_point_out_of_its_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="Not a folder of evidence"):
        read_evidence(tmp_path, name)


def test_evidence_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    relative = save_evidence(tmp_path, "t", 1, Evidence())
    for damage in (b"{", b"[]", b'{"turns": [1]}', b"\xff"):
        (tmp_path / relative / "evidence.json").write_bytes(damage)
        with pytest.raises(StorageError, match=r"evidence\.json: it is damaged"):
            read_evidence(tmp_path, relative)
    (tmp_path / relative / "evidence.json").unlink()
    with pytest.raises(StorageError, match=r"Cannot read .*evidence\.json: No such file"):
        read_evidence(tmp_path, relative)


def test_an_unwritable_place_is_a_storage_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("a file where a folder must be")
    with pytest.raises(StorageError, match=r"Cannot write .*evidence/t/001"):
        save_evidence(tmp_path, "t", 1, Evidence())


SAVE = """
import itertools, sys
from pathlib import Path
from caliper_pipeline.domain.transcript import Turn
from caliper_pipeline.storage.evidence import Evidence, save_evidence
for number in itertools.count(1):
    turns = [Turn("assistant", f"{number} " * 2000)] * 5
    save_evidence(Path(sys.argv[1]), "t", number, Evidence(turns, str(number), raw_stdout=b"x" * 100_000))
    print(number, flush=True)
"""


def test_a_kill_leaves_each_evidence_whole_or_absent(tmp_path: Path, python: Start) -> None:
    for turn in range(3):
        top = tmp_path / str(turn)
        saver = python(SAVE, top)
        assert saver.stdout is not None
        for _ in range(5 * turn + 2):
            saver.stdout.readline()
        os.kill(saver.pid, signal.SIGKILL)
        saver.wait()
        acknowledged = 5 * turn + 2 + saver.stdout.read().count(b"\n")
        saver.communicate()
        visible = sorted(path.name for path in (top / "evidence/t").iterdir() if not path.name.startswith("."))
        assert len(visible) >= acknowledged
        for name in visible:
            kept = read_evidence(top, f"evidence/t/{name}")
            assert kept.final_answer == str(int(name)) and len(kept.turns) == 5
            assert kept.stream is not None and kept.stream.stat().st_size == 100_000
