"""Cheaper imports for the commands that are called often."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def without_pydantic_plugins() -> Iterator[None]:
    """Import models here. Looking for plugins costs 14 ms, and nobody who has one means it for our specs."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "__all__"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = before
