"""What is shown stays inside the terminal, says what is not known, and lets no foreign text do anything."""

import io
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from domain.factories import START, attempt_record, run_header, skill_header, task_header, verdict_record
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from caliper_pipeline.domain.comparison import compare
from caliper_pipeline.domain.records import AbortedRecord, HookFailure, Outcome
from caliper_pipeline.domain.results import Results, assemble, parse_results
from caliper_pipeline.domain.statistics import Interval
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.interfaces.render import text
from caliper_pipeline.interfaces.render.comparison import show_comparison
from caliper_pipeline.interfaces.render.console import View, strip, styled
from caliper_pipeline.interfaces.render.live import LiveProgress, make_progress
from caliper_pipeline.interfaces.render.report import show_results

FIXTURES = Path(__file__).parents[1] / "fixtures"
GLYPHS = text.UNICODE


def fixture(name: str = "reference-0.21.0.json") -> Results:
    return parse_results(json.loads((FIXTURES / "results" / name).read_text(encoding="utf-8")))


def view(columns: int = 120, *, encoding: str = "utf-8", terminal: bool = False) -> tuple[View, io.TextIOWrapper]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", newline="")
    environ = {"COLUMNS": str(columns), "LINES": "30", "TERM": "xterm"}
    if terminal:
        environ["FORCE_COLOR"] = "1"
    return View(stream, environ=environ), stream


def shown(results: Results, columns: int = 120, *, verbose: bool = False, encoding: str = "utf-8") -> str:
    made, stream = view(columns, encoding=encoding)
    show_results(made, results, verbose=verbose)
    return content(stream)


def content(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode(stream.encoding)


@pytest.mark.parametrize(
    ("rate", "words"),
    [(None, "—"), (0.0, "0.0%"), (1.0, "100.0%"), (2 / 3, "66.7%"), (0.9999, ">99.9%"), (1e-5, "<0.1%")],
)
def test_a_rate_is_never_rounded_to_certainty(rate: float | None, words: str) -> None:
    assert text.percent(rate, GLYPHS) == words


@pytest.mark.parametrize(
    ("value", "words"), [(None, "—"), (0, "0.0s"), (9.96, "10s"), (59.4, "59s"), (125, "2m05s"), (3720, "1h02m")]
)
def test_seconds_are_short(value: float | None, words: str) -> None:
    assert text.seconds(value, GLYPHS) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "—"), (0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (250_000, "250k"), (4_100_000, "4.1M")],
)
def test_counts_are_short(value: int | None, words: str) -> None:
    assert text.count(value, GLYPHS) == words


@pytest.mark.parametrize(("delta", "words"), [(None, "—"), (0.0, "0"), (1 / 6, "+16.7"), (-0.5, "-50"), (0.0001, "0")])
def test_differences_have_a_sign(delta: float | None, words: str) -> None:
    assert text.points(delta, GLYPHS) == words


def test_a_range_is_shown_with_both_ends() -> None:
    assert text.range_of(Interval(0.2065, 0.9385), GLYPHS) == "21–94%"
    assert text.range_of(None, GLYPHS) == ""


@pytest.mark.parametrize(
    ("dirty", "words"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended", ""),
        ("\x9b2Jx", "x"),
        ("a\rb\x08c\x00\x7f", "abc"),
        ("a\u202eb\u2066c", "abc"),
        ("half \ud83c", "half \ufffd"),
        ("[bold]x[/y]", "[bold]x[/y]"),
        ("line\r\nnext\ttab", "line\nnext\ttab"),
    ],
)
def test_foreign_text_is_cleaned(dirty: str, words: str) -> None:
    assert text.clean(dirty) == words


@given(st.text())
def test_nothing_a_terminal_acts_on_is_left(dirty: str) -> None:
    cleaned = text.clean(dirty)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in cleaned)
    cleaned.encode("utf-8")


def test_marks_stand_at_the_place_of_their_number() -> None:
    assert strip({3: Outcome.PASS, 1: Outcome.TASK_FAIL}, 4, GLYPHS).plain == "✗·✓·"
    many = dict.fromkeys(range(1, 8), Outcome.PASS) | {8: Outcome.TIMEOUT, 9: Outcome.JUDGE_ERROR}
    assert strip(many, 10, GLYPHS).plain == "✓7 ⊘2 ·1"
    assert strip({}, 3, text.ASCII).plain == "..."


def test_a_report_shows_rates_with_counts_and_ranges() -> None:
    page = shown(fixture())
    for words in ("multi", "k=3", "100.0% 3/3   44–100%", "0.0% 0/3   0–56%", "50.0% 3/6   19–81%", "3 unusable"):
        assert words in page
    assert "Setup breaks            —" in page  # not measured is a dash


def test_verbose_adds_the_secondary_scores_and_every_task() -> None:
    page = shown(fixture(), verbose=True)
    assert "pass@3*" in page
    assert "Happy  100.0%" in page
    assert "Happy  100.0%" not in shown(fixture())


def simulated(**given: Any) -> Results:
    header = run_header(task_header(), k=1, backend="scripted", simulated=True, **given)
    return assemble(header, [attempt_record(), verdict_record()], ended_at=START)


