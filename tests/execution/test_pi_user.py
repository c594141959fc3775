"""The operator's own setup for pi: what loads of it, what makes way, and how it is named."""

import os
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.execution.backends.base import Operator, Server
from caliper_pipeline.execution.backends.pi import Pi

from .pi_stand_in import invocation, operator, pi_at, read_json, tree, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The attempt's home."""
    folder = tmp_path / "attempt"
    folder.mkdir()
    return folder


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Where the operator's CLI keeps everything."""
    folder = tmp_path / "operator" / ".pi" / "agent"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def by(tmp_path: Path, theirs: Path) -> Operator:
    pi_at(tmp_path / "bin")
    return operator(theirs.parents[1], tmp_path / "bin", TOKEN="secret")


def skill(folder: Path, name: str | None = None, description: str = "Does it.") -> Path:
    header = "".join(f"{key}: {value}\n" for key, value in (("name", name), ("description", description)) if value)
    return write(folder / "SKILL.md", f"---\n{header}---\n\nBody.\n")


def load(home: Path, by: Operator, **facts: Any) -> dict[str, Any]:
    """The settings of an attempt that loads everything."""
    Pi().prepare(invocation(home, by, isolated=False, **facts))
    return dict(read_json(home / ".pi" / "agent" / "settings.json"))


def loaded(home: Path) -> set[str]:
    """What lies in the attempt's folder besides the settings."""
    return tree(home / ".pi" / "agent") - {"settings.json"}


def test_nothing_is_loaded_where_nothing_is(by: Operator, home: Path) -> None:
    load(home, by)
    assert (loaded(home), Pi().user_layer(by)) == (set(), ())


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        (("AGENTS.md", "CLAUDE.md"), "AGENTS.md"),
        (("CLAUDE.md",), "CLAUDE.md"),
        (("AGENTS.md", "AGENTS.override.md"), "AGENTS.override.md"),
    ],
)
def test_of_context_files_the_first_counts(
    theirs: Path, by: Operator, home: Path, files: tuple[str, ...], kept: str
) -> None:
    for name in (*files, "SYSTEM.md", "APPEND_SYSTEM.md"):
        write(theirs / name, name)
    load(home, by)
    assert loaded(home) == {kept, "SYSTEM.md", "APPEND_SYSTEM.md"}
    assert Pi().user_layer(by) == tuple(sorted((f"rules:{kept}", "rules:SYSTEM.md", "rules:APPEND_SYSTEM.md")))


class TestSkills:
    def test_they_are_found_where_the_cli_finds_them(self, theirs: Path, by: Operator, home: Path) -> None:
        skill(theirs / "skills" / "plain")
        skill(theirs / "skills" / "group" / "nested", "renamed")
        write(theirs / "skills" / "group" / "nested" / "below" / "SKILL.md", "part of it")
        write(theirs / "skills" / "single.md", "---\nname: single\ndescription: x\n---\n")
        skill(by.home / ".agents" / "skills" / "shared")
        skill(by.home / "more" / "listed")
        write(theirs / "settings.json", {"skills": ["~/more"]})
        settings = load(home, by)
        assert loaded(home) == {
            "skills/plain/SKILL.md",
            "skills/renamed/SKILL.md",
            "skills/renamed/below/SKILL.md",
            "skills/single.md",
            "skills/shared/SKILL.md",
            "skills/listed/SKILL.md",
        }
        assert "skills" not in settings
        names = ("listed", "plain", "renamed", "shared", "single")
        assert Pi().user_layer(by) == ("settings:settings.json", *(f"skill:{name}" for name in names))

    def test_what_the_cli_would_leave_out_is_none(self, theirs: Path, by: Operator, home: Path) -> None:
        skill(theirs / "skills" / "mute", description="")
        write(theirs / "skills" / "bare" / "SKILL.md", "no header")
        skill(theirs / "skills" / ".hidden")
        skill(theirs / "skills" / "node_modules" / "x")
        write(theirs / "skills" / "notes" / "README.md", "---\ndescription: x\n---\n")
        load(home, by)
        assert (loaded(home), Pi().user_layer(by)) == (set(), ())

    def test_those_that_are_switched_off_stay_out(self, theirs: Path, by: Operator, home: Path) -> None:
        for name in ("a", "b", "c", "d", "e"):
            skill(theirs / "skills" / name)
        switches = ["-skills/a/SKILL.md", "!skills/b", "!**/c/**", "+skills/c", "-skills/d"]
        write(theirs / "settings.json", {"skills": switches})
        load(home, by)
        assert loaded(home) == {"skills/c/SKILL.md", "skills/e/SKILL.md"}

    def test_a_declared_one_keeps_its_name_also_when_ablated(self, theirs: Path, by: Operator, home: Path) -> None:
        skill(theirs / "skills" / "x", "installed")
        skill(theirs / "skills" / "Ablated")
        skill(theirs / "skills" / "own")
        load(home, by, skills=("installed",), ablated=("ablated", "mcp:own"))
        assert loaded(home) == {"skills/own/SKILL.md"}
        assert Pi().user_layer(by, ("installed", "ablated")) == ("skill:own",)

    def test_of_two_with_one_name_the_one_in_the_settings_counts(self, theirs: Path, by: Operator, home: Path) -> None:
        skill(theirs / "skills" / "twin", description="Found.")
        skill(by.home / "listed" / "twin", description="Listed.")
        write(theirs / "settings.json", {"skills": ["~/listed"]})
        load(home, by)
        assert "Listed." in (home / ".pi/agent/skills/twin/SKILL.md").read_text(encoding="utf-8")

    def test_links_are_followed_and_loops_and_pipes_left_out(self, theirs: Path, by: Operator, home: Path) -> None:
        skill(by.home / "elsewhere" / "linked")
        root = theirs / "skills"
        root.mkdir()
        (root / "linked").symlink_to(by.home / "elsewhere" / "linked")
        (root / "again").symlink_to(root)
        (root / "linked" / "up").symlink_to(by.home / "elsewhere" / "linked")
        (root / "linked" / "dangling").symlink_to(by.home / "nowhere")
        os.mkfifo(root / "linked" / "pipe")
        write(root / "linked" / ".git" / "config", "x")
        load(home, by)
        assert loaded(home) == {"skills/linked/SKILL.md"}

    def test_a_name_that_is_no_folder_goes_by_its_folder(self, theirs: Path, by: Operator, home: Path) -> None:
        skill(theirs / "skills" / "odd", "../../up")
        load(home, by)
        assert loaded(home) == {"skills/odd/SKILL.md"}


