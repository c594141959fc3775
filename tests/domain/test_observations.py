"""Activation: the skill's text came before the agent. Cheating: a forbidden path stands in a tool's input."""

from typing import Any

import pytest

from caliper_pipeline.domain.observations import (
    EVIDENCE_CHARS,
    find_forbidden,
    observe_activation,
    observe_builtin,
)
from caliper_pipeline.domain.transcript import Turn

INSTALLED = ("tide-table", "moon-phase")
TIDE = "---\nname: tide-table\ndescription: Tides.\n---\n\n# Tides\n\nHigh water first.\n"
MOON = "---\ndescription: Moons.\nname: 'moon-phase'\n---\nFull moon first.\n"
NUMBERED = "".join(f"{n}\t{line}\n" for n, line in enumerate(TIDE.splitlines(), 1))


def call(tool: str, given: dict[str, Any], result: str | None = "ok", error: bool | None = None) -> list[Turn]:
    turns = [Turn("tool_use", tool_name=tool, tool_input=given, call_id="c")]
    return turns if result is None else [*turns, Turn("tool_result", content=result, call_id="c", is_error=error)]


def bash(command: str, result: str | None = "ok", error: bool | None = None) -> list[Turn]:
    return call("Bash", {"command": command}, result, error)


def activated(turns: list[Turn], backend: str = "claude-code") -> tuple[str, ...]:
    return observe_activation(turns, INSTALLED, backend=backend)


@pytest.mark.parametrize(
    ("turns", "backend"),
    [
        (call("Skill", {"skill": "tide-table"}, "Launching skill: tide-table"), "claude-code"),
        (call("Skill", {"skill": "tide-table", "args": "Cuxhaven"}), "scripted"),
        (call("Skill", {"skill": "/tide-table"}), "claude-code"),
        (call("Skill", {"command": "tide-table"}), "claude-code"),  # the key of the first releases
        (call("Skill", {"skill": "tide-table"}, None), "claude-code"),  # the stream ends before its result
        (call("skill_view", {"name": "tide-table"}), "hermes"),
        (call("skill", {"name": "tide-table"}), "claude-api"),
        (call("skill", {"name": "tide-table"}), "openai-api"),
        (call("read", {"path": "~/.agent/skills/tide-table/SKILL.md"}, TIDE), "openai-api"),
        (call("skill_view", {"skill_name": "tide-table"}), "hermes"),
        (call("Read", {"file_path": "/h/.claude/skills/tide-table/SKILL.md"}, NUMBERED), "claude-code"),
        (call("read", {"path": "C:\\u\\skills\\tide-table\\SKILL.md"}), "pi"),
        (call("read", {"path": "tide-table/SKILL.md"}), "pi"),
        (call("mcp__fs__read_text_file", {"request": {"path": "/s/tide-table/SKILL.md"}}), "codex"),
        (call("mcp__fs__read_many", {"paths": ["/a", "/s/tide-table/SKILL.md"]}), "codex"),
        (call("fetch", {"uri": "file:///s/tide-table/SKILL.md"}), "codex"),
        (call("editor", {"command": "view", "path": "/s/tide-table/SKILL.md"}), "claude-code"),
        (call("Grep", {"pattern": "high", "path": "s/tide-table/SKILL.md", "output_mode": "content"}), "claude-code"),
        (bash("cat skills/tide-table/SKILL.md", TIDE), "claude-code"),
        (bash("cat skills/tide-table/SKILL.md", None), "claude-code"),
        (bash("/bin/bash -lc 'cat $HOME/.codex/skills/tide-table/SKILL.md'", TIDE), "codex"),
        (call("shell", {"command": ["bash", "-lc", "cat skills/tide-table/SKILL.md"]}, TIDE), "codex"),
        (call("exec", {"cmd": "head -40 skills/tide-table/SKILL.md"}, TIDE), "codex"),
        (bash("cd skills/tide-table && cat SKILL.md", TIDE), "claude-code"),
        (bash("cat SKILL.md", TIDE), "claude-code"),  # an earlier call went there
        (bash("for s in tide-table; do cat skills/$s/SKILL.md; done", TIDE), "claude-code"),
        (bash("ls skills | while read s; do cat skills/$s/SKILL.md; done", TIDE), "claude-code"),
        (bash("find . -name SKILL.md -exec cat {} +", TIDE), "claude-code"),
        (bash("python3 -c \"print(open('skills/tide-table/SKILL.md').read())\"", TIDE), "claude-code"),
        (bash("cat skills/tide-table/SKILL.md; false", "Exit code 1\n" + TIDE, True), "claude-code"),
        (bash("cat skills/tide*/SKILL.md", "High water first."), "claude-code"),
        (bash("sed -n '5,20p' skills/tide-table/SKILL.md", "High water first."), "claude-code"),
    ],
)
def test_the_skill_was_brought_in(turns: list[Turn], backend: str) -> None:
    assert activated(turns, backend) == ("tide-table",)


