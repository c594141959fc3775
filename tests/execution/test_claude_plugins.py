"""The operator's plugins of Claude Code: which ones travel into an attempt's home, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.claude_code import ClaudeCode

from .stand_in import operator
from .test_claude_code import invocation, skill, tree, write

ID = "tools@harbour"


class Installed:
    """A home in which one plugin is installed, as the CLI itself does it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / ".claude"
        self.folder = self.config / "plugins" / "cache" / "harbour" / "tools" / "1.0.0"
        self.market = home / "src" / "harbour"
        write(self.folder / ".claude-plugin" / "plugin.json", {"name": "tools", "skills": "./more"})
        skill(self.folder / "skills", "moon")
        skill(self.folder / "more", "sun")
        write(self.folder / "agents" / "helper.md", "x")
        write(self.folder / ".git" / "config", "x")
        write(self.market / ".claude-plugin" / "marketplace.json", {"name": "harbour"})
        self.register([{"scope": "user", "installPath": str(self.folder), "version": "1.0.0"}])
        self.know({"harbour": {"source": {"source": "github", "repo": "a/b"}, "installLocation": str(self.market)}})
        self.enable({ID: True, "other@harbour": False})

    def register(self, entry: Any) -> None:
        write(self.config / "plugins" / "installed_plugins.json", {"version": 2, "plugins": {ID: entry}})

    def know(self, marketplaces: Any) -> None:
        write(self.config / "plugins" / "known_marketplaces.json", marketplaces)

    def enable(self, plugins: Any) -> None:
        write(self.config / "settings.json", {"enabledPlugins": plugins, "extraKnownMarketplaces": {"harbour": {}}})

    @property
    def layer(self) -> tuple[str, ...]:
        return ClaudeCode().user_layer(operator(self.home)) or ()


@pytest.fixture
def theirs(tmp_path: Path) -> Installed:
    return Installed(tmp_path / "operator")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "attempt"


def load(theirs: Installed, home: Path) -> set[str]:
    ClaudeCode().prepare(invocation(home, operator(theirs.home), isolated=False))
    return tree(home)


def test_a_plugin_is_copied_and_registered_at_its_new_place(theirs: Installed, home: Path) -> None:
    plugins = home / ".claude" / "plugins"
    found = load(theirs, home)
    assert ".claude/plugins/cache/harbour/tools/1.0.0/skills/moon/SKILL.md" in found
    assert not any(".git/" in path for path in found)
    registry = json.loads((plugins / "installed_plugins.json").read_text(encoding="utf-8"))
    (entry,) = registry["plugins"][ID]
    assert entry["installPath"] == str(plugins / "cache" / "harbour" / "tools" / "1.0.0")
    known = json.loads((plugins / "known_marketplaces.json").read_text(encoding="utf-8"))["harbour"]
    assert known["installLocation"] == str(plugins / "marketplaces" / "harbour")
    assert known["source"] == {"source": "github", "repo": "a/b"}
    assert (plugins / "marketplaces" / "harbour" / ".claude-plugin" / "marketplace.json").is_file()
    settings = json.loads((home / ".claude" / "settings.json").read_text(encoding="utf-8"))
    assert settings == {"enabledPlugins": {ID: True}}
    assert str(theirs.home) not in json.dumps([registry, known, settings])


def test_one_of_a_folder_of_this_machine_is_taken_from_there(theirs: Installed, home: Path) -> None:
    source = {"source": "directory", "path": str(theirs.market)}
    theirs.know({"harbour": {"source": source, "installLocation": str(theirs.market)}})
    manifest = {"name": "harbour", "plugins": [{"name": "tools", "source": "./plugins/tools"}]}
    write(theirs.market / ".claude-plugin" / "marketplace.json", manifest)
    skill(theirs.market / "plugins" / "tools" / "skills", "edited")
    market = home / ".claude" / "plugins" / "marketplaces" / "harbour"
    load(theirs, home)
    assert (market / "plugins" / "tools" / "skills" / "edited" / "SKILL.md").is_file()
    known = json.loads((market.parents[1] / "known_marketplaces.json").read_text(encoding="utf-8"))["harbour"]
    assert known["installLocation"] == known["source"]["path"] == str(market)
    assert theirs.layer == ("plugin:tools@harbour", "skill:tools:edited")


def test_it_is_recorded_with_the_skills_it_brings(theirs: Installed) -> None:
    assert theirs.layer == ("plugin:tools@harbour", "skill:tools:moon", "skill:tools:sun")


def test_nothing_of_it_is_in_an_isolated_home(theirs: Installed, home: Path) -> None:
    ClaudeCode().prepare(invocation(home, operator(theirs.home)))
    assert not any("plugins" in path for path in tree(home))


def test_an_older_registry_is_read_too(theirs: Installed, home: Path) -> None:
    theirs.register({"installPath": str(theirs.folder), "version": "1.0.0"})
    assert ".claude/plugins/installed_plugins.json" in load(theirs, home)


def test_one_of_a_project_stays_out(theirs: Installed, home: Path) -> None:
    theirs.register([{"scope": "project", "projectPath": "/x", "installPath": str(theirs.folder)}])
    assert theirs.layer == ()
    assert not any("plugins" in path for path in load(theirs, home))


@pytest.mark.parametrize("what", ["installation", "marketplace", "manifest"])
def test_one_that_could_only_be_fetched_is_left_out_and_recorded_as_missing(
    theirs: Installed, home: Path, what: str
) -> None:
    if what == "installation":
        theirs.register([{"scope": "user", "installPath": "/no/such/folder"}])
    elif what == "marketplace":
        theirs.know({})
    else:
        (theirs.market / ".claude-plugin" / "marketplace.json").unlink()
    assert theirs.layer == ("plugin:tools@harbour (missing)",)
    assert not any("plugins" in path or "settings" in path for path in load(theirs, home))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("x", "registered as 'x'"),
        ([7], "registered as 7"),
        ([{"scope": "user"}], "without `installPath`"),
        ([{"installPath": 5}], "without `installPath`"),
    ],
)
def test_a_registry_that_cannot_be_read_is_refused(theirs: Installed, home: Path, entry: Any, words: str) -> None:
    theirs.register(entry)
    with pytest.raises(CannotRun, match="installed_plugins") as caught:
        load(theirs, home)
    assert words in caught.value.message
    assert "--no-user-customizations" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["{", "[]", '{"plugins": []}'])
def test_a_broken_registry_is_refused_before_a_run(theirs: Installed, text: str) -> None:
    write(theirs.config / "plugins" / "installed_plugins.json", text)
    with pytest.raises(CannotRun, match="installed_plugins"):
        _ = theirs.layer


@pytest.mark.parametrize("enabled", [["tools@harbour"], {"../../x@y": True}, {"noat": True}])
def test_settings_that_enable_no_plugins_in_a_readable_way_are_refused(theirs: Installed, enabled: Any) -> None:
    theirs.enable(enabled)
    with pytest.raises(CannotRun, match="enabledPlugins"):
        _ = theirs.layer


def test_a_broken_registry_does_not_matter_where_nothing_is_enabled(theirs: Installed) -> None:
    write(theirs.config / "plugins" / "installed_plugins.json", "{")
    theirs.enable({})
    assert theirs.layer == ()
