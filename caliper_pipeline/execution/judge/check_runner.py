"""Runs one assert script as a fresh interpreter would, without the cost of starting one with `site`.

    python -S … check_runner.py PREFIX LIBRARIES SCRIPT

It is run by path: either as a program, or inside a process that `spawn_server.py` forked for it, which takes a fifth
of the time (2 ms instead of 10; an evaluation runs one script an attempt). LIBRARIES are the folders to import from
besides the standard library, joined by the path separator. What `site` would have set up and scripts rely on is put
back: the prefix, the installed libraries, `exit` and `quit`. A traceback shows the script's own frames alone.
"""

import _signal  # type: ignore[import-not-found]
import atexit
import builtins
import gc
import os
import sys

_MOST_FDS = 1 << 20
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


def run_forked(arguments: list[str], env: dict[bytes, bytes]) -> None:
    """The same in a process forked for it, once its folder and standard descriptors are in place. Never returns."""
    os.closerange(3, _MOST_FDS)  # the launcher sees the end of the pipe: it has started
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)  # as in every interpreter
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    gc.enable()
    os.environ.clear()
    os.environb.update(env)
    stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    vars(sys).update(stdin=stdin, stdout=stdout, stderr=stderr, __stdin__=stdin, __stdout__=stdout, __stderr__=stderr)
    code = 0
    try:
        run(*arguments)
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            code = (end.code or 0) & 0xFF
        else:
            sys.stderr.write(f"{end.code}\n")
            code = 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    os._exit(_close_down(code))


def _close_down(code: int) -> int:
    """What an interpreter does at its end, in its order: threads, `atexit`, then its streams."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        return code or 120
    return code


if __name__ == "__main__":
    run(*sys.argv[1:])
