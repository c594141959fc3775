import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from subprocess import PIPE, Popen
from subprocess import run as run_process
from typing import Any

import pytest

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.results import assemble
from caliper_pipeline.storage import history
from caliper_pipeline.storage.results import write_results
from caliper_pipeline.storage.runs import RunFolder, RunStore

Start = Callable[..., "Popen[bytes]"]
ADAPTER = Path(__file__).parents[1] / "cases_adapter.py"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / ".caliper" / "history.duckdb"


def ask(db: Path, query: str) -> list[Any]:
    with contextlib.closing(history.connect(db)) as con:
        return con.execute(query).fetchall()


def results_json(*, outcomes: tuple[str, ...] = ("pass", "task_fail"), name: str = "Says hello", **run: Any) -> Any:
    return {
        "run": {"spec": "demo", "timestamp": "2026-11-20T10:00:00Z", "k": 2, "backend": "claude-code", **run},
        "skill_snapshots": [
            {"name": "tides", "path": "/s/SKILL.md", "files": {"SKILL.md": {"content": "x", "hash": "sha256:1"}}}
        ],
        "task_results": [
            {
                "task_id": "task-001",
                "task_name": name,
                "prompt": "Say hello.",
                "attempts": [
                    {"attempt": n, "output": "done", "duration_seconds": 1.5, "outcome": outcome}
                    for n, outcome in enumerate(outcomes, 1)
                ],
            }
        ],
        "aggregate": {},
    }


def test_the_whole_answer_of_an_imported_attempt_is_kept(tmp_path: Path, db: Path) -> None:
    data = results_json(outcomes=("pass",))
    answer = data["task_results"][0]["attempts"][0]["output"] = "Ä" * 20_000 + "end"
    [(_, error)] = history.import_results(db, [saved(tmp_path, "long.json", data)])
    assert error is None
    assert ask(db, "SELECT output FROM attempts") == [(answer,)]


