"""What a script may say, what is wrong with one that is refused, and how outcomes are drawn."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caliper_pipeline.domain.errors import SpecError
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.execution.backends.script_file import (
    FAILURES,
    Failure,
    Outcome,
    Script,
    Step,
    ToolUse,
    load_script,
    task_names,
)

DOCS = Path(__file__).parents[2] / "docs" / "scripted.md"


def script(tmp_path: Path, text: str | bytes) -> Script:
    path = tmp_path / "x.script.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_script(path)


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(SpecError) as caught:
        script(tmp_path, text)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def test_every_step_is_read(tmp_path: Path) -> None:
    read = script(
        tmp_path,
        """
        tasks:
          T:
            steps:
              - say: hi
              - run: "true"
              - skill: s
              - tool: {name: Read, input: {file_path: a, deep: [1, 2.5, null, true]}, result: r, error: true}
              - wait: 0.5
              - tokens: {input: 1, cache_creation: 2}
              - model: m
              - raw: "{"
              - fail: {kind: crash, exit: 3, message: boom, times: 2}
            fail: timeout
        """,
    )
    assert read.outcome("T", (), 1) == Outcome(
        (
            Step("say", "hi"),
            Step("run", "true"),
            Step("skill", "s"),
            Step("tool", ToolUse("Read", {"file_path": "a", "deep": [1, 2.5, None, True]}, "r", True)),
            Step("wait", 0.5),
            Step("tokens", Usage(1, None, None, 2)),
            Step("model", "m"),
            Step("raw", "{"),
            Step("fail", Failure("crash", 2, 3, "boom")),
            Step("fail", Failure("timeout")),
        )
    )


ARMS = """
tasks:
  Own:
    full: {steps: [{say: full}]}
    ~b~a: {steps: [{say: neither}]}
    ablated: {steps: [{say: some}]}
  Only full:
    full: {steps: [{say: only}]}
  All: {steps: [{say: all}]}
  "*":
    "*": {steps: [{say: any}]}
