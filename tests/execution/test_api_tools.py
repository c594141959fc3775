"""The tools of the API agents, as they act on a real folder."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.execution.backends.api_agent import shell
from caliper_pipeline.execution.backends.api_agent.skills import expanded, find_skills, loaded
from caliper_pipeline.execution.backends.api_agent.talk import Call, Result, Tool, call_of
from caliper_pipeline.execution.backends.api_agent.tools import READ_LINES, Tools

SKILL = "---\nname: tides\ndescription: Tells tides.\n---\n\nRun `tides.sh`.\n"


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where skills are installed."""
    return tmp_path / "home" / ".agent" / "skills"


def install(root: Path, name: str, text: str = SKILL) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "SKILL.md").write_bytes(text.encode())


def tools(workdir: Path, root: Path | None = None, seconds: float = 30.0, **facts: Any) -> Tools:
    names = sorted(path.name for path in root.iterdir()) if root is not None and root.exists() else []
    skills = find_skills(root, names) if root is not None else []
    env = {"PATH": os.environ["PATH"], "HOME": str(workdir.parent / "home")}
    return Tools(str(workdir), env, skills, lambda: seconds, **facts)


def use(given: Tools, tool: str, **arguments: Any) -> Result:
    return given.run(Call("c", tool, arguments))


class TestBash:
    def test_it_runs_in_the_workdir_with_its_own_environment_and_nothing_to_read(self, workdir: Path) -> None:
        result = use(tools(workdir), "bash", command="pwd; echo ${HOME##*/}; cat; echo to >&2; env | grep -c SECRET")
        assert result == Result(f"{workdir}\nhome\nto\n0\n\n[exit code 1]", failed=True)

    def test_a_command_that_takes_too_long_is_ended_and_what_it_said_is_shown(self, workdir: Path) -> None:
        result = use(tools(workdir), "bash", command="echo begun; sleep 60", timeout_seconds=0.3)
        assert result == Result("begun\n\n[ended after 0.3 s: it took too long]", failed=True)

    def test_no_command_outlasts_the_attempt(self, workdir: Path) -> None:
        begun = time.monotonic()
        assert use(tools(workdir, seconds=0.2), "bash", command="sleep 60").failed
        assert time.monotonic() - begun < 20

    def test_the_end_of_one_ended_by_a_signal_is_told(self, workdir: Path) -> None:
        assert use(tools(workdir), "bash", command="kill -9 $$").text == "[ended by signal 9]"

    def test_what_runs_in_the_background_goes_on_and_holds_nobody_up(self, workdir: Path) -> None:
        begun = time.monotonic()
        result = use(tools(workdir), "bash", command="sleep 60 & echo $!")
        assert time.monotonic() - begun < 20
        os.kill(int(result.text), signal.SIGKILL)  # raises when it is gone

    def test_of_a_long_output_beginning_and_end_are_shown(self, workdir: Path) -> None:
        text = use(tools(workdir), "bash", command="seq 100000").text
        assert len(text) < shell.HEAD_CHARS + shell.TAIL_CHARS + 100
        assert text.startswith("1\n2\n")
        assert text.endswith("99999\n100000\n")
        assert "left out …]" in text

    def test_a_flood_does_not_fill_the_memory(self, workdir: Path) -> None:
        result = use(tools(workdir), "bash", command="head -c 100000000 /dev/zero | tr '\\0' x; echo; echo end")
        assert result.text.endswith("x\nend\n")
        assert len(result.text) < 40_000

    @pytest.mark.parametrize("command", ["a\0b", "x" * 200_000])
    def test_a_command_that_cannot_be_started_is_told(self, workdir: Path, command: str) -> None:
        assert use(tools(workdir), "bash", command=command).failed


class TestFiles:
    def test_a_file_is_written_with_the_folders_it_needs_edited_and_read(self, workdir: Path) -> None:
        given = tools(workdir)
        assert not use(given, "write", path="a/b.txt", content="grüße\r\nzwei\n").failed
        assert not use(given, "edit", path="a/b.txt", old_string="grüße", new_string="Gruß").failed
        assert use(given, "read", path=str(workdir / "a" / "b.txt")) == Result("Gruß\r\nzwei\n")
        assert (workdir / "a" / "b.txt").read_bytes() == "Gruß\r\nzwei\n".encode()

    def test_a_long_file_is_read_in_pieces(self, workdir: Path) -> None:
        (workdir / "long").write_text("".join(f"{n}\n" for n in range(1, 3001)), encoding="utf-8")
        given = tools(workdir)
        text = use(given, "read", path="long").text
        assert text.startswith("1\n")
        assert text.endswith(f"[lines 1 to {READ_LINES} of 3000; go on with offset {READ_LINES + 1}]")
        assert use(given, "read", path="long", offset=2999).text == "2999\n3000\n"
        assert use(given, "read", path="long", offset=5, limit=1).text.startswith("5\n\n[lines 5 to 5")

    def test_an_ambiguous_edit_changes_nothing_unless_all_are_meant(self, workdir: Path) -> None:
        (workdir / "f").write_text("a a", encoding="utf-8")
        given = tools(workdir)
        assert "occurs 2 times" in use(given, "edit", path="f", old_string="a", new_string="b").text
        assert not use(given, "edit", path="f", old_string="a", new_string="b", replace_all=True).failed
        assert (workdir / "f").read_text(encoding="utf-8") == "b b"

    @pytest.mark.parametrize(
        ("tool", "arguments", "words"),
        [
            ("read", {"path": "missing"}, "There is no file"),
            ("read", {"path": "."}, "is a folder"),
            ("read", {"path": "/dev/zero"}, "no ordinary file"),
            ("read", {"path": "binary"}, "a binary file of 4 bytes"),
            ("read", {"path": 5}, "path must be a text"),
            ("read", {"path": "f", "offset": "1"}, "offset must be a number"),
            ("read", {}, "read needs path"),
            ("edit", {"path": "f", "old_string": "x", "new_string": "y"}, "is not in"),
            ("edit", {"path": "f", "old_string": "", "new_string": "y"}, "is not in"),
            ("edit", {"path": "latin", "old_string": "x", "new_string": "y"}, "is not UTF-8"),
            ("write", {"path": "f/g", "content": ""}, "Error"),
            ("write", {"path": "f"}, "write needs content"),
            ("bash", {"command": ["ls"]}, "command must be a text"),
            ("open", {}, "no tool called open"),
        ],
    )
    def test_what_cannot_be_done_is_told(self, workdir: Path, tool: str, arguments: dict[str, Any], words: str) -> None:
        (workdir / "f").write_text("a", encoding="utf-8")
        (workdir / "binary").write_bytes(b"a\0b\n")
        (workdir / "latin").write_bytes(b"\xe9")
        result = tools(workdir).run(Call("c", tool, arguments))
        assert result.failed
        assert words in result.text


