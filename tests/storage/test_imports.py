import contextlib
import hashlib
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
from caliper_pipeline.storage import history, history_import, results_bytes
from caliper_pipeline.storage.history_import import import_files
from caliper_pipeline.storage.history_publish import published
from caliper_pipeline.storage.records import Records
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


# -- one by one


def outcomes(db: Path, paths: list[Path], **options: Any) -> list[str]:
    found = import_files(db, paths, records=Records(db.parent.parent), **options)
    return [item.refused or ("new" if item.new else "there") for item in found]


def test_each_file_is_new_or_there_already(tmp_path: Path, db: Path) -> None:
    first, second = saved(tmp_path, "a.json", results_json()), saved(tmp_path, "b.json", results_json(k=3))
    assert outcomes(db, [first, second, first]) == ["new", "new", "there"]
    assert outcomes(db, [second, first]) == ["there", "there"]
    assert len(Records(tmp_path).imported_files()) == 2


def test_a_file_that_was_laid_out_anew_is_there_already(tmp_path: Path, db: Path) -> None:
    short, long = (saved(tmp_path, f"{n}.json", json.dumps(results_json(), indent=n)) for n in (1, 9))
    assert outcomes(db, [short]) == ["new"]
    assert outcomes(db, [long]) == ["there"]
    assert len(Records(tmp_path).imported_files()) == 1


def test_a_longer_file_of_a_run_with_an_id_is_a_later_state_of_it(tmp_path: Path, db: Path) -> None:
    early = saved(tmp_path, "early.json", results_json(run_id="20261120T100000000Z-abcdef", outcomes=("pass",)))
    late = saved(tmp_path, "late.json", results_json(run_id="20261120T100000000Z-abcdef", outcomes=("pass",) * 3))
    assert outcomes(db, [late, early]) == ["new", "there"]
    db.unlink()
    assert outcomes(db, [early]) == ["new"]
    assert outcomes(db, [late]) == ["new"]
    assert ask(db, "SELECT run_id, attempt_count FROM runs") == [("20261120T100000000Z-abcdef", 3)]
    assert ask(db, "SELECT count(*) FROM attempts") == [(3,)]


def test_of_a_run_in_the_store_a_file_says_nothing_new(tmp_path: Path, db: Path) -> None:
    path = saved(tmp_path, "r.json", results_json(run_id="20261120T100000000Z-abcdef"))
    assert outcomes(db, [path], own={"20261120T100000000Z-abcdef"}) == ["there"]
    assert not (tmp_path / ".caliper/records").exists()