"""


@pytest.mark.parametrize(
    ("task", "ablated", "said"),
    [
        ("Own", (), "full"),
        ("Own", ("a", "b"), "neither"),
        ("Own", ("b", "a"), "neither"),
        ("Own", ("a",), "some"),
        ("Own", ("a", "b", "c"), "some"),
        ("Only full", (), "only"),
        ("Only full", ("a",), "any"),
        ("All", (), "all"),
        ("All", ("a",), "all"),
        ("Other", (), "any"),
    ],
)
def test_the_nearest_behaviour_is_found(tmp_path: Path, task: str, ablated: tuple[str, ...], said: str) -> None:
    outcome = script(tmp_path, ARMS).outcome(task, ablated, 1)
    assert outcome is not None
    assert outcome.steps == (Step("say", said),)


def test_nothing_is_made_up_for_a_task_without_behaviour(tmp_path: Path) -> None:
    read = script(tmp_path, "tasks: {A: {full: {steps: [{say: x}]}}}")
    assert read.outcome("B", (), 1) is None
    assert read.outcome("A", ("s",), 1) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ["x.script.yaml: this file is empty"]),
        ("{}", ["line 1: this script is empty; it needs `tasks` or `judge`"]),
        ("[1]", ["line 1: a mapping is needed, not a list"]),
        ("a: [", ["this is no YAML"]),
        ("tasks:\n  *: x", ["line 2: this is no YAML"]),
        (b"\xff", ["this file is not UTF-8 (byte 0)"]),
        ("task: {}", ["line 1: task: unknown key; did you mean tasks?"]),
        ("seed: -1", ["line 1: seed: a number from 0 is needed, not -1"]),
        ("seed: 1.5", ["line 1: seed: a whole number is needed, not 1.5"]),
        ("seed: true", ["line 1: seed: a number is needed, not 'true'"]),
        ("model: 4", ["line 1: model: text is needed, not '4'"]),
        ("tasks: {A: }", ["tasks → A: a list is needed, not nothing"]),
        ("tasks:\n  A: []", ["line 2: tasks → A: this list is empty"]),
        ("tasks:\n  A: {steps: []}", ["tasks → A → steps: this list is empty"]),
        ("tasks:\n  A:\n    - weight: 1", ["line 3: tasks → A → 1: an outcome needs `steps` or `fail`"]),
        ("tasks:\n  A: {steps: [{say: x}]}\n  A: {steps: [{say: y}]}", ["line 3: tasks → A: this key is there twice"]),
        ("tasks: {A: {all: {steps: [{say: x}]}}}", ["tasks → A → all: no arm is called so; arms are full, ablated"]),
        ("tasks: {A: [{weight: 0, fail: crash}]}", ["tasks → A: nothing can happen: all weights are 0"]),
        ("tasks: {A: [{weight: .inf, fail: crash}]}", ["tasks → A → 1 → weight: a number from 0 is needed"]),
        ("tasks: {A: {fail: boom}}", ["tasks → A → fail: one of timeout, crash, silent, cut, rate_limit"]),
        ("tasks: {A: {fail: {times: 1}}}", ["tasks → A → fail: `kind` is missing"]),
        ("tasks: {A: {fail: {kind: crash, exit: 256}}}", ["fail → exit: 256 is no exit code"]),
        (
            "tasks:\n  A:\n    steps:\n      - say: x\n      - sya: y",
            ["line 5: tasks → A → steps → 2 → sya: unknown key; did you mean say?"],
        ),
        ("tasks: {A: {steps: [{say: x, run: y}]}}", ["tasks → A → steps → 1: a step is one of say, run, "]),
        ("tasks: {A: {steps: [x]}}", ["tasks → A → steps → 1: a mapping is needed, not 'x'"]),
        ("tasks: {A: {steps: [{say: 1}]}}", ["steps → 1 → say: text is needed, not '1'"]),
        ("tasks: {A: {steps: [{wait: soon}]}}", ["steps → 1 → wait: a number is needed, not 'soon'"]),
        ("tasks: {A: {steps: [{tokens: {out: 1}}]}}", ["tokens → out: unknown key"]),
        (
            "tasks: {A: {steps: [{tool: {input: []}}]}}",
            ["tool: `name` is missing", "tool → input: a mapping is needed"],
        ),
        ("judge: {tasks: {A: {reasoning: x}}}", ["judge → tasks → A → reasoning: no arm is called so"]),
        (
            "judge: {tasks: {A: [{reasoning: x}]}}",
            ["judge → tasks → A → 1: a ruling needs `passed`, `answer` or `fail`"],
        ),
        ("judge: {tasks: {A: {passed: 'yes'}}}", ["judge → tasks → A → passed: true or false is needed, not 'yes'"]),
        ("judge: {tasks: {A: {answer: x, times: 1}}}", ["`times` says how often `answer` comes before the verdict"]),
        ("<<: {seed: 1}", ["every key must be plain text"]),
        ("? [a]\n: b", ["every key must be plain text"]),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_key(tmp_path: Path, text: str | bytes, wanted: list[str]) -> None:
    told = problems(tmp_path, text)
    for words in wanted:
        assert [problem for problem in told if words in problem], told
    assert all("x.script.yaml" in problem for problem in told)


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = "seed: x\ntasks:\n  A: {steps: [{sai: x}]}\n  B: {fail: nope}\njudge: {tasks: {A: {passed: 1}}}\n"
    told = problems(tmp_path, text)
    assert re.findall(r"line (\d)", "".join(told)) == list("1345")


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
        + "tasks: {A: {steps: [{tool: {name: T, input: {x: *i}}}]}}",
        "tasks: {A: {steps: [{tool: {name: T, input: &a {x: *a}}}]}}",
        "tasks: {A: {steps: [{tool: {name: T, input: {x: " + "[" * 200 + "]" * 200 + "}}}]}}",
        "tasks:\n  A: &o ["
        "&s {steps: ["
        "&t {say: x}, " + "*t, " * 500 + "]}, " + "*s, " * 500 + "]\n" + "".join(f"  T{n}: *o\n" for n in range(500)),
    ],
    ids=["bomb of values", "value in itself", "deep value", "bomb of steps"],
)
def test_a_few_lines_cannot_stand_for_millions(tmp_path: Path, text: str) -> None:
    assert re.search("too many values|too deep|unknown key", problems(tmp_path, text)[-1])


def test_a_changed_script_is_read_again(tmp_path: Path) -> None:
    assert script(tmp_path, "{seed: 1, tasks: {A: {fail: crash}}}").seed == 1
    assert script(tmp_path, "{seed: 22, tasks: {A: {fail: crash}}}").seed == 22
    path = tmp_path / "x.script.yaml"
    assert load_script(path) is load_script(path)


def test_a_missing_script_is_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"y\.script\.yaml: this script cannot be read: No such file"):
        load_script(tmp_path / "y.script.yaml")


WEIGHTED = """
seed: {seed}
tasks:
  "*":
    - weight: 8
      steps: [say: x]
    - weight: 2
      fail: crash
    - weight: 0
      fail: cut