class TestArguments:
    @pytest.mark.parametrize(
        ("raw", "arguments"),
        [
            ('{"a": 1}', {"a": 1}),
            ("", {}),
            ("  ", {}),
            ('{"a": "\\ud83d"}', {"a": "\ufffd"}),  # half a surrogate pair
            ('{"a": NaN}', {"a": "NaN"}),
            ('{"a": ', None),
            ("[1]", None),
            ("null", None),
            ("[" * 100_000, None),
            ('{"a": ' * 70 + "1" + "}" * 70, None),  # too deep to be stored
        ],
    )
    def test_whatever_a_model_writes_can_be_stored(self, raw: str, arguments: dict[str, Any] | None) -> None:
        call = call_of("id", "bash", raw)
        assert call.arguments == arguments
        json.dumps(call.shown, ensure_ascii=False).encode()

    def test_malformed_ones_are_told_to_the_model(self, workdir: Path) -> None:
        result = tools(workdir).run(call_of("id", "bash", '{"command": '))
        assert result.failed
        assert "no JSON object" in result.text


class TestSkills:
    def test_they_are_told_of_by_name_and_description_and_loaded_on_demand(self, workdir: Path, root: Path) -> None:
        install(root, "tides")
        given = tools(workdir, root)
        (tool,) = [tool for tool in given.offered if tool.name == "skill"]
        assert "- tides: Tells tides." in tool.description
        assert "tides.sh" not in tool.description
        result = use(given, "skill", name="tides")
        assert result == Result(f"Base directory of this skill: {root / 'tides'}\n\nRun `tides.sh`.\n")

    def test_an_unknown_one_is_a_failed_call(self, workdir: Path, root: Path) -> None:
        install(root, "tides")
        assert use(tools(workdir, root), "skill", name="moon").failed

    def test_without_any_there_is_no_such_tool(self, workdir: Path) -> None:
        assert [tool.name for tool in tools(workdir).offered] == ["bash", "read", "write", "edit"]

    @pytest.mark.parametrize(
        ("header", "description"),
        [
            ("description: Plain.", "Plain."),
            ("description: Use when: asked", "Use when: asked"),  # no YAML
            ("description: >\n  Over two\n  lines.", "Over two lines."),
            ("name: x", ""),
            ("description: [a, b]", "['a', 'b']"),
            ("description: 'Quoted: yes'\nbroken: [", "Quoted: yes"),
        ],
    )
    def test_frontmatter_is_read_leniently(self, root: Path, header: str, description: str) -> None:
        install(root, "s", f"\ufeff---\r\n{header}\r\n---\r\nBody.\r\n")
        (skill,) = find_skills(root, ["s"])
        assert skill.description == description
        assert loaded(skill).endswith("\n\nBody.\n")

    def test_a_file_without_frontmatter_is_all_body(self, root: Path) -> None:
        install(root, "s", "Body.\n---\nmore")
        (skill,) = find_skills(root, ["s"])
        assert (skill.description, loaded(skill).splitlines()[2:]) == ("", ["Body.", "---", "more"])

    def test_one_kept_for_people_is_not_offered_but_can_be_named(self, workdir: Path, root: Path) -> None:
        install(root, "s", "---\ndescription: d\ndisable-model-invocation: true\n---\nBody.")
        assert "skill" not in [tool.name for tool in tools(workdir, root).offered]
        assert "Body." in expanded("/s now", find_skills(root, ["s"]))

    def test_a_command_of_the_user_brings_its_skill(self, root: Path) -> None:
        install(root, "tides")
        skills = find_skills(root, ["tides", "not-installed"])
        assert expanded(" /tides Cuxhaven\n", skills) == f"/tides Cuxhaven\n\n{loaded(skills[0])}"
        for text in ("/moon", "/tmp/tides", "see /tides", "/tides/x"):
            assert expanded(text, skills) == text


def test_tools_of_servers_are_called_like_the_others(workdir: Path) -> None:
    tool = Tool("mcp__s__echo", "", {"required": ["text"]})
    given = tools(workdir, foreign={tool.name: (tool, lambda given: Result(given["text"]))})
    assert use(given, "mcp__s__echo", text="hi") == Result("hi")
    assert use(given, "mcp__s__echo").failed
