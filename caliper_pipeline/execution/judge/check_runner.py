"""Runs one assert script in an interpreter that was started without `site` (`-S`), as it would run with it.

    python -S … check_runner.py LIBRARIES SCRIPT      LIBRARIES: folders to import from, joined by the path separator

Starting with `site` takes a third longer, mostly for `.pth` files, and an evaluation starts one interpreter an attempt.
What scripts rely on is put back: the installed libraries, `exit` and `quit`. A traceback shows the script's own frames.
"""

import builtins
import os
import sys


def main() -> None:
    libraries, path = sys.argv[1:]
    sys.path += [folder for folder in libraries.split(os.pathsep) if folder]
    sys.argv = [path]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    module = type(sys)("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module
    with open(path, "rb") as stream:  # noqa: PTH123  pathlib takes 3 ms to import
        source = stream.read()
    try:
        code = compile(source, path, "exec")
    except (SyntaxError, ValueError) as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        sys.exit(1)
    try:
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        behind = error.__traceback__.tb_next if error.__traceback__ is not None else None
        sys.excepthook(type(error), error.with_traceback(behind), behind)
        sys.exit(1)


if __name__ == "__main__":
    main()
