"""Backends by name."""

import subprocess
import sys

import pytest

from caliper_pipeline.domain.engine import BACKENDS
from caliper_pipeline.domain.errors import UnknownBackend
from caliper_pipeline.execution.backends.registry import AVAILABLE, make_backend


@pytest.mark.parametrize("name", AVAILABLE)
def test_an_available_backend_goes_by_its_name(name: str) -> None:
    assert make_backend(name).name == name


def test_every_backend_that_can_be_named_is_there() -> None:
    assert set(AVAILABLE) == set(BACKENDS)


def test_another_one_is_refused() -> None:
    with pytest.raises(UnknownBackend, match="gemini is not available in this version"):
        make_backend("gemini")


def test_a_backend_is_imported_only_when_asked_for() -> None:
    code = "import sys, caliper_pipeline.execution.backends.registry; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"caliper_pipeline.execution.backends.claude_code", "subprocess", "yaml"} & set(loaded)