def test_a_dry_run_tells_the_same_and_writes_nothing(tmp_path: Path, db: Path) -> None:
    old = saved(tmp_path, "old.json", results_json())
    assert outcomes(db, [old]) == ["new"]
    paths = [old, saved(tmp_path, "new.json", results_json(k=7)), saved(tmp_path, "bad.json", "{}")]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert outcomes(db, paths, dry_run=True) == ["there", "new", "not a results file: run: is missing"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert ask(db, "SELECT count(*) FROM runs") == [(1,)]


def test_many_files_are_published_once(tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = []
    monkeypatch.setattr(history_import, "published", lambda *a: times.append(1) or published(*a))
    monkeypatch.setattr(history_import, "_PENDING_FILES", 4)
    paths = [saved(tmp_path, f"{n}.json", results_json(k=n)) for n in range(1, 31)]
    assert outcomes(db, paths) == ["new"] * 30
    assert len(times) == 1
    assert outcomes(db, paths) == ["there"] * 30
    assert len(times) == 1
    assert ask(db, "SELECT count(*), count(DISTINCT run_id) FROM attempts") == [(60, 30)]
    assert ask(db, "SELECT count(*) FROM texts") == [(1,)]


def test_nobody_waits_while_files_are_read(store: RunStore, db: Path, given: Any) -> None:
    paths = [saved(store.root, f"{n}.json", results_json(k=n)) for n in (1, 2)]
    found = import_files(db, paths, records=Records(store.root))
    next(found)
    assert history.publish(db, [given.whole_run(store)]) == 1
    assert [item.new for item in found] == [True]
    assert ask(db, "SELECT source, count(*) FROM runs GROUP BY 1 ORDER BY 1") == [("file", 2), ("run_store", 1)]


def test_what_the_history_came_to_know_meanwhile_is_kept(store: RunStore, db: Path, given: Any) -> None:
    run: RunFolder = given.whole_run(store)
    path = write_results(store.root, run, assemble(run.header(), run.lines(), ended_at=given.NOON))
    found = import_files(db, [path], records=None)
    assert next(found).new
    history.publish(db, [run])
    assert list(found) == []
    assert ask(db, "SELECT source, count(*) OVER () FROM runs") == [("run_store", 1)]


def test_the_id_of_a_file_without_one_follows_from_its_whole_content(tmp_path: Path, db: Path) -> None:
    content = results_json(odd=[None, 1.5, {"b": {}, "a": []}, "\u00e9\ud83c\udf0a"])
    outcomes(db, [saved(tmp_path, "r.json", content)])
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    assert ask(db, "SELECT run_id FROM runs") == [
        (f"20261120T100000000Z-{hashlib.sha256(canonical).hexdigest()[:12]}",)
    ]


def damaged(change: Callable[[Any], Any]) -> str:
    data = results_json()
    change(data)
    return json.dumps(data)


def attempt(data: Any) -> Any:
    return data["task_results"][0]["attempts"][0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not a results file: it is empty"),
        (" \n", "not a results file: it is empty"),
        (json.dumps(results_json()).encode("utf-16"), "not a results file: it is not JSON in UTF-8: it is in UTF-16"),
        (b'{"run": "caf\xe9"}', "not a results file: it is not JSON in UTF-8: byte 0xe9 at 12"),
        (json.dumps(results_json(), indent=1)[:300], "not a results file: it is not JSON: it breaks off in line 21"),
        (json.dumps(results_json())[:-1], "not a results file: it is not JSON: it breaks off in line 1"),
        ('{"run": }', "not a results file: it is not JSON: Expecting value (line 1, column 9)"),
        ("[" * 100_000, "not a results file: it is not JSON that can be read: it is nested too deeply"),
        ("9" * 5_000, "not a results file: it is not JSON that can be read: Exceeds the limit"),
        ("[]", "not a results file: the file: an object is needed, not a list"),
        ('{"name": "package", "version": "1.0"}', "not a results file: run: is missing"),
        (damaged(lambda d: attempt(d).update(duration_seconds=-1)), "duration_seconds: a number of at least 0"),
        (damaged(lambda d: attempt(d).update(duration_seconds=float("nan"))), "duration_seconds: a finite number"),
        (damaged(lambda d: attempt(d).update(usage={"input_tokens": 1e400})), "input_tokens: a finite number"),
        (damaged(lambda d: d.update(aggregate={"avg_score": 1.2})), "avg_score: a rate between 0 and 1 is needed"),
        (damaged(lambda d: attempt(d).update(attempt=2)), "task_results: attempt 2 of task-001 is there twice"),
        (
            damaged(lambda d: d["task_results"].append(d["task_results"][0])),
            "task_results: task task-001 is there twice",
        ),
    ],
)
def test_what_is_no_results_file_is_refused_with_the_reason(
    tmp_path: Path, db: Path, content: str | bytes, reason: str
) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (found,) = outcomes(db, [path])
    assert reason in found
    assert found.startswith("not a results file: ")
    assert not db.exists()


def test_what_is_no_file_is_refused_with_the_reason(tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_bytes, "LARGEST_FILE", 3 * 2**20)
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("nowhere")
    (tmp_path / "round.json").symlink_to("round.json")
    (tmp_path / "large.json").write_bytes(b" " * (4 * 2**20))
    names = ("gone", "folder", "pipe", "link", "round", "large")
    assert outcomes(db, [tmp_path / f"{name}.json" for name in names]) == [
        "cannot be read: there is no such file",
        "cannot be read: it is a folder",
        "cannot be read: it is no plain file",
        "cannot be read: the file it links to is gone",
        "cannot be read: Too many levels of symbolic links",
        "cannot be read: it has 4 MiB, and at most 3 MiB are read",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, db: Path) -> None:
    path = saved(tmp_path, "secret.json", results_json())
    path.chmod(0)
    assert outcomes(db, [path]) == ["cannot be read: Permission denied"]


def test_a_mark_at_the_start_and_a_link_are_no_obstacle(tmp_path: Path, db: Path) -> None:
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(results_json()).encode())
    (tmp_path / "link.json").symlink_to(saved(tmp_path, "real", results_json(k=5)))
    assert outcomes(db, [tmp_path / "bom.json", tmp_path / "link.json"]) == ["new", "new"]
    assert all(not path.is_symlink() for path in Records(tmp_path).imported_files())


MEMORY = """
import resource, sys
from pathlib import Path
from caliper_pipeline.storage.history_import import import_files
from caliper_pipeline.storage.records import Records
root = Path(sys.argv[1])
files = sorted(root.glob("*.json"))
for found in import_files(root / ".caliper/history.duckdb", files[:1], records=Records(root)):
    assert found.new, found
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert all(found.new for found in import_files(root / ".caliper/history.duckdb", files[1:], records=Records(root)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="ru_maxrss is in bytes elsewhere")
def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path, python: Start) -> None:
    data = results_json(outcomes=("pass",) * 10)
    for entry in data["task_results"][0]["attempts"]:
        entry["output"] = "x" * 50_000
        entry["transcript"] = [{"role": "assistant", "content": "y" * 300_000}]
    for number in range(40):
        data["run"]["k"] = number + 1
        saved(tmp_path, f"{number:02d}.json", data)
    grown_kib = int(python(MEMORY, tmp_path).communicate()[0])
    assert grown_kib < 100 * 1024  # the files together are 140 MB, and each takes as much again to be read


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
from caliper_pipeline.storage import history, history_import, results_bytes
from caliper_pipeline.storage.history_import import import_files
from caliper_pipeline.storage.history_publish import published
from caliper_pipeline.storage.records import Records
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