@pytest.mark.parametrize(
    ("turns", "backend"),
    [
        (call("Skill", {"skill": "tide-table"}, "<tool_use_error>Unknown skill</tool_use_error>"), "claude-code"),
        (call("Skill", {"skill": "tide-table"}, "no", True), "claude-code"),
        (call("Skill", {"skill": "sea:tide-table"}), "claude-code"),  # a plugin's namesake
        (call("Skill", {"skill": "Tide-Table"}), "claude-code"),
        (call("Skill", {"skill": ["tide-table"]}), "claude-code"),
        (call("Skill", {"skill": "other", "name": "tide-table"}), "claude-code"),  # the first key counts
        (call("Skill", {"skill": "tide-table"}), "codex"),  # not a tool of that backend
        (call("Read", {"file_path": "skills/my-tide-table/SKILL.md"}), "claude-code"),
        (call("Read", {"file_path": "skills/tide-table/SKILL.md.bak"}), "claude-code"),
        (call("Read", {"file_path": "skills/tide-table/SKILL.md/x"}), "claude-code"),
        (call("Read", {"file_path": "skills/tide-table/REFERENCE.md"}), "claude-code"),
        (call("Read", {"file_path": "skills/tide-table/SKILL.md"}, "no such file", True), "claude-code"),
        (call("Write", {"file_path": "tide-table/SKILL.md", "content": TIDE}), "claude-code"),
        (call("Edit", {"file_path": "tide-table/SKILL.md", "old_string": "a", "new_string": "b"}), "claude-code"),
        (call("write_file", {"path": "tide-table/SKILL.md"}), "hermes"),
        (call("file_change", {"changes": [{"path": "/s/tide-table/SKILL.md", "kind": "add"}]}), "codex"),
        (call("editor", {"command": "create", "path": "tide-table/SKILL.md"}), "claude-code"),
        (call("Glob", {"pattern": "**/tide-table/SKILL.md"}), "claude-code"),
        (call("LS", {"path": "skills/tide-table/SKILL.md"}), "claude-code"),
        (call("list_directory", {"path": "skills/tide-table/SKILL.md"}), "codex"),
        (call("Grep", {"pattern": "x", "path": "tide-table/SKILL.md"}), "claude-code"),
        (call("Task", {"prompt": "Read tide-table/SKILL.md"}), "claude-code"),
        (bash("ls -la skills/tide-table/SKILL.md skills/tide-table"), "claude-code"),
        (bash("rg --files -g '**/SKILL.md'", "skills/tide-table/SKILL.md"), "codex"),
        (bash("cat tide-table/SKILL.md.bak; ls .claude/skills/tide-table", "x"), "claude-code"),
        (bash("cat my-tide-table/SKILL.md", "x"), "claude-code"),
        (bash("cat > tide-table/SKILL.md <<'EOF'\n" + TIDE + "EOF"), "claude-code"),
        (bash("git add tide-table/SKILL.md"), "claude-code"),
        (bash("echo tide-table/SKILL.md"), "claude-code"),
        (bash("cat skills/tide-table/SKILL.md", "cat: no such file", True), "claude-code"),
        (bash("cp skills/tide-table/SKILL.md /tmp"), "claude-code"),
        (bash("head -3 skills/*/SKILL.md", "---\nname: tide-table\ndescription: Tides.\n"), "claude-code"),
        (bash("python3 build.py --skill tide-table/SKILL.md", "built"), "claude-code"),
        (bash("ls skills | xargs echo", TIDE), "claude-code"),  # nothing in it reads
        ([Turn("assistant", "I will read tide-table/SKILL.md")], "claude-code"),
        ([Turn("tool_result", TIDE)], "claude-code"),
        ([Turn("tool_use", tool_name="Bash", tool_input=None)], "claude-code"),
    ],
)
def test_the_skill_was_not_brought_in(turns: list[Turn], backend: str) -> None:
    assert activated(turns, backend) == ()


def test_a_survey_of_first_lines_activates_none_and_a_full_print_all() -> None:
    head = "==> a/tide-table/SKILL.md <==\n---\nname: tide-table\ndescription: T\n---\n\n"
    head += "==> b/moon-phase/SKILL.md <==\n---\nname: moon-phase\n"
    command = "head -5 a/tide-table/SKILL.md b/moon-phase/SKILL.md"
    assert activated(bash(command, head)) == ()
    assert activated(bash("cat a/tide-table/SKILL.md b/moon-phase/SKILL.md", TIDE + MOON)) == (
        "moon-phase",
        "tide-table",
    )


@pytest.mark.parametrize("announced", ["==> {}/SKILL.md <==\n", ""])
@pytest.mark.parametrize("lines", [2, 3, 4, 5])
def test_a_survey_that_ends_within_the_headers_activates_none(announced: str, lines: int) -> None:
    texts = (f"---\nname: {name}\ndescription: T\n---\n\n# Text" for name in ("moon-phase", "other", "tide-table"))
    shown = "".join(announced + "".join(text.splitlines(keepends=True)[:lines]) for text in texts)
    assert activated(bash(f"head -q -n {lines} skills/*/SKILL.md", shown)) == ()
    assert activated(bash(f"for f in skills/*/SKILL.md; do sed -n 1,{lines}p $f; done", shown)) == ()