class TestResources:
    def test_prompts_are_copied(self, theirs: Path, by: Operator, home: Path) -> None:
        write(theirs / "prompts" / "review.md", "Review $1")
        write(theirs / "prompts" / "off.md", "x")
        write(theirs / "prompts" / "sub" / "not.md", "x")
        write(by.home / "more" / "deep" / "listed.md", "x")
        write(theirs / "settings.json", {"prompts": ["~/more", "-prompts/off.md"]})
        settings = load(home, by)
        assert loaded(home) == {"prompts/review.md", "prompts/listed.md"}
        assert "prompts" not in settings
        assert {"prompt:review", "prompt:listed"} < set(Pi().user_layer(by) or ())

    def test_extensions_run_from_where_they_lie(self, theirs: Path, by: Operator, home: Path) -> None:
        root = theirs / "extensions"
        one = write(root / "one.ts", "x")
        folder = write(root / "two" / "index.ts", "x")
        write(root / "three" / "package.json", {"pi": {"extensions": ["./main.ts"]}})
        main = write(root / "three" / "main.ts", "x")
        write(root / "off.ts", "x")
        write(root / "notes.md", "x")
        listed = write(by.home / "own.ts", "x")
        write(theirs / "settings.json", {"extensions": ["~/own.ts", "-extensions/off.ts", "-builtin:llama.cpp"]})
        settings = load(home, by)
        assert sorted(settings["extensions"]) == sorted(
            [str(listed), str(one), str(main), str(folder), "-builtin:llama.cpp"]
        )
        names = {f"extension:{name}" for name in ("one", "two", "main", "own")}
        assert names < set(Pi().user_layer(by) or ())

    def test_packages_are_named_where_they_are_installed(self, theirs: Path, by: Operator, home: Path) -> None:
        npm = theirs / "npm" / "node_modules" / "@x" / "tools"
        git = theirs / "git" / "github.com" / "me" / "tools"
        local = by.home / "local"
        for folder in (npm, git, local):
            skill(folder / "skills" / f"of-{folder.parent.name}")
        sources = ["npm:@x/tools@1.0.0", {"source": "git:github.com/me/tools@v1", "skills": []}, "~/local", "npm:gone"]
        write(theirs / "settings.json", {"packages": sources})
        settings = load(home, by)
        assert settings["packages"] == [str(npm), {"source": str(git), "skills": []}, str(local)]
        assert Pi().user_layer(by) == (
            "package:git:github.com/me/tools@v1",
            "package:npm:@x/tools@1.0.0",
            "package:~/local",
            "settings:settings.json",
            "skill:of-@x",
            "skill:of-operator",
        )

    @pytest.mark.parametrize(
        "source",
        [
            "git:github.com/me/tools",
            "https://github.com/me/tools.git",
            "https://github.com/me/tools#v2",
            "ssh://git@github.com/me/tools@v1",
            "git@github.com:me/tools.git",
        ],
    )
    def test_a_clone_is_found_however_its_source_is_written(
        self, theirs: Path, by: Operator, home: Path, source: str
    ) -> None:
        folder = theirs / "git" / "github.com" / "me" / "tools"
        folder.mkdir(parents=True)
        write(theirs / "settings.json", {"packages": [source]})
        assert load(home, by)["packages"] == [str(folder)]

    def test_a_skill_of_a_package_makes_way_for_a_declared_one(self, theirs: Path, by: Operator, home: Path) -> None:
        package = by.home / "package"
        write(package / "package.json", {"pi": {"skills": ["./resources/*"]}})
        skill(package / "resources" / "z", "mine")
        skill(package / "resources" / "other")
        write(theirs / "settings.json", {"packages": ["~/package"]})
        settings = load(home, by, skills=("mine",))
        assert settings["packages"] == [{"source": str(package), "skills": ["-resources/z/SKILL.md"]}]
        assert Pi().user_layer(by, ("mine",)) == ("package:~/package", "settings:settings.json", "skill:other")

    def test_a_packages_own_name_for_nothing_is_no_error(self, theirs: Path, by: Operator, home: Path) -> None:
        write(theirs / "settings.json", {"packages": [None, 5, {"source": 3}, {}], "skills": "all", "extensions": {}})
        settings = load(home, by)
        assert "packages" not in settings
        assert loaded(home) == set()


