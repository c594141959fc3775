"""Two runs side by side: the reference's figures, the laws of a difference, and what makes it meaningless."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caliper_pipeline.domain.comparison import Comparison, compare
from caliper_pipeline.domain.comparison_json import comparison_dict
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.results import Results, assemble, parse_results, results_dict

from .factories import START, attempt_record, run_header, skill_header, task_header, verdict_record

PAIRS = sorted((Path(__file__).parents[1] / "fixtures" / "comparisons").glob("*.json"))


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_every_figure_agrees_with_the_reference(path: Path) -> None:
    pair = json.loads(path.read_text(encoding="utf-8"))
    found = comparison_dict(compare(parse_results(pair["a"]), parse_results(pair["b"])))
    assert_agrees(pair["reference"], json.loads(json.dumps(found)), "")


def assert_agrees(theirs: Any, ours: Any, where: str) -> None:
    if where == ".warnings":
        assert len(ours) == len(theirs), (theirs, ours)  # the same ones fire; the words are our own
    elif where.endswith(("_ref", "timestamp")):
        return  # a digest's first digits, a time's way of being written
    elif isinstance(theirs, dict):
        assert [key for key in ours if key in theirs] == list(theirs), where
        for key, value in theirs.items():
            assert_agrees(value, ours[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for index, value in enumerate(theirs):
            assert_agrees(value, ours[index], f"{where}[{index}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs), where
    else:
        assert ours == theirs, where


PASS, FAIL, TIMEOUT, UNCHECKED = Outcome.PASS, Outcome.TASK_FAIL, Outcome.TIMEOUT, Outcome.NOT_CHECKED


def results(tasks: dict[str, list[Outcome]], **given: Any) -> Results:
    """Results of a run whose tasks came out like that."""
    headers = [
        task_header(n, name=name, assert_script=None if UNCHECKED in each else "assert True")
        for n, (name, each) in enumerate(tasks.items(), 1)
    ]
    lines = [
        line
        for n, each in enumerate(tasks.values(), 1)
        for number, outcome in enumerate(each, 1)
        for line in (attempt_record(number, n), verdict_record(outcome, number, n))
    ]
    given.setdefault("k", max([1, *(len(each) for each in tasks.values())]))
    interrupted = given.pop("interrupted", False)
    return assemble(run_header(*headers, **given), lines, ended_at=START, interrupted=interrupted)


def test_tasks_match_by_name_and_only_those_measured_twice_make_the_averages() -> None:
    a = results({"one": [PASS, PASS], "two": [FAIL, PASS], "gone": [PASS], "lost": [TIMEOUT], "probe": [UNCHECKED]})
    b = results({"two": [FAIL, FAIL], "one": [PASS, PASS], "new": [PASS], "lost": [PASS], "probe": [UNCHECKED]})
    found = compare(a, b)
    assert [(task.task_name, task.delta) for task in found.matched] == [
        ("one", 0),
        ("two", -0.5),
        ("lost", None),
        ("probe", None),
    ]
    assert (found.unmatched_a, found.unmatched_b) == (("gone",), ("new",))
    assert (found.a_matched_avg, found.b_matched_avg, found.aggregate_delta) == (0.75, 0.5, -0.25)
    assert found.measured_tasks == 2
    assert found.drops == ("two",)
    assert found.unmeasured == ("lost",)


def test_with_nothing_measured_on_both_sides_there_is_no_average() -> None:
    found = compare(results({"one": [PASS]}), results({"one": [TIMEOUT]}))
    assert found.a_matched_avg is None
    assert found.aggregate_delta is None
    assert comparison_dict(found)["measured_tasks"] == 0


def test_runs_of_different_eras_are_refused() -> None:
    new = results({"one": [PASS]})
    plain = results_dict(new)
    plain["run"]["era"] = None
    for pair in ((new, parse_results(plain)), (parse_results(plain), new)):
        with pytest.raises(BadInput, match="do not measure the same thing"):
            compare(*pair)


FULL = {"skills": (skill_header("tide"), skill_header("moon"))}
CUT = {"skills": (skill_header("tide", installed=False), skill_header("moon")), "ablated": ("tide",)}
BARE = {
    "skills": (skill_header("tide", installed=False), skill_header("moon", installed=False)),
    "ablated": ("moon", "tide"),
}


@pytest.mark.parametrize(
    ("full", "cut", "labels"),
    [
        (FULL, CUT, ("with tide", "without tide")),
        (FULL, BARE, ("with moon, tide", "without any skills or servers")),
        (FULL, BARE | {"mcp_servers": ("mail",)}, None),  # the servers differ besides
        (FULL | {"mcp_servers": ("mail",)}, FULL | {"ablated": ("mcp:mail",)}, ("with mcp:mail", "without mcp:mail")),
        (FULL, FULL | {"ablated": ("mcp:mail",)}, None),  # the full side never had it
        (CUT, BARE, None),  # both are cut
        (FULL, FULL, None),
        ({"skills": (skill_header("tide"),)}, CUT, None),  # the cut side has one more
        ({"skills": (skill_header("moon"),)}, CUT, None),  # the removed skill was not there
        (FULL, CUT | {"isolated": False}, None),  # the setups differ
    ],
)
def test_a_full_run_and_its_control_are_recognised(full: Any, cut: Any, labels: Any) -> None:
    a, b = results({"one": [PASS]}, **full), results({"one": [FAIL]}, **cut)
    found, mirrored = compare(a, b), compare(b, a)
    assert (found.a_label, found.b_label) == (labels or (None, None))
    assert (mirrored.b_label, mirrored.a_label) == (labels or (None, None))
    if labels:
        assert not found.warnings
        assert not found.mismatches.neighbourhood
        assert not found.mismatches.mcp


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"spec": "other"}, "different specs: demo and other"),
        ({"k": 4}, "different k: A made 1 attempts a task, B 4"),
        ({"interrupted": True}, "B ended before every attempt had run"),
        ({"skills": ()}, "different skills installed: tide-table and none"),
        ({"mcp_servers": ("mail",)}, "different MCP servers: none and mail"),
        ({"isolated": False}, "only B loaded the user's own customizations"),
        ({"isolated": False, "backend": "codex"}, "different backends (claude-code and codex)"),
        ({"simulated": True}, "B is simulated"),
    ],
)
def test_what_makes_two_runs_hard_to_compare_is_said(other: Any, words: str) -> None:
    found = compare(results({"one": [PASS]}), results({"one": [PASS]}, **other))
    assert len(found.warnings) == 1
    assert words in found.warnings[0]


def test_another_model_is_the_question_and_no_warning() -> None:
    assert not compare(results({"one": [PASS]}, model="opus"), results({"one": [PASS]}, model="haiku")).warnings


def edited(run: Results, **changes: Any) -> Results:
    plain = json.loads(json.dumps(results_dict(run)))
    plain["skill_snapshots"][0].update(changes)
    return parse_results(plain)


def test_a_git_skill_that_drifted_warns_and_an_edited_one_is_a_note() -> None:
    run = results({"one": [PASS]})
    files = {"SKILL.md": {"hash": "sha256:" + "1" * 64}}
    edit = compare(run, edited(run, files=files))
    assert [(d.name, d.source_kind) for d in edit.skill_drift] == [("tide-table", "path")]
    assert not edit.warnings
    git = compare(edited(run, source_kind="git", git_sha="a" * 40), edited(run, files=files))
    assert git.skill_drift[0].a_ref == "aaaaaaa"
    assert "tide-table changed: git source, aaaaaaa →" in git.warnings[0]


def test_a_snapshot_without_files_makes_no_claim() -> None:
    run = results({"one": [PASS]})
    assert not compare(run, edited(run, files={})).skill_drift


def judged(backend: str, model: str | None) -> Results:
    header = run_header(task_header(expect="fine"), k=1, judge_backend=backend, judge_model=model)
    return assemble(header, [attempt_record(), verdict_record(judge_seconds=1.0)], ended_at=START)


@pytest.mark.parametrize(
    ("a", "b", "mismatch"),
    [
        (("claude-code", None), ("claude-code", None), False),  # two unnamed defaults pass
        (("claude-code", None), ("claude-code", "opus"), True),
        (("claude-code", "opus"), ("codex", "opus"), True),
    ],
)
def test_judges_are_compared_where_both_judged(a: Any, b: Any, mismatch: bool) -> None:
    assert compare(judged(*a), judged(*b)).mismatches.judge is mismatch


def test_a_judge_that_never_spoke_is_not_compared() -> None:
    silent = assemble(run_header(task_header(), k=1, judge_backend="codex"), [], ended_at=START, interrupted=False)
    assert not compare(judged("claude-code", None), silent).mismatches.judge


runs = st.builds(
    results,
    st.dictionaries(
        st.sampled_from(["one", "two", "three", "four"]),
        st.lists(st.sampled_from(list(Outcome)), max_size=5),
        max_size=4,
    ),
    spec=st.sampled_from(["demo", "other"]),
    backend=st.sampled_from(["claude-code", "codex"]),
    isolated=st.booleans(),
    mcp_servers=st.sampled_from([(), ("mail",)]),
    interrupted=st.booleans(),
    simulated=st.booleans(),
) | st.sampled_from([results({"one": [PASS]}, **given) for given in (FULL, CUT, BARE)])


@given(runs)
def test_a_run_against_itself_is_all_zero(run: Results) -> None:
    found = compare(run, run)
    assert all(task.delta in (0, None) and task.activation_delta in (0, None) for task in found.matched)
    assert found.aggregate_delta in (0, None)
    assert (found.tokens_delta, found.wall_delta) == (0, 0)
    assert not found.drops + found.activation_drops + found.unmatched_a + found.unmatched_b
    assert not found.skill_drift


@given(runs, runs)
def test_comparing_the_other_way_round_mirrors_everything(a: Results, b: Results) -> None:
    one, other = compare(a, b), compare(b, a)
    assert sorted(deltas(one)) == sorted((name, None if d is None else -d) for name, d in deltas(other))
    assert (one.a_matched_avg, one.b_matched_avg) == (other.b_matched_avg, other.a_matched_avg)
    assert (one.a_label, one.b_label) == (other.b_label, other.a_label)
    assert sorted(one.unmatched_a) == sorted(other.unmatched_b)
    assert one.mismatches == other.mismatches
    assert one.tokens_delta == -other.tokens_delta
    assert len(one.warnings) == len(other.warnings)


def deltas(found: Comparison) -> list[tuple[str, float]]:
    return [(task.task_name, task.delta) for task in found.matched if task.delta is not None]


@given(runs, runs, st.randoms(use_true_random=False))
def test_the_order_of_tasks_and_attempts_in_a_file_is_irrelevant(a: Results, b: Results, order: random.Random) -> None:
    plain = results_dict(a)
    shuffled = copy.deepcopy(plain)
    order.shuffle(shuffled["task_results"])
    for task in shuffled["task_results"]:
        order.shuffle(task["attempts"])
    assert comparison_dict(compare(parse_results(shuffled), b)) == comparison_dict(compare(parse_results(plain), b))


@given(runs)
def test_results_survive_json_and_come_back_equal(run: Results) -> None:
    assert parse_results(json.loads(json.dumps(results_dict(run)))) == run
