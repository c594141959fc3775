"""Older databases, as the versions that wrote them left them."""

import contextlib
import re
import shutil
import tarfile
from pathlib import Path

import duckdb
import pytest

from caliper_pipeline.domain.errors import HistoryTooNew, StorageError
from caliper_pipeline.storage import history, history_filling
from caliper_pipeline.storage.migrations import CURRENT_VERSION
from caliper_pipeline.storage.runs import RunStore

from .history_tools import ask, everything

STORED = Path(__file__).parents[1] / "fixtures" / "history"
VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in STORED.glob("version-*.tar.xz"))


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The root of a project that an older version left behind."""
    with tarfile.open(STORED / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def raw(db: Path, query: str) -> list[tuple[object, ...]]:
    with contextlib.closing(duckdb.connect(str(db), read_only=True)) as con:
        return con.execute(query).fetchall()


def test_a_database_of_every_older_version_is_stored() -> None:
    assert [f"version-{version}" for version in range(1, CURRENT_VERSION)] == VERSIONS


def test_an_older_database_opens_and_keeps_every_row(old: Path) -> None:
    db = history.history_path(old)
    tables = ("runs", "tasks", "attempts", "verdicts", "scores", "skills", "hook_failures", "texts", "skill_files")
    before = {table: raw(db, f"SELECT count(*) FROM {table}") for table in tables}
    scores = raw(db, "SELECT run_id, score, status, resumes FROM runs ORDER BY 1")
    assert ask(db, "SELECT max(version) FROM schema_changes") == [(CURRENT_VERSION,)]
    assert {table: ask(db, f"SELECT count(*) FROM {table}") for table in tables} == before
    assert ask(db, "SELECT run_id, score, status, resumes FROM runs ORDER BY 1") == scores


def test_an_upgraded_database_equals_one_that_is_made_anew(old: Path, tmp_path: Path) -> None:
    db = history.history_path(old)
    with contextlib.closing(history.open_current(old)) as con:
        assert con.execute("SELECT count(*) FROM resumes").fetchall() == [(1,)]
    anew = tmp_path / "anew.duckdb"
    history.rebuild(anew, RunStore(old))
    assert everything(db) == everything(anew)
    assert history.check(db) == []


def test_an_upgraded_database_keeps_the_rows_of_runs_that_are_gone(old: Path) -> None:
    gone = raw(history.history_path(old), "SELECT min(run_id), count(*) FROM runs WHERE source = 'run_store'")
    (run_id, runs) = gone[0]
    shutil.rmtree(old / ".caliper" / "runs" / str(run_id))
    with contextlib.closing(history.open_current(old)) as con:
        assert con.execute("SELECT count(*) FROM runs WHERE source = 'run_store'").fetchall() == [(runs,)]
        assert con.execute("SELECT count(*) > 0 FROM attempts WHERE run_id = $1", [run_id]).fetchall() == [(True,)]


def test_an_older_database_where_nothing_can_be_written_is_read_all_the_same(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = history.history_path(old)
    before = db.read_bytes()
    told: list[str] = []

    def full(*_: object, **__: object) -> None:
        raise StorageError(f"Cannot write {db}: Read-only file system")

    for module in (history, history_filling):
        monkeypatch.setattr(module, "published", full)
    with contextlib.closing(history.open_current(old, told.append)) as con:
        assert con.execute("SELECT count(*) FROM latest_runs").fetchall() == [(4,)]
    assert "Read-only file system" in told[0]
    assert db.read_bytes() == before


def test_a_database_of_a_newer_duckdb_is_called_too_new(tmp_path: Path) -> None:
    db = tmp_path / "history.duckdb"
    duckdb.connect(str(db)).close()
    content = bytearray(db.read_bytes())
    content[12:20] = (9999).to_bytes(8, "little")  # the storage version, behind checksum and magic word
    db.write_bytes(content)
    with pytest.raises(duckdb.Error, match="computed checksum") as told:
        duckdb.connect(str(db))
    found = re.search(r"computed checksum (\d+)", str(told.value))
    assert found is not None
    content[:8] = int(found[1]).to_bytes(8, "little")
    db.write_bytes(content)
    with pytest.raises(HistoryTooNew, match="newer version of DuckDB"):
        history.connect(db)
    assert db.read_bytes() == content
