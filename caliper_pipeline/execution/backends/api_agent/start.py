"""The first code of the process. It runs as the main module with `parcel` defined: what came on standard input.

The parcel holds the API key. It came in a file without a name that our starter may keep open too, so it is emptied
rather than closed; and the process is made unreadable for others of the same user, so that a tool finds the key
neither in its memory nor in its descriptors (the superuser still can).
"""

import contextlib
import gc
import importlib.abc
import importlib.machinery
import marshal
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PACKAGE = "agent"
_NO_DUMPS = 4  # PR_SET_DUMPABLE


class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the package from the code that came in the parcel."""

    def __init__(self, code: dict[str, bytes]) -> None:
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == PACKAGE:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        package, _, name = fullname.rpartition(".")
        return importlib.machinery.ModuleSpec(fullname, self) if package == PACKAGE and name in self._code else None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ != PACKAGE:
            exec(marshal.loads(self._code[module.__name__.rpartition(".")[2]]), module.__dict__)


def wipe_input() -> None:
    with contextlib.suppress(OSError):  # of a pipe, what was read is gone
        os.ftruncate(0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def hide_memory() -> None:
    if sys.platform == "linux":
        try:
            import ctypes

            ctypes.CDLL(None).prctl(_NO_DUMPS, 0, 0, 0, 0)
        except (ImportError, OSError):
            pass


def start(parcel: dict[str, Any]) -> None:
    """Never returns."""
    wipe_input()
    hide_memory()
    gc.disable()  # importing an SDK makes 100,000 objects that stay: looking through them takes a fifth of the time
    sys.path += parcel["libraries"]
    # Both SDKs import it where it is installed, and neither is asked to use it: 0.15 s.
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    sys.meta_path.insert(0, Modules(parcel["code"]))
    main = importlib.import_module(f"{PACKAGE}.main")
    code = main.main(parcel["job"])
    sys.stderr.flush()
    os._exit(code)


if "parcel" in globals():
    start(globals()["parcel"])