def saved(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_file_of_the_reference_is_a_run(tmp_path: Path, db: Path) -> None:
    path = saved(tmp_path, "r.json", results_json(model="m", ablated=["moon"], user_customizations=True))
    assert history.import_results(db, [path]) == [(path, None)]
    query = "SELECT spec, engine, arm, isolated, score, started_utc, ended_utc, origin, source FROM runs"
    assert ask(db, query) == [
        ("demo", "claude-code:m", "moon", False, 0.5, None, datetime(2026, 11, 20, 10), "import", "file")
    ]
    assert ask(db, "SELECT skill, installed FROM skills ORDER BY place") == [("tides", True), ("moon", False)]
    assert ask(db, "SELECT text FROM tasks JOIN texts ON digest = prompt_digest") == [("Say hello.",)]
    assert ask(db, "SELECT attempt, outcome, agent_seconds FROM graded_attempts ORDER BY 1") == [
        (1, "pass", 1.5),
        (2, "task_fail", 1.5),
    ]


def test_a_file_read_twice_is_one_run_also_when_it_was_laid_out_anew(tmp_path: Path, db: Path) -> None:
    first = saved(tmp_path, "a.json", results_json())
    second = saved(tmp_path, "b.json", json.dumps(results_json(), indent=4))
    other = saved(tmp_path, "c.json", results_json(outcomes=("pass", "pass")))
    assert [error for _, error in history.import_results(db, [first, first, second, other, first])] == [None] * 5
    history.import_results(db, [second, other])
    assert ask(db, "SELECT count(*) FROM runs") == [(2,)]
    assert ask(db, "SELECT count(*) FROM attempts") == [(4,)]


def test_one_bad_file_is_named_and_the_others_are_recorded(tmp_path: Path, db: Path) -> None:
    bad = {
        "gone": tmp_path / "gone.json",
        "text": saved(tmp_path, "text.json", "not json"),
        "list": saved(tmp_path, "list.json", "[]"),
        "nan": saved(tmp_path, "nan.json", json.dumps(results_json()).replace("1.5", "NaN")),
        "time": saved(tmp_path, "time.json", results_json(timestamp="yesterday")),
        "deep": saved(tmp_path, "deep.json", "[" * 100_000),
        "folder": tmp_path,
    }
    good = saved(tmp_path, "good.json", results_json())
    outcome = dict(history.import_results(db, [*bad.values(), good]))
    assert outcome[good] is None
    assert all(outcome[path] for path in bad.values())
    assert ask(db, "SELECT count(*) FROM runs") == [(1,)]


@pytest.mark.parametrize(
    "text", ["x'); drop table runs; --", "50% \"done\" \\ 'ok'", "café 🌊 \0 \u2028 line", "a\tb", "../../evil", ""]
)
def test_names_are_data_and_nothing_else(tmp_path: Path, db: Path, text: str) -> None:
    content = results_json(name=text, spec=text or "x", backend=text or "x", model=text or None)
    content["task_results"][0]["attempts"][0]["output"] = text
    before = {path.name for path in tmp_path.parent.iterdir()}
    assert history.import_results(db, [saved(tmp_path, "r.json", content)])[0][1] is None
    brief = history.history_json(db)["runs"][0]
    assert (brief["spec"], brief["tasks"][0]["name"]) == (text or "x", text)
    assert brief["tasks"][0]["attempts"][0]["output"] == text
    assert {path.name for path in tmp_path.parent.iterdir()} == before
    assert not list(tmp_path.rglob("evil*"))


def test_instants_are_told_apart_from_clock_times(tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    times = ["2026-11-20T18:30:00+09:00", "2026-11-20T10:00:00Z", "2026-11-20T09:45:00", "2026-10-25T02:30:00+01:00"]
    files = [saved(tmp_path, f"{n}.json", results_json(timestamp=time)) for n, time in enumerate(times)]
    history.import_results(db, files)
    assert [run["timestamp_utc"] for run in history.history_json(db)["runs"]] == [
        "2026-10-25T01:30:00Z",
        "2026-11-20T09:30:00Z",
        "2026-11-20T09:45:00Z",
        "2026-11-20T10:00:00Z",
    ]


def test_what_was_imported_survives_a_rebuild(tmp_path: Path, store: RunStore, db: Path, given: Any) -> None:
    given.whole_run(store)
    history.catch_up(db, store)
    files = [saved(tmp_path, f"{n}.json", results_json(k=n)) for n in (1, 2)]
    history.import_results(db, files)
    for path in files:
        path.unlink()
    before = history.history_json(db)
    db.unlink()
    assert history.rebuild(db, store) == 3
    assert history.history_json(db) == before
    db.unlink()
    assert history.catch_up(db, store) == 3
    assert history.catch_up(db, store) == 0
    assert history.history_json(db) == before


def test_outside_a_project_no_copies_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    path = saved(folder, "r.json", results_json())
    history.import_results(folder / "h.duckdb", [path])
    assert {item.name for item in folder.iterdir()} == {"r.json", "h.duckdb", "h.duckdb.lock"}


def test_a_file_of_a_run_in_the_store_adds_nothing(store: RunStore, db: Path, given: Any) -> None:
    run: RunFolder = given.whole_run(store)
    path = write_results(store.root, run, assemble(run.header(), run.lines(), ended_at=given.NOON))
    history.publish(db, [run])
    content = json.loads(path.read_text(encoding="utf-8"))
    content["task_results"][0]["attempts"][0]["outcome"] = "task_fail"
    path.write_text(json.dumps(content, indent=8), encoding="utf-8")
    assert history.import_results(db, [path]) == [(path, None)]
    assert ask(db, "SELECT source, score FROM runs") == [("run_store", 1.0)]
    assert not (store.root / ".caliper/records").exists()


def test_the_run_itself_takes_the_place_of_a_file_of_it(store: RunStore, db: Path, given: Any) -> None:
    run: RunFolder = given.whole_run(store)
    path = write_results(store.root, run, assemble(run.header(), run.lines(), ended_at=given.NOON))
    history.import_results(db, [path])
    assert ask(db, "SELECT source, series_key, engine, score FROM runs") == [
        ("file", "demo/scripted+isolated", "scripted", 1.0)
    ]
    assert history.publish(db, [run]) == 1
    assert ask(db, "SELECT source, count(*) OVER () FROM runs") == [("run_store", 1)]
    assert ask(db, "SELECT count(*) FROM attempts") == [(4,)]


def test_a_file_cannot_plant_a_text_under_another_one_s_digest(tmp_path: Path, db: Path, given: Any) -> None:
    content = results_json()
    content["task_results"][0]["digests"] = {"prompt": given.sha256("the real prompt")}
    history.import_results(db, [saved(tmp_path, "r.json", content)])
    assert ask(db, "SELECT digest, text FROM texts") == [(given.sha256("Say hello."), "Say hello.")]


def test_an_import_that_cannot_be_kept_is_told(tmp_path: Path, db: Path) -> None:
    db.parent.mkdir()
    (db.parent / "records").write_text("in the way")
    with pytest.raises(StorageError, match="records"):
        history.import_results(db, [saved(tmp_path, "r.json", results_json())])


# -- the adapter, as the cases call it


def adapter(db: Path, *arguments: object) -> tuple[int, str, str]:
    done = run_process(
        [sys.executable, str(ADAPTER), *map(str, arguments)],
        env={**os.environ, "HISTORY_DB": str(db)},
        stdin=PIPE,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_adapter_tells_by_its_exit_status(tmp_path: Path) -> None:
    good, bad = saved(tmp_path, "good.json", results_json()), saved(tmp_path, "bad.json", "{}")
    db, notes = tmp_path / "h.duckdb", saved(tmp_path, "notes.duckdb", "my notes")
    assert adapter(db, "history-import", good)[0] == 0
    status, _, told = adapter(db, "history-import", bad, good)
    assert (status, "bad.json" in told) == (1, True)
    status, _, told = adapter(notes, "history-import", good)
    assert (status, "notes.duckdb" in told, "Traceback" in told) == (2, True, False)
    assert json.loads(adapter(db, "history-json")[1])["run_count"] == 1
    assert adapter(db)[0] == 2


IMPORT = """
import sys
from pathlib import Path
from caliper_pipeline.storage import history
files = [Path(name) for name in sys.argv[2:]]
while True:
    history.import_results(Path(sys.argv[1]), files)
    Path(sys.argv[1]).unlink()
    print("x", flush=True)
"""


def test_a_kill_while_importing_leaves_each_run_whole_or_absent(tmp_path: Path, python: Start) -> None:
    outcomes = ("pass",) * 30
    files = [saved(tmp_path, f"{n}.json", results_json(k=n, outcomes=outcomes)) for n in range(1, 5)]
    db, chance = tmp_path / "h.duckdb", random.Random(3)
    for _ in range(4):
        importer = python(IMPORT, db, *files)
        assert importer.stdout is not None
        for _ in range(chance.randrange(1, 4)):
            importer.stdout.readline()
        os.kill(importer.pid, signal.SIGKILL)
        importer.communicate()
        for run in history.history_json(db)["runs"]:
            assert [len(task["attempts"]) for task in run["tasks"]] == [30]
    assert [error for _, error in history.import_results(db, files)] == [None] * 4
    assert history.history_json(db)["run_count"] == 4
