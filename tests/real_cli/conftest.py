"""The real agent CLI, and a model on loopback for it to talk to."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import ModelServer

from caliper_pipeline.execution.process import ProcessLauncher

INSTALLED = Path(__file__).parent / "node_modules" / ".bin" / "claude"


@pytest.fixture(scope="session")
def claude_folder() -> Iterator[Path]:
    """A folder whose `claude` is the real one: from CALIPER_TEST_CLAUDE, else as `tests/run.sh` installs it."""
    binary = Path(os.environ.get("CALIPER_TEST_CLAUDE", INSTALLED))
    if not binary.exists():
        pytest.fail(f"no Claude Code at {binary}: run `bash tests/run.sh`, or name one in CALIPER_TEST_CLAUDE")
    folder = Path(tempfile.mkdtemp(prefix="bin-"))
    (folder / "claude").symlink_to(binary.resolve())
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
def launcher() -> Iterator[ProcessLauncher]:
    with ProcessLauncher() as made:
        yield made