def test_a_glob_activates_what_it_printed() -> None:
    assert activated(bash("cat skills/*/SKILL.md", TIDE)) == ("tide-table",)
    assert activated(bash("cat skills/*/SKILL.md", None)) == ("moon-phase", "tide-table")


def test_a_rule_in_a_skills_text_does_not_hide_the_next_skill() -> None:
    assert activated(bash("find . -exec cat {} +", TIDE + "\n---\n\nMore.\n" + MOON)) == ("moon-phase", "tide-table")


def test_results_without_ids_are_found_by_order() -> None:
    turns = [
        Turn("tool_use", tool_name="Skill", tool_input={"skill": "tide-table"}),
        Turn("tool_result", is_error=True),
    ]
    assert activated(turns) == ()


def test_with_nothing_installed_nothing_is_observed() -> None:
    assert observe_activation(call("Skill", {"skill": "tide-table"}), (), backend="claude-code") == ()


def test_built_in_skills_are_told_apart() -> None:
    turns = [*call("Skill", {"skill": "tide-table"}), *call("Skill", {"skill": "code-review"})]
    listed = ("tide-table", "code-review", "verify")
    assert observe_builtin(turns, listed, INSTALLED, backend="claude-code") == ("code-review",)
    assert observe_builtin(turns, None, INSTALLED, backend="claude-code") is None


SPEC = "/home/me/evals/tide+moon.eval.yaml"


def forbidden(given: Any, *patterns: str) -> tuple[str, ...]:
    return find_forbidden(call("Any", given), patterns, SPEC)


@pytest.mark.parametrize(
    ("given", "patterns"),
    [
        ({"file_path": SPEC}, ()),
        ({"command": f"cat {SPEC}"}, ()),
        ({"note": f"look at {SPEC}"}, ()),
        ({"command": "cat .caliper/results/demo/1.json"}, ()),
        ({"command": "cat /home/me/.caliper/runs/1/run.json"}, ()),
        ({"path": "C:\\x\\.caliper\\results\\demo"}, ()),
        ({"file": "answers"}, ("answers",)),
        ({"CMD": "answers"}, ("answers",)),
        ({"paths": ["a", "answers"]}, ("answers",)),
        ({"deep": {"er": [{"path": "answers"}]}}, ("answers",)),
        ({"anything": "x/answers"}, ("answers",)),
        ({"content": "see the answers."}, ("answers",)),
        ({"file_path": "x.eval.yaml"}, (r".*\.eval\.yaml$",)),
    ],
)
def test_a_forbidden_path_is_found(given: Any, patterns: tuple[str, ...]) -> None:
    assert len(forbidden(given, *patterns)) == 1


@pytest.mark.parametrize(
    ("given", "patterns"),
    [
        ({"file_path": "/home/me/evals/tideXmoon.eval.yaml"}, ()),
        ({"command": "cat /home/me/evals/tide++moon.eval.yaml"}, ()),
        ({"command": "ls .caliper"}, ()),
        ({"path": ".caliper-mcp.json"}, ()),
        ({"path": "my.caliper/results/x"}, ()),
        ({"path": "x-.caliper/results/x"}, ()),
        ({"path": ".caliper/resultset/x"}, ()),
        ({"content": "the answers"}, ("answers",)),  # neither a path's key nor a path's marks
        ({"a": {"b": {"c": {"d": {"e": {"path": "answers"}}}}}}, ("answers",)),  # the sixth level
        ({"path": 7}, ("7",)),
    ],
)
def test_what_only_resembles_one_is_not(given: Any, patterns: tuple[str, ...]) -> None:
    assert forbidden(given, *patterns) == ()


def test_outputs_and_words_are_never_looked_at() -> None:
    turns = [Turn("assistant", SPEC), Turn("tool_result", SPEC), Turn("user", SPEC)]
    assert find_forbidden(turns, ["eval"], SPEC) == ()


def test_each_string_is_named_once_in_order() -> None:
    turns = [*bash("cat b/answers"), *bash("cat a/answers"), *bash("cat b/answers")]
    assert find_forbidden(turns, ["answers"], SPEC) == ("cat b/answers", "cat a/answers")


def test_long_evidence_is_kept_around_the_place() -> None:
    (found,) = forbidden({"content": "x" * 9_000 + SPEC + "y" * 9_000})
    assert SPEC in found
    assert len(found) < EVIDENCE_CHARS + 10


def test_a_pattern_that_backtracks_without_end_is_answered_at_once() -> None:
    assert forbidden({"file_path": "./" + "a" * 40 + "!"}, r"^\./(a+)+$") == ()
    assert forbidden({"file_path": "./" + "a" * 40}, r"^\./(a+)+$") != ()
