"""Offering to log in when a run needs it: only to a person who sits at the terminal, and only with their consent.

Everywhere else (a pipe, CI, a background job, `--no-input`) nothing is asked and nothing waits: the error stands with
its remedy, as it always does.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

import click

from caliper_pipeline.domain.errors import LoginRequired
from caliper_pipeline.interfaces.problems import say, show_error

_CI = ("CI", "CONTINUOUS_INTEGRATION", "BUILD_NUMBER", "TEAMCITY_VERSION", "TF_BUILD", "JENKINS_URL")
_NO = ("", "0", "false", "no")
_Made = TypeVar("_Made")


class LoginOffer:
    """Asks for each login once a command: one that helped nothing is not offered again."""

    def __init__(self, *, ask: bool = True) -> None:
        self._ask = ask and someone_is_there(os.environ)
        self._offered: set[tuple[str, ...]] = set()

    def take_up(self, error: LoginRequired) -> bool:
        """Whether the person has logged in now. The error was shown before."""
        command = error.login_command
        if not self._ask or command is None or command in self._offered:
            return False
        self._offered.add(command)
        if not click.confirm(f"Run `{shlex.join(command)}` now?", default=False, err=True):
            return False
        code = _run(command)
        if code != 0:
            say(f"`{shlex.join(command)}` failed (exit code {code}).")
        return code == 0

    def until_logged_in(self, make: Callable[[], _Made]) -> _Made:
        """What `make` gives, tried again after a login. Leaves the command when there is none."""
        while True:
            try:
                return make()
            except LoginRequired as error:
                show_error(error)
                if not self.take_up(error):
                    sys.exit(error.exit_code)


def someone_is_there(environ: Mapping[str, str]) -> bool:
    """A person at a terminal, who sees what is asked and can answer it."""
    if any(environ.get(name, "").lower() not in _NO for name in _CI):
        return False
    try:
        everywhere = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        return everywhere and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # closed, or no terminal of ours
        return False


def _run(command: tuple[str, ...]) -> int:
    """In the foreground, with the person's terminal and environment."""
    name = shutil.which(command[0])
    if name is None and command[0] == "caliper":
        return subprocess.call([sys.executable, "-m", "caliper_pipeline.interfaces.cli", *command[1:]])
    try:
        return subprocess.call([name or command[0], *command[1:]])
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return 127
