"""A run that finds nobody logged in: who is asked whether to log in now, and what becomes of the run then."""

import contextlib
import fcntl
import os
import select
import stat
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from caliper_pipeline.interfaces import login_offer

_CLAUDE = """\
#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
case "$*" in
  --version) echo "2.1.300 (Claude Code)"; exit 0 ;;
  "auth login") [ -t 0 ] && [ -t 1 ] || exit 3; echo "logging in"; touch "$here/$(cat "$here/login")"; exit 0 ;;
esac
cat > /dev/null
echo call >> "$here/calls"
if [ ! -f "$here/in" ]; then
  echo '{"type":"result","subtype":"success","is_error":true,"result":"Not logged in \\u00b7 Please run /login"}'
  exit 1
fi
case "$*" in
  *stream-json*) echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"Hi."}]}}' ;;
esac
echo '{"type":"result","subtype":"success","is_error":false,"usage":{"input_tokens":3,"output_tokens":2},'\\
'"result":"{\\"reasoning\\": \\"It says so.\\", \\"passed\\": true}"}'
"""
AGENT_ALONE = "tasks:\n  - name: T\n    prompt: Say hi.\n    assert: assert True\n"
JUDGED = "tasks:\n  - name: T\n    prompt: Say hi.\n    expect: It says hi.\n"


class Desk:
    """A project, a `claude` that nobody is logged in to, and a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        for name in (".caliper", "home", "tmp", "bin"):
            (folder / name).mkdir()
        script = self.bin / "claude"
        script.write_text(_CLAUDE, encoding="utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        (self.bin / "login").write_text("in", encoding="utf-8")
        self.environment = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "CALIPER_RECORDER": "off",
        }

    @property
    def calls(self) -> int:
        path = self.bin / "calls"
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    def command(self, spec: str, *flags: str) -> list[str]:
        (self.folder / "it.eval.yaml").write_text(spec, encoding="utf-8")
        run = ["run", "it.eval.yaml", "--k", "1", "--workers", "1", *flags]
        return [sys.executable, "-m", "caliper_pipeline.interfaces.cli", *run]

    def at_a_terminal(self, spec: str, *flags: str, answers: str = "", **environment: str) -> tuple[int, str]:
        """Exit code and all that the terminal showed; each `[y/N]` is answered with the next letter."""
        master, slave = os.openpty()

        def own_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        with subprocess.Popen(
            self.command(spec, *flags),
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=own_terminal,
        ) as process:
            os.close(slave)
            shown, asked, until = b"", 0, time.monotonic() + 60
            while time.monotonic() < until:
                if not select.select([master], [], [], 0.5)[0]:
                    continue
                data = b""
                with contextlib.suppress(OSError):  # how a terminal ends
                    data = os.read(master, 65536)
                if not data:
                    break
                shown += data
                if shown.count(b"[y/N]") > asked:
                    os.write(master, answers[asked].encode() + b"\n")
                    asked += 1
            else:
                process.kill()
            os.close(master)
            return process.wait(timeout=60), shown.decode("utf-8", "replace").replace("\r\n", "\n")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_after_a_login_the_run_that_was_stopped_is_taken_up_again(desk: Desk) -> None:
    code, shown = desk.at_a_terminal(AGENT_ALONE, answers="y")
    assert code == 0, shown
    assert "Run `claude auth login` now? [y/N]" in shown
    assert "logging in" in shown
    assert shown.rstrip().splitlines()[-1].startswith("Results saved to ")
    assert len(list((desk.folder / ".caliper" / "runs").iterdir())) == 1


def test_after_a_login_for_the_judge_the_run_begins(desk: Desk) -> None:
    code, shown = desk.at_a_terminal(JUDGED, answers="y")
    assert code == 0, shown
    assert "The claude-code judge cannot run: Not logged in" in shown
    assert desk.calls == 4  # the probe twice, agent and judge


@pytest.mark.parametrize("spec", [AGENT_ALONE, JUDGED])
def test_whoever_declines_gets_the_remedy_and_exit_code_2(desk: Desk, spec: str) -> None:
    code, shown = desk.at_a_terminal(spec, answers="n")
    assert code == 2
    assert "Log in with `claude auth login`" in shown
    assert shown.count("Not logged in ·") <= 2
    assert desk.calls == 1


def test_a_login_that_helped_nothing_is_not_offered_again(desk: Desk) -> None:
    (desk.bin / "login").write_text("elsewhere", encoding="utf-8")
    code, shown = desk.at_a_terminal(JUDGED, answers="y")
    assert code == 2
    assert shown.count("[y/N]") == 1
    assert desk.calls == 2


def test_a_login_command_that_fails_is_told(desk: Desk) -> None:
    (desk.bin / "login").write_text("no/such/folder", encoding="utf-8")
    script = (desk.bin / "claude").read_text(encoding="utf-8").replace("exit 0 ;;\nesac", "exit 7 ;;\nesac")
    (desk.bin / "claude").write_text(script, encoding="utf-8")
    code, shown = desk.at_a_terminal(JUDGED, answers="y")
    assert code == 2
    assert "`claude auth login` failed (exit code 7)." in shown


@pytest.mark.parametrize(("flags", "environment"), [(("--no-input",), {}), ((), {"CI": "true"})])
def test_nobody_is_asked_in_ci_or_where_it_was_ruled_out(
    desk: Desk, flags: tuple[str, ...], environment: dict[str, str]
) -> None:
    code, shown = desk.at_a_terminal(JUDGED, *flags, **environment)
    assert code == 2
    assert "[y/N]" not in shown
    assert "Log in with `claude auth login`" in shown


def test_nobody_is_asked_without_a_terminal(desk: Desk) -> None:
    done = subprocess.run(
        desk.command(JUDGED),
        cwd=desk.folder,
        env=desk.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "[y/N]" not in done.stderr + done.stdout
    assert "Log in with `claude auth login`" in done.stderr


def test_a_command_that_is_not_there_is_no_crash(capsys: pytest.CaptureFixture[str]) -> None:
    assert login_offer._run(("no-such-command-here", "login")) == 127
    assert "no-such-command-here" in capsys.readouterr().err
