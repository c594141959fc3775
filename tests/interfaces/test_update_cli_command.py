"""`caliper update-cli`: what it finds of stand-in commands, with a registry on loopback, and what it runs."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.evaluation.agent_clis import CliState, look
from caliper_pipeline.evaluation.cli_installs import installation
from caliper_pipeline.execution.backends.base import Operator

NOWHERE = "http://127.0.0.1:9"
CODEX = "@openai/codex"


class Registry:
    """Both kinds, below `/npm` and `/simple`."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        answers = self.answers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = answers.get(self.path)
                data = json.dumps(found).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def npm(self, package: str, version: str) -> None:
        self.answers[f"/npm/{package.replace('/', '%2f')}/latest"] = {"version": version}

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()


class Machine:
    """A folder on PATH, and none of the commands of this real machine."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.environment = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "npm_config_registry": f"{registry.url}/npm/",
            "PIP_INDEX_URL": f"{registry.url}/simple",
        }

    @property
    def operator(self) -> Operator:
        return Operator(
            environment=self.environment, allowed={"PATH": self.environment["PATH"]}, agent_allowed={}, home=self.folder
        )

    def script(self, path: str | Path, text: str) -> Path:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        place.chmod(place.stat().st_mode | stat.S_IXUSR)
        return place

    def command(self, name: str, says: str) -> Path:
        return self.script(self.bin / name, f"echo '{says}'")

    def npm_global(self, package: str, name: str, update: str = "exit 0") -> Path:
        """A prefix with the package in it, in a version that its file holds, and an npm beside it."""
        home = self.folder / "prefix" / "lib" / "node_modules" / package
        self.script(home / "cli", f'read -r version < "{home}/version"; echo "{name} $version"')
        (home / "version").write_text("1.0.0\n", encoding="utf-8")
        (self.folder / "prefix" / "bin").mkdir()
        (self.folder / "prefix" / "bin" / name).symlink_to(home / "cli")
        self.script("prefix/bin/npm", f'echo "$@" >> "{self.folder}/ran"; {update}')
        self.environment["PATH"] += os.pathsep + str(self.folder / "prefix" / "bin")
        return home

    def look(self, name: str, **more: Any) -> CliState:
        (state,) = look(self.operator, [name], **more)
        return state

    def run(self, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "update-cli", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    @property
    def ran(self) -> str:
        path = self.folder / "ran"
        return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.fixture
def machine(tmp_path: Path, registry: Registry) -> Machine:
    return Machine(tmp_path, registry)


# -- what is found


@pytest.mark.parametrize(
    ("said", "newest", "status"),
    [
        ("codex-cli 0.171.0", "0.172.0", "behind"),
        ("codex-cli 0.171.0", "0.171.0", "current"),
        ("codex-cli 0.99.0", "0.100.0", "behind"),  # numbers, not letters
        ("codex-cli 0.172.0-alpha.3", "0.171.0", "current"),
        ("codex-cli of today", "0.171.0", "unknown"),
        ("codex-cli 0.171.0", "", "unknown"),
    ],
)
def test_a_version_is_compared_with_the_registry_s(
    machine: Machine, registry: Registry, said: str, newest: str, status: str
) -> None:
    machine.command("codex", said)
    registry.npm(CODEX, newest)
    assert machine.look("codex").status == status


def test_a_python_package_is_looked_up_in_the_index_leaving_previews_out(machine: Machine, registry: Registry) -> None:
    machine.command("hermes", "Hermes Agent v0.9.0 (2026.1.2)")
    registry.answers["/simple/hermes-agent/"] = {"versions": ["0.9.0", "0.10.0", "0.11.0rc1", "0.8.1"]}
    state = machine.look("hermes")
    assert (state.version, state.newest, state.status) == ("0.9.0", "0.10.0", "behind")


def test_npm_is_asked_first_since_it_knows_its_registry(machine: Machine, registry: Registry) -> None:
    machine.command("claude", "2.1.0 (Claude Code)")
    machine.script(machine.bin / "npm", '[ "$1 $3" = "view version" ] && echo 2.2.0')
    registry.npm("@anthropic-ai/claude-code", "9.9.9")
    assert machine.look("claude").newest == "2.2.0"


def test_an_npm_that_hangs_is_waited_for_no_longer_than_the_limit(machine: Machine) -> None:
    machine.command("claude", "2.1.0 (Claude Code)")
    machine.script(machine.bin / "npm", "read -r line < /dev/zero; while :; do :; done")
    assert machine.look("claude", seconds=0.3).status == "unknown"


def test_a_command_that_does_not_start_is_broken_and_says_why(machine: Machine, registry: Registry) -> None:
    machine.script(machine.bin / "codex", "echo 'no native binary' >&2; exit 1")
    registry.npm(CODEX, "0.171.0")
    state = machine.look("codex")
    assert state.status == "broken"
    assert "no native binary" in state.trouble


def test_further_commands_of_the_name_are_told_apart_from_links_to_the_same(
    machine: Machine, registry: Registry
) -> None:
    one = machine.command("codex", "codex-cli 0.171.0")
    other = machine.script("other/codex", "echo codex-cli 0.99.0")
    (machine.folder / "link").mkdir()
    (machine.folder / "link" / "codex").symlink_to(one)
    machine.environment["PATH"] = os.pathsep.join(
        [str(machine.bin), f"{machine.folder}/link", f"{machine.folder}/other"]
    )
    state = machine.look("codex")
    assert (state.binary, state.version, state.others) == (str(one), "0.171.0", (str(other),))


def test_the_override_variable_decides_which_is_in_use(machine: Machine) -> None:
    machine.command("codex", "codex-cli 0.171.0")
    named = machine.script("elsewhere/codex", "echo codex-cli 0.99.0")
    machine.environment["CODEX_CLI_PATH"] = str(named)
    state = machine.look("codex")
    assert (state.binary, state.version) == (str(named), "0.99.0")
    assert state.others == (str(machine.bin / "codex"),)


# -- how it was installed


def test_the_way_of_installing_follows_from_where_the_file_lies(machine: Machine) -> None:
    places = {
        "opt/Cellar/codex/0.1/bin/codex": ("brew", ("brew", "upgrade", "codex")),
        "opt/Caskroom/codex/0.1/codex": ("brew", ("brew", "upgrade", "--cask", "codex")),
        "pnpm/global/5/node_modules/@openai/codex/c": ("pnpm", ("pnpm", "add", "-g", f"{CODEX}@latest")),
        ".bun/install/global/node_modules/@openai/codex/c": ("bun", ("bun", "add", "-g", f"{CODEX}@latest")),
    }
    for place, (way, update) in places.items():
        found = installation(str(machine.script(place, "")), CODEX, python=False)
        assert (found.way, found.update) == (way, update)


def test_a_command_of_its_own_updates_itself(machine: Machine) -> None:
    binary = str(machine.script(".local/bin/claude", ""))
    assert installation(binary, "@anthropic-ai/claude-code", python=False).update == (binary, "update")


def test_an_installation_in_a_project_is_left_to_its_owner(machine: Machine) -> None:
    binary = machine.script("project/node_modules/@openai/codex/cli", "")
    found = installation(str(binary), CODEX, python=False)
    assert found.update is None
    assert found.by_hand == f"npm install --prefix {machine.folder}/project {CODEX}@latest"


def test_a_virtual_environment_is_updated_with_its_own_pip(machine: Machine) -> None:
    venv = machine.folder / "venv"
    packages = venv / "lib" / "python3.11" / "site-packages"
    for name in ("hermes_agent-0.19.0.dist-info", "pip", "mcp"):
        (packages / name).mkdir(parents=True)
    python = machine.script(venv / "bin" / "python3", "exit 1")
    binary = venv / "bin" / "hermes"
    binary.write_text(f"#!{python}\n", encoding="utf-8")
    found = installation(str(binary), "hermes-agent", python=True)
    assert found.way == "pip"
    assert found.update == (str(python), "-m", "pip", "install", "--upgrade", "hermes-agent[mcp]")
    (packages / "hermes_agent-0.19.0.dist-info" / "direct_url.json").touch()
    assert installation(str(binary), "hermes-agent", python=True).update == (str(binary), "update")


def test_what_is_not_ours_to_write_to_is_shown_and_not_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.npm_global(CODEX, "codex")
    monkeypatch.setattr(os, "access", lambda *args: False)  # the tests may run as root, who may write everywhere
    found = installation(str(machine.folder / "prefix" / "bin" / "codex"), CODEX, python=False)
    assert found.update is None
    assert "not yours to write to" in found.by_hand


# -- the command


def test_check_shows_every_command_changes_nothing_and_exits_0(machine: Machine, registry: Registry) -> None:
    machine.npm_global(CODEX, "codex")
    machine.script("prefix/bin/npm", "exit 1").unlink()
    registry.npm(CODEX, "2.0.0")
    code, out, err = machine.run("--check")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        "COMMAND",
        "claude",
        "codex",
        "pi",
        "hermes",
    ]
    assert next(line for line in lines if line.startswith("codex")).split()[:4] == ["codex", "behind", "1.0.0", "2.0.0"]
    assert "not installed" in next(line for line in lines if line.startswith("pi "))
    assert "to install it: npm install -g @anthropic-ai/claude-code" in out


def test_without_npm_and_a_registry_that_is_named_the_newest_version_is_unknown(machine: Machine) -> None:
    machine.command("codex", "codex-cli 0.171.0")
    del machine.environment["npm_config_registry"]
    assert machine.look("codex").status == "unknown"


def test_an_unreachable_registry_is_no_failure(machine: Machine) -> None:
    machine.command("codex", "codex-cli 0.171.0")
    machine.environment["npm_config_registry"] = NOWHERE
    code, out, _ = machine.run("codex", "--check")
    assert code == 0
    assert out.splitlines()[1].split()[:4] == ["codex", "unknown", "0.171.0", "-"]


_PUBLISHED = 'if [ "$1" = view ]; then echo 2.0.0; else echo 2.0.0 > "{home}/version"; fi'


def test_an_update_runs_the_npm_of_that_installation_and_shows_what_came_of_it(machine: Machine) -> None:
    home = machine.folder / "prefix" / "lib" / "node_modules" / CODEX
    machine.npm_global(CODEX, "codex", update=_PUBLISHED.format(home=home))
    code, out, err = machine.run("codex", "--yes")
    assert code == 0, err
    assert f"install -g --prefix {machine.folder}/prefix {CODEX}@latest\n" in machine.ran
    assert out.count("behind") == 1
    assert out.splitlines()[-1].split()[:4] == ["codex", "current", "2.0.0", "2.0.0"]


def test_nothing_is_run_when_nobody_can_be_asked(machine: Machine) -> None:
    home = machine.folder / "prefix" / "lib" / "node_modules" / CODEX
    machine.npm_global(CODEX, "codex", update=_PUBLISHED.format(home=home))
    code, _, err = machine.run("codex")
    assert code == 1
    assert "Add --yes" in err
    assert "install" not in machine.ran


def test_an_update_that_fails_ends_with_exit_code_2(machine: Machine) -> None:
    machine.npm_global(CODEX, "codex", update='[ "$1" = view ] && echo 2.0.0')
    code, _, err = machine.run("codex", "--yes")
    assert code == 2
    assert "Not updated: codex." in err


def test_a_command_that_is_current_is_left_alone(machine: Machine) -> None:
    machine.npm_global(CODEX, "codex", update="echo 1.0.0")
    code, out, err = machine.run("codex")
    assert (code, err) == (0, "")
    assert "current" in out
    assert "install" not in machine.ran


def test_the_environment_of_the_operator_reaches_the_tools_that_are_asked(machine: Machine) -> None:
    machine.command("codex", "codex-cli 0.171.0")
    machine.script(machine.bin / "npm", 'echo "$MIRROR_SAYS"')
    seen = replace(machine.operator, environment={**machine.environment, "MIRROR_SAYS": "3.2.1"})
    (state,) = look(seen, ["codex"])
    assert state.newest == "3.2.1"