def test_simulated_figures_say_so_in_every_view() -> None:
    assert "simulated" in shown(simulated())
    made, stream = view()
    show_comparison(made, compare(simulated(), simulated(spec="other")))
    assert "simulated" in content(stream)
    plain = io.StringIO()
    with make_progress(run_header(simulated=True), plain) as progress:
        progress.opened(run_header(simulated=True), 3, 0)
    assert "simulated" in plain.getvalue()


def test_a_run_of_nothing_but_losses_is_not_called_a_run_without_checks() -> None:
    lost = assemble(run_header(k=1), [attempt_record(), verdict_record(Outcome.TIMEOUT)], ended_at=START)
    assert "not measured" in shown(lost)
    assert "probe" not in shown(lost)
    probe = assemble(
        run_header(task_header(assert_script=None), k=1),
        [attempt_record(), verdict_record(Outcome.NOT_CHECKED)],
        ended_at=START,
    )
    assert "nothing asked but activation" in shown(probe)


def test_aborted_tasks_and_ungraded_attempts_are_named() -> None:
    header = run_header(task_header(1), task_header(2), k=3)
    lines = [
        attempt_record(1, 1),
        verdict_record(Outcome.TIMEOUT, 1, 1),
        AbortedRecord("task-001", "Task 1", 1),
        attempt_record(1, 2),
    ]
    page = shown(assemble(header, lines, ended_at=START))
    assert "⊘·· 1 unusable aborted" in page
    assert "1 not judged" in page
    assert "1 task aborted by --fail-fast  Task 1" in page


def test_on_a_run_without_a_skill_activation_is_only_counted() -> None:
    header = run_header(
        task_header(activates=("tide",)),
        skills=(skill_header("tide", installed=False), skill_header("moon")),
        ablated=("tide",),
        k=1,
    )
    page = shown(assemble(header, [attempt_record(), verdict_record(activated=("moon",))], ended_at=START))
    assert "without tide" in page
    assert "moon           100.0% 1/1  21–100%" in page
    assert "removed" in page


def test_attempts_that_failed_alike_are_shown_once() -> None:
    lines = [
        line
        for number, folder in enumerate(["/tmp/w-1/", "/tmp/w-2/", "/tmp/w-3/"], 1)
        for line in (
            attempt_record(number, output=f"wrote {folder}x", agent_seconds=float(number)),
            verdict_record(Outcome.TASK_FAIL, number, assert_passed=False, assert_evidence=f'File "{folder}check.py"'),
        )
    ]
    results = assemble(run_header(k=3), lines, ended_at=START)
    page = shown(results)
    assert "3 attempts #1, 2, 3 · 1.0s–3.0s" in page
    assert page.count("check.py") == 1
    assert shown(results, verbose=True).count("check.py") == 3


def test_the_evidence_of_an_attempt_is_named_by_a_path_that_leads_to_it() -> None:
    lines = [attempt_record(1, evidence="evidence/tides/001"), verdict_record(Outcome.PASS, 1)]
    page = shown(assemble(run_header(k=1), lines, ended_at=START), verbose=True)
    assert f".caliper/runs/{run_header().run_id}/evidence/tides/001" in page


NASTY = st.text(alphabet=st.sampled_from(list("aé🌊 [/]\n\t\x1b[2J\ud800\u202e漢")), max_size=60)


@st.composite
def any_results(draw: st.DrawFn) -> Results:
    names = draw(st.lists(NASTY, min_size=1, max_size=4))
    asserting = draw(st.booleans())
    tasks = [
        task_header(n, name=name or "x", activates=("tide",) if asserting else None, expect=draw(NASTY) or None)
        for n, name in enumerate(names, 1)
    ]
    k = draw(st.integers(1, 8))
    lines: list[Any] = []
    for n in range(1, len(tasks) + 1):
        for number in range(1, draw(st.integers(0, k)) + 1):
            outcome = draw(st.sampled_from(list(Outcome)))
            words = draw(NASTY)
            lines.append(
                attempt_record(
                    number,
                    n,
                    output=words * 20,
                    usage=draw(st.sampled_from([None, Usage(5, 10**7)])),
                    warnings=(words,),
                )
            )
            lines.append(
                verdict_record(
                    outcome,
                    number,
                    n,
                    activated=(words,),
                    activation_passed=draw(st.sampled_from([None, True, False])),
                    cheat_evidence=(words,),
                    assert_evidence=words,
                    autorater_reasoning=words,
                    judge_seconds=1.0,
                )
            )
            if draw(st.booleans()):
                lines.append(
                    HookFailure(f"task-{n:03d}", words, number, "setup", draw(st.sampled_from([None, 3])), words)
                )
    header = run_header(*tasks, k=k, skills=(skill_header("tide"), skill_header(draw(NASTY) or "y")), spec="d" * 30)
    return assemble(header, lines, ended_at=START + timedelta(days=1), interrupted=draw(st.booleans()))


