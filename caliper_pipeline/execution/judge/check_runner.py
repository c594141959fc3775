"""Runs one assert script as a fresh interpreter would, without the cost of starting one with `site`.

    python -S … check_runner.py PREFIX LIBRARIES SCRIPT

It is run by path: either as a program, or inside a process that `spawn_server.py` forked for it, which takes a fifth
of the time (2 ms instead of 10; an evaluation runs one script an attempt). LIBRARIES are the folders to import from
besides the standard library, joined by the path separator. What `site` would have set up and scripts rely on is put
back: the prefix, the installed libraries, `exit` and `quit`. A traceback shows the script's own frames alone.
"""

import builtins
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


def run(prefix: str, libraries: str, path: str) -> None:
    """Run the script as `__main__`. Raises `SystemExit` when it does not end by itself."""
    sys.prefix = sys.exec_prefix = prefix
    sys.path += [folder for folder in libraries.split(os.pathsep) if folder]
    sys.argv = [path]
    sys.dont_write_bytecode = True
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    module = type(sys)("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module
    with open(path, "rb") as stream:  # noqa: PTH123  pathlib takes 3 ms to import
        source = stream.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        sys.exit(1)
    try:
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        own = _own_frames(error.__traceback__, path)
        sys.excepthook(type(error), error.with_traceback(own), own)
        sys.exit(1)


def _own_frames(trace: "TracebackType | None", path: str) -> "TracebackType | None":
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    run(*sys.argv[1:])
