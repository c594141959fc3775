"""The history among many processes: writing, reading, holding it open, and dying. Longer in `tests/benchmarks`."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import history_soak  # noqa: E402


def test_four_writers_two_readers_and_an_open_shell_lose_nothing_and_meet_no_error(tmp_path: Path) -> None:
    found = history_soak.soak(tmp_path, 5.0)
    assert found["runs"] >= 5
    assert found["reads"] >= 2


def test_after_twenty_kills_the_history_is_row_by_row_what_is_made_anew(tmp_path: Path) -> None:
    found = history_soak.kills(tmp_path, 20)
    assert found["rows_compared"] > 500