def assert_fits(page: str, columns: int) -> None:
    assert "\x1b" not in page
    for line in page.splitlines():
        assert cell_len(line) <= columns, line


@settings(max_examples=40, deadline=None)
@given(any_results(), st.sampled_from([60, 80, 100, 140, 240]), st.sampled_from(["utf-8", "ascii"]))
def test_a_report_of_anything_fits_the_terminal(results: Results, columns: int, encoding: str) -> None:
    assert_fits(shown(results, columns, verbose=True, encoding=encoding), columns)


@settings(max_examples=30, deadline=None)
@given(any_results(), any_results(), st.sampled_from([60, 100, 240]), st.sampled_from(["utf-8", "ascii"]))
def test_a_comparison_of_anything_fits_the_terminal(a: Results, b: Results, columns: int, encoding: str) -> None:
    made, stream = view(columns, encoding=encoding)
    show_comparison(made, compare(a, b), verbose=True)
    assert_fits(content(stream), columns)


def test_without_colour_there_are_no_escapes_and_with_it_there_are() -> None:
    made, stream = view(terminal=True)
    show_results(made, fixture())
    assert "\x1b[" in content(stream)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    plain = View(stream, environ={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "xterm"})
    show_results(plain, fixture())
    assert "\x1b[" not in content(stream)


def play(progress: Any) -> None:
    """A run of two tasks: one passes out of order, one is lost and given up."""
    progress.opened(run_header(task_header(1), task_header(2), k=2), 4, 0)
    progress.note("mind\nthis")
    progress.started("task-001", 2)
    progress.line(attempt_record(2, 1))
    progress.line(verdict_record(Outcome.PASS, 2, 1))
    progress.started("task-002", 1)
    progress.line(HookFailure("task-002", "Task 2", 1, "setup", None, "slow"))
    progress.line(attempt_record(1, 2))
    progress.line(verdict_record(Outcome.TIMEOUT, 1, 2, assert_evidence="too\nslow"))
    progress.line(AbortedRecord("task-002", "Task 2", 1))
    progress.started("task-001", 1)


def test_away_from_a_terminal_there_is_a_line_per_attempt() -> None:
    stream = io.StringIO()
    with make_progress(run_header(task_header(1), task_header(2), k=2), stream) as progress:
        play(progress)
    assert stream.getvalue().splitlines() == [
        "demo: 2 tasks, 4 attempts",
        "mind",
        "this",
        "+ Task 1 #2: pass".replace("+", "[1/4] +"),
        "x Task 2 #1: setup passed its limit",
        "[2/4] o Task 2 #1: timeout | too slow",
        "o Task 2: aborted after attempt 1",
    ]


def test_on_a_terminal_marks_stand_at_the_place_of_their_number() -> None:
    made, stream = view(terminal=True)
    progress = LiveProgress(run_header(task_header(1), task_header(2), k=2), made)
    play(progress)
    probe, rows = view()
    probe.print(progress.table())
    lines = content(rows).splitlines()
    assert lines[0].split()[:3] == ["Task", "1", "▸✓"]
    assert "⊘· aborted" in lines[1]
    assert "2 of 4 attempts" in lines[2]
    assert "Task 2 #1: timeout · too slow" in content(stream)
    assert "Task 1 #2" not in content(stream)  # what is fine is only drawn


def test_many_tasks_leave_room_for_the_sum() -> None:
    made, _ = view(terminal=True)
    header = run_header(*[task_header(n) for n in range(1, 101)], k=8)
    progress = LiveProgress(header, made)
    progress.started("task-090", 1)
    probe, rows = view()
    probe.print(progress.table())
    lines = content(rows).splitlines()
    assert len(lines) <= 30
    assert lines[0].startswith("Task 90")  # what runs comes first
    assert "▸1 ·7" in lines[0]
    assert "more tasks" in lines[-2]


def test_a_resumed_run_counts_what_was_there() -> None:
    stream = io.StringIO()
    with make_progress(run_header(k=3), stream) as progress:
        progress.opened(run_header(k=3), 3, 2)
        progress.line(verdict_record(Outcome.PASS, 3))
    assert "2 of them already there" in stream.getvalue()
    assert "[3/3]" in stream.getvalue()


def test_a_stream_that_is_gone_does_not_end_the_run() -> None:
    stream = io.StringIO()
    stream.close()
    with make_progress(run_header(), stream) as progress:
        play(progress)


def test_many_threads_may_tell_at_once() -> None:
    made, _ = view(terminal=True)
    header = run_header(*[task_header(n) for n in range(1, 9)], k=20)
    with_thread = LiveProgress(header, made)
    with_thread.start()

    def tell(task: int) -> None:
        for number in range(1, 21):
            with_thread.started(f"task-{task:03d}", number)
            with_thread.line(attempt_record(number, task))
            with_thread.line(verdict_record(Outcome.TIMEOUT, number, task))

    threads = [threading.Thread(target=tell, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with_thread.stop()
    assert sum(len(task.outcomes) for task in with_thread.tasks.values()) == 160


def test_styled_text_is_never_markup() -> None:
    assert styled("[red]x[/blue]").plain == "[red]x[/blue]"
