"""The real agent CLI, and a model on loopback for it to talk to."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import ModelServer

from caliper_pipeline.execution.process import ProcessLauncher

HERE = Path(__file__).parent


def installed(variable: str, place: str) -> Path:
    """The binary that a variable names, else the one at its place beside the tests, where `tests/run.sh` puts it."""
    binary = Path(os.environ.get(variable, HERE / place))
    if not binary.exists():
        pytest.fail(f"there is no {binary}: run `bash tests/run.sh`, or name one in {variable}")
    return binary.absolute()


@pytest.fixture(scope="session")
def claude_folder() -> Iterator[Path]:
    """A folder whose `claude` is the real one."""
    binary = installed("CALIPER_TEST_CLAUDE", "node_modules/.bin/claude")
    folder = Path(tempfile.mkdtemp(prefix="bin-"))
    (folder / "claude").symlink_to(binary.resolve())
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def codex_binary() -> Path:
    return installed("CALIPER_TEST_CODEX", "node_modules/.bin/codex")


@pytest.fixture(scope="session")
def pi_binary() -> Path:
    """Beside it lies the `node` that it needs."""
    return installed("CALIPER_TEST_PI", "pi/node_modules/.bin/pi")


@pytest.fixture(scope="session")
def hermes_binary() -> Path:
    return installed("CALIPER_TEST_HERMES", ".hermes/bin/hermes")


@pytest.fixture(scope="session")
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
def launcher() -> Iterator[ProcessLauncher]:
    with ProcessLauncher() as made:
        yield made
