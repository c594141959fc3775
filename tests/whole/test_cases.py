"""Inputs that real users tripped over, each with the outcome that is right.

A case is a folder: its `case.yaml` says what to prepare, which commands to run in a copy of the folder, and what must
then be true of exit status, output and files. The stand-in agents are in the case's own `bin/`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = Path(__file__).parent.parent / "fixtures" / "cases"
LATER: dict[str, str] = {}
"""Cases about parts that this version does not have; each leaves this list with its part."""
PRIVATE = re.compile(r"API_KEY|TOKEN|CLAUDE|CODEX|HERMES|^PI_|ANTHROPIC|OPENAI|CALIPER")
BOX = re.compile("[\u2500-\u257f]")


def cases() -> list[str]:
    return sorted(folder.name for folder in CASES.iterdir() if folder.name not in LATER)


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", BOX.sub(" ", text)).lower()


def value_at(data: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(data, list):
            data = data[int(part)] if part.isdigit() and int(part) < len(data) else None
        else:
            data = data.get(part) if isinstance(data, dict) else None
    return data


class Bench:
    """One case in a fresh copy, with an environment that holds no login."""

    def __init__(self, name: str, top: Path) -> None:
        self.case = yaml.safe_load((CASES / name / "case.yaml").read_text(encoding="utf-8"))
        self.folder = top / "case"
        home = top / "home"
        shutil.copytree(CASES / name, self.folder, symlinks=True, ignore=shutil.ignore_patterns("case.yaml"))
        home.mkdir()
        for path in self.case.get("executable") or []:
            (self.folder / path).chmod(0o755)
        self.environment = {key: value for key, value in os.environ.items() if not PRIVATE.search(key)} | {
            "HOME": str(home),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "COLUMNS": "240",
            "NO_COLOR": "1",
            "HISTORY_DB": str(self.folder / "history.duckdb"),
            "DAGSTER_HOME": str(top / "dagster"),
            "CALIPER_RECORDER": "off",
        }
        adapter = f"{sys.executable} {CASES.parent.parent / 'cases_adapter.py'}"
        self.words = {
            "{cli}": f"{sys.executable} -m caliper_pipeline.interfaces.cli",
            "{python}": sys.executable,
            **{
                f"{{{word.replace('-', '_')}}}": f"{adapter} {word}"
                for word in ("history-import", "history-json", "dagster-import", "dagster-spec-tick", "dagster-eval")
            },
        }

    def run(self, line: str, extra: dict[str, str] | None = None) -> tuple[int, str, float]:
        for word, command in self.words.items():
            line = line.replace(word, command)
        begun = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment | (extra or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
        )
        return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"), time.monotonic() - begun


@pytest.mark.parametrize("name", cases())
def test_the_case_holds(name: str, tmp_path: Path) -> None:
    bench = Bench(name, tmp_path)
    prepare = bench.case.get("prepare") or []
    for line in [prepare] if isinstance(prepare, str) else prepare:
        assert bench.run(line)[0] == 0, line
    for step in bench.case["steps"]:
        expected = step.get("expect") or {}
        extra = {key: str(value) for key, value in (step.get("env") or {}).items()}
        code, output, seconds = bench.run(step["run"], extra)
        allowed = expected.get("exit", code)
        assert code in (allowed if isinstance(allowed, list) else [allowed]), output
        text = flat(output)
        for word in expected.get("output_contains") or []:
            assert flat(str(word)).strip() in text, output
        some = expected.get("output_contains_any")
        assert not some or any(flat(str(word)).strip() in text for word in some), output
        for word in expected.get("output_excludes") or []:
            assert str(word).lower() not in output.lower(), output
        assert seconds <= expected.get("max_seconds", seconds)
        for check in expected.get("json") or []:
            found = value_at(json.loads((bench.folder / check["file"]).read_text(encoding="utf-8")), check["path"])
            assert found == pytest.approx(check["equals"]) if isinstance(found, float) else found == check["equals"]
