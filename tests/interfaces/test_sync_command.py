"""`caliper sync` brings the history up to what lies on disk."""

from pathlib import Path

from caliper_pipeline.storage import history

from .test_run_command import GOOD, TASK, Place


def test_a_run_that_the_history_lacks_is_published(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(TASK, GOOD)
    assert place.run("run", "it.eval.yaml", "--model", "scripted", "--k", "1")[0] == 0
    database = tmp_path / ".caliper" / "history.duckdb"
    database.unlink()
    code, out, err = place.run("sync")
    assert code == 0, err
    assert "Published 1 run to the history." in out
    assert history.history_json(database)["run_count"] == 1
    assert "Published" not in place.run("sync")[1]