class TestServers:
    def test_they_load_with_their_variables_filled_in(self, theirs: Path, by: Operator, home: Path) -> None:
        entry = {"url": "https://x/mcp", "headers": {"Authorization": "Bearer $TOKEN"}, "exposure": "deferred"}
        write(theirs / "mcp.json", {"mcpServers": {"theirs": entry, "odd": 5}})
        write(theirs / "mcp-auth.json", {"tokens": 1})
        load(home, by)
        servers = read_json(home / ".pi" / "agent" / "mcp.json")["mcpServers"]
        assert servers["theirs"] == {**entry, "headers": {"Authorization": "Bearer secret"}}
        assert loaded(home) == {"mcp.json", "mcp-auth.json"}
        assert Pi().user_layer(by) == ("mcp:odd", "mcp:theirs")

    def test_a_declared_one_wins_also_when_ablated(self, theirs: Path, by: Operator, home: Path) -> None:
        write(theirs / "mcp.json", {"mcpServers": {"my_docs": {"command": "x"}, "mail": {}, "own": {"command": "y"}}})
        declared = Server("my-docs", "stdio", command="z")
        load(home, by, servers=(declared,), declared_servers=("my-docs", "mail"))
        servers = read_json(home / ".pi" / "agent" / "mcp.json")["mcpServers"]
        assert (sorted(servers), servers["my-docs"]["command"]) == (["my-docs", "own"], "z")
        assert Pi().user_layer(by, (), ("my-docs", "mail")) == ("mcp:own",)

    def test_an_empty_declaration_keeps_them_all_out(self, theirs: Path, by: Operator, home: Path) -> None:
        write(theirs / "mcp.json", {"mcpServers": {"own": {"command": "y"}}})
        given = invocation(home, by, isolated=False, declared_servers=())
        Pi().prepare(given)
        assert loaded(home) == set()
        assert "--no-mcp" in Pi().command(given).argv

    def test_a_declared_one_needs_the_support_that_the_operator_switched_off(
        self, theirs: Path, by: Operator, home: Path
    ) -> None:
        write(theirs / "settings.json", {"extensions": ["-builtin:mcp"]})
        assert load(home, by)["extensions"] == ["-builtin:mcp"]
        assert "extensions" not in load(home, by, servers=(Server("a", "stdio", command="z"),))

    @pytest.mark.parametrize("broken", ["{", "[]", '{"mcpServers": []}'])
    def test_a_file_that_cannot_be_read_holds_none(self, theirs: Path, by: Operator, home: Path, broken: str) -> None:
        write(theirs / "mcp.json", broken)
        load(home, by)
        assert (loaded(home), Pi().user_layer(by)) == (set(), ())


def test_settings_load_without_what_stands_elsewhere(theirs: Path, by: Operator, home: Path) -> None:
    write(theirs / "settings.json", {"defaultModel": "m", "shellCommandPrefix": "x", "theme": "y", "sessionDir": "/z"})
    settings = load(home, by)
    assert (settings["defaultModel"], settings["shellCommandPrefix"]) == ("m", "x")
    assert not {"theme", "sessionDir"} & settings.keys()