"""


def drawn(read: Script, task: str, ablated: tuple[str, ...], attempts: int) -> list[str]:
    outcomes = [read.outcome(task, ablated, number) for number in range(1, attempts + 1)]
    return [outcome.steps[0].kind for outcome in outcomes if outcome is not None]


def test_outcomes_come_by_their_weights(tmp_path: Path) -> None:
    read = script(tmp_path, WEIGHTED.format(seed=3))
    counts = Counter(drawn(read, "A", (), 4000))
    assert set(counts) == {"say", "fail"}
    assert 3100 < counts["say"] < 3300  # four standard deviations


def test_outcomes_depend_on_seed_arm_and_task(tmp_path: Path) -> None:
    first = script(tmp_path, WEIGHTED.format(seed=3))
    second = script(tmp_path, WEIGHTED.format(seed=44))
    draws = [
        drawn(first, "A", (), 64),
        drawn(first, "B", (), 64),
        drawn(first, "A", ("s",), 64),
        drawn(second, "A", (), 64),
    ]
    assert len({tuple(draw) for draw in draws}) == 4
    assert draws[0] == drawn(first, "A", (), 64)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20), st.text(max_size=5))
def test_the_order_of_attempts_does_not_matter(numbers: list[int], task: str) -> None:
    read = Script(Path("x"), "", tasks={"*": {"*": (Outcome((), 1), Outcome((), 2))}})
    alone = {number: read.outcome(task, (), number) for number in sorted(numbers)}
    assert all(read.outcome(task, (), number) is alone[number] for number in numbers)


def test_a_spec_is_asked_only_for_its_tasks(tmp_path: Path) -> None:
    spec = tmp_path / "x.eval.yaml"
    assert task_names(spec) is None
    spec.write_text("skills: []\ntasks:\n  - name: A\n    prompt: p\n  - {name: B}\n")
    assert task_names(spec) == ("A", "B")
    for text in ("[", "tasks: 1", "tasks: [1]", "tasks: [{prompt: x}]", "x: 1"):
        spec.write_text(text)
        assert task_names(spec) is None


def test_the_documented_script_is_right(tmp_path: Path) -> None:
    text = DOCS.read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    read = script(tmp_path, example)
    assert read.seed == 7
    assert set(read.tasks) == {"Flags urgent mail", "*"}
    assert read.ruling("Any", (), "1").times == 1


def test_every_step_and_failure_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for kind in ("say", "run", "skill", "tool", "wait", "tokens", "model", "raw", "fail"):
        assert f"| `{kind}: " in text, kind
    for kind in FAILURES:
        assert f"`{kind}`" in text, kind
