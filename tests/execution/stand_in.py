"""A stand-in `claude` command: a shell script that keeps what it was asked and answers what it was told to."""

import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.backends.base import Operator

_SCRIPT = """\
#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
if [ "$1" = "--version" ]; then cat "$here/version"; exit 0; fi
n=$(( $(cat "$here/count" 2>/dev/null || echo 0) + 1 )); echo "$n" > "$here/count"
cat > "$here/asked-$n"
for word in "$@"; do printf '%s\\0' "$word"; done > "$here/argv-$n"
env -0 > "$here/env-$n"
{ pwd; ls -A .; } > "$here/folder-$n"
find "$HOME" -type f > "$here/home-$n"
last=$n; [ -f "$here/answer-$n" ] || last=$(cat "$here/last")
[ -f "$here/stderr-$last" ] && cat "$here/stderr-$last" >&2
cat "$here/answer-$last"
exit "$(cat "$here/exit-$last" 2>/dev/null || echo 0)"
"""


@dataclass
class StandIn:
    """Answers are given in turn, the last one again and again."""

    folder: Path
    answers: int = 0

    @classmethod
    def at(cls, folder: Path) -> "StandIn":
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / "claude"
        script.write_text(_SCRIPT, encoding="utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        (folder / "version").write_text("2.1.300 (Claude Code)\nmore\n", encoding="utf-8")
        return cls(folder)

    def answer(self, *lines: Any, exit_code: int = 0, stderr: str = "") -> "StandIn":
        self.answers += 1
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        (self.folder / f"answer-{self.answers}").write_text(text, encoding="utf-8")
        (self.folder / f"exit-{self.answers}").write_text(str(exit_code), encoding="utf-8")
        if stderr:
            (self.folder / f"stderr-{self.answers}").write_text(stderr, encoding="utf-8")
        (self.folder / "last").write_text(str(self.answers), encoding="utf-8")
        return self

    def judges(self, result: str, **facts: Any) -> "StandIn":
        return self.answer({"type": "result", "subtype": "success", "is_error": False, "result": result, **facts})

    def refuses(self, result: str, status: int | None = None) -> "StandIn":
        event = {"type": "result", "subtype": "success", "is_error": True, "result": result}
        return self.answer({**event, "api_error_status": status}, exit_code=1)

    @property
    def calls(self) -> int:
        return len(list(self.folder.glob("asked-*")))

    def asked(self, call: int) -> str:
        return (self.folder / f"asked-{call}").read_text(encoding="utf-8")

    def argv(self, call: int) -> list[str]:
        return (self.folder / f"argv-{call}").read_text(encoding="utf-8").split("\0")[:-1]

    def env(self, call: int) -> dict[str, str]:
        pairs = (self.folder / f"env-{call}").read_text(encoding="utf-8").split("\0")[:-1]
        return dict(pair.split("=", 1) for pair in pairs)

    def workdir(self, call: int) -> list[str]:
        """The working directory, then what is in it."""
        return (self.folder / f"folder-{call}").read_text(encoding="utf-8").splitlines()

    def home_files(self, call: int) -> list[str]:
        return (self.folder / f"home-{call}").read_text(encoding="utf-8").splitlines()


def operator(
    home: Path, *, first_on_path: Path | None = None, agent: dict[str, str] | None = None, **own: str
) -> Operator:
    """An operator whose environment holds the `own` variables; `agent` crosses into attempts besides."""
    system = os.pathsep.join(str(Path(found).parent) for name in ("sh", "env", "find") if (found := shutil.which(name)))
    path = system if first_on_path is None else f"{first_on_path}{os.pathsep}{system}"
    base = {"PATH": path, "LANG": "C.UTF-8"}
    agent = agent or {}
    return Operator(
        environment={**base, "HOME": str(home), **agent, **own}, allowed=base, agent_allowed=agent, home=home
    )
