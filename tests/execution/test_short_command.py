import os
import time
from pathlib import Path

import pytest

from caliper_pipeline.execution.backends.short_command import KEPT_BYTES, Said, ask

ENV = {"PATH": os.environ["PATH"]}


def sh(script: str, seconds: float = 30.0) -> Said:
    return ask(["/bin/sh", "-c", script], ENV, seconds)


class TestAsking:
    def test_both_outputs_and_the_exit_code_are_told(self) -> None:
        said = sh("echo out; echo err >&2; exit 3")
        assert (said.exit_code, said.out, said.err, said.timed_out) == (3, "out\n", "err\n", False)

    def test_what_is_left_in_the_background_is_not_waited_for(self) -> None:
        began = time.monotonic()
        said = sh("echo 1.2.3; sleep 30 & exit 0")
        assert (said.exit_code, said.version_line) == (0, "1.2.3")
        assert time.monotonic() - began < 10

    def test_a_flood_from_the_background_is_not_read_to_its_end(self) -> None:
        said = sh("echo 1.2.3; yes & exit 0")
        assert (said.exit_code, said.version_line) == (0, "1.2.3")
        assert len(said.out) <= KEPT_BYTES

    def test_a_command_that_closes_its_outputs_is_waited_for(self) -> None:
        said = sh("echo 1.2.3; exec >&- 2>&-; sleep 0.1; exit 4")
        assert (said.exit_code, said.out) == (4, "1.2.3\n")

    def test_a_command_that_does_not_end_is_ended(self) -> None:
        said = sh("echo hello; exec sleep 30", seconds=0.2)
        assert (said.exit_code, said.timed_out, said.out) == (None, True, "hello\n")

    def test_more_than_a_pipe_holds_comes_whole(self) -> None:
        assert len(sh("head -c 500000 /dev/zero | tr '\\0' x").out) == 500_000

    @pytest.mark.parametrize("script", ["#!/no/such/interpreter\n", "", "echo no first line\n"])
    def test_why_a_command_cannot_be_started_is_told(self, tmp_path: Path, script: str) -> None:
        command = tmp_path / "command"
        command.write_text(script, encoding="utf-8")
        command.chmod(0o755)
        assert "interpreter" in (ask([str(command)], ENV, 5).problem or "")


class TestVersionLine:
    @pytest.mark.parametrize(
        ("out", "told"),
        [
            ("codex-cli 0.171.0\n", "codex-cli 0.171.0"),
            ("Welcome!\n\n\x1b[1mtool 1.2.3\x1b[0m\r\nmore 9.9\n", "tool 1.2.3"),
            ("nightly build\n", "nightly build"),
            ("", None),
        ],
    )
    def test_it_is_the_first_that_holds_a_version(self, out: str, told: str | None) -> None:
        assert Said(0, out).version_line == told

    def test_standard_error_counts_when_there_is_nothing_else(self) -> None:
        assert Said(0, "\n", "v2.0\n").version_line == "v2.0"
