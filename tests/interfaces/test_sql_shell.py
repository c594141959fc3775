"""The shell of `caliper sql`."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_history import build

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.interfaces.sql_command import Show
from caliper_pipeline.interfaces.sql_shell import Shell, complete
from caliper_pipeline.storage import history
from caliper_pipeline.storage.history_session import SqlSession
from caliper_pipeline.storage.runs import RunStore

Typed = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shell")
    build(root)
    history.open_current(root).close()
    return root


@pytest.fixture
def typed(recorded: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    """What a shell shows, on both streams, when these lines are typed. An exception is raised in place of a line."""
    monkeypatch.chdir(recorded)
    monkeypatch.delenv("CALIPER_ROOT", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*lines: "str | BaseException | Callable[[], str]", form: str = "table") -> tuple[str, str]:
        waiting: Iterator[str | BaseException | Callable[[], str]] = iter(lines)

        def read(prompt: str) -> str:
            line = next(waiting, ".quit")
            if isinstance(line, BaseException):
                raise line
            return line if isinstance(line, str) else line()

        Shell(SqlSession.open(recorded), lambda: SqlSession.open(recorded), Show(form, 200, False), read=read).loop()
        shown = capsys.readouterr()
        return shown.out, shown.err

    return run


def test_a_query_may_take_several_lines(typed: Typed) -> None:
    shown, _ = typed("SELECT count(*) AS n", "FROM latest_runs", "WHERE engine <> ';'", ";")
    assert [line.strip() for line in shown.splitlines()][::2] == ["n", "4"]


def test_the_name_of_a_view_is_enough(typed: Typed) -> None:
    assert "inbox-triage" in typed("alert_log")[0]


def test_it_tells_at_the_start_and_in_its_help_how_to_see_news(typed: Typed) -> None:
    _, told = typed()
    assert ".reload" in told
    _, told = typed(".help")
    assert told.count(".reload") == 2


def test_it_tells_when_there_is_news_and_shows_it_after_a_reload(typed: Typed, recorded: Path) -> None:
    def publish() -> str:
        history.rebuild(history.history_path(recorded), RunStore(recorded))
        return "SELECT 1 AS one;"

    _, told = typed(publish, "SELECT 2 AS two;", ".reload")
    assert told.count("There is news: .reload shows it.") == 1
    assert "11 runs, the last of 2026-11-28 09:00 UTC." in told


def test_a_mistake_ends_nothing(typed: Typed) -> None:
    shown, told = typed("SELECT nothing FROM runs;", "DROP TABLE runs;", "SELECT 1 AS one;")
    assert "Referenced column" in told
    assert "This only reads the history: DROP is not possible." in told
    assert "one" in shown


def test_ctrl_c_drops_what_was_typed(typed: Typed) -> None:
    shown, _ = typed("SELECT 1 AS one,", KeyboardInterrupt(), "SELECT 2 AS two;")
    assert "two" in shown
    assert "one" not in shown


@pytest.mark.parametrize("end", [".quit", ".exit", EOFError()])
def test_quit_leaves(typed: Typed, end: "str | BaseException") -> None:
    assert "one" not in typed(end, "SELECT 1 AS one;")[0]


def test_tables_and_views_are_listed_with_what_they_hold(typed: Typed) -> None:
    lines = typed(".tables")[0].splitlines()
    assert lines.index("views") < lines.index("tables")
    assert any(line.split()[:4] == ["latest_runs", "one", "row", "a"] for line in lines)


def test_the_schema_of_a_view_explains_its_columns(typed: Typed) -> None:
    lines = typed(".schema latest_runs")[0].splitlines()
    assert lines[0].startswith("view latest_runs: one row a series")
    assert any(line.split()[:2] == ["score", "DOUBLE"] for line in lines)
    assert "view control_gap" in typed(".schema")[0]


def test_the_form_can_be_changed(typed: Typed) -> None:
    assert typed(".format csv", "SELECT 1 AS one;")[0] == "one\n1\n"


def test_the_limit_can_be_changed(typed: Typed) -> None:
    _, told = typed(".limit 2", "SELECT * FROM runs;")
    assert "The first 2 rows" in told


@pytest.mark.parametrize("line", [".nothing", ".format parquet", ".limit x", ".schema nothing", "."])
def test_an_unknown_command_is_explained(typed: Typed, line: str) -> None:
    assert "There is no" in typed(line)[1]


def test_parquet_is_nothing_for_a_shell(recorded: Path) -> None:
    with SqlSession.open(recorded) as session, pytest.raises(BadInput):
        Shell(session, lambda: None, Show("parquet", 0, False))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1;", True),
        ("SELECT 1; ", True),
        ("SELECT 1; -- why", True),
        ("SELECT 1 -- ;", False),
        ("SELECT ';'", False),
        ("SELECT ';';", True),
        ("SELECT 'it''s;", False),
        ('SELECT ";";', True),
        ("SELECT $$ ; $$", False),
        ("SELECT /* ; */ 1", False),
        ("SELECT /* ;", False),
    ],
)
def test_a_query_ends_with_a_semicolon_outside_of_quotes(text: str, whole: bool) -> None:
    assert complete(text) is whole


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_real_terminal_gets_a_shell(recorded: Path, tmp_path: Path) -> None:
    """With line editing, a query that Ctrl-C ends, and Ctrl-D; lines are kept for next time."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb", "CALIPER_ROOT": str(recorded)}
    code = "from caliper_pipeline.interfaces.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "sql"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=recorded, start_new_session=True,
        preexec_fn=_control_terminal,
    ) as shell:  # fmt: skip
        os.close(theirs)
        screen = Screen(ours)
        try:
            screen.shows("caliper> ")
            screen.types("SELECT 6 * 7 AS answer;\n")
            screen.shows("42")
            screen.shows("caliper> ")
            screen.types("SELECT count(*) FROM range(100000000) a, range(100000) b WHERE (a.range*b.range)%7=3;\n")
            _wait_until_busy(shell.pid)
            screen.types("\x03")
            screen.shows("Cancelled.")
            screen.shows("caliper> ")
            screen.types("\x04")
            assert shell.wait(60) == 0
        finally:
            shell.kill()
            os.close(ours)
    kept = tmp_path / "caliper" / "sql_history"
    assert "SELECT 6 * 7 AS answer;" in kept.read_text(encoding="utf-8")
    assert kept.stat().st_mode & 0o077 == 0


def _control_terminal() -> None:
    import fcntl
    import signal
    import termios

    # A job in the background of a script is born deaf to it, a child of a thread that blocks it too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _wait_until_busy(pid: int) -> None:
    """Until it has used a third of a second of processor time more: nothing else tells that a query has begun."""

    def used() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, deadline = used(), time.monotonic() + 60
    while used() < before + os.sysconf("SC_CLK_TCK") // 3:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)


class Screen:
    """What a terminal shows, read in order."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._shown = terminal, ""

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def shows(self, text: str, seconds: float = 60) -> None:
        """Waits for the text and takes it, with all before it, off the screen."""
        deadline = time.monotonic() + seconds
        while text not in self._shown:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; what came: {self._shown!r}"
            self._shown += os.read(self._terminal, 4096).decode("utf-8", "replace")
        self._shown = self._shown.partition(text)[2]
