"""What can be told of an `assert` script without running it.

A check that can never pass, or never fail, scores every attempt alike and is found out only after the attempts were
paid for. So the script is compiled and looked at: shell commands where Python belongs, names that nothing defines, a
comparison whose result is thrown away. What depends on a condition or on other files is left to the run.
"""

import ast
import builtins
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

_ALWAYS_THERE = frozenset(
    (*dir(builtins), "__file__", "__name__", "__doc__", "__spec__", "__loader__", "__package__", "__cached__")
)
_LOOKS_UP_NAMES = frozenset(("exec", "eval", "globals", "locals", "vars", "__import__"))
_TELLS_BY_RESULT = frozenset(("exists", "is_file", "is_dir", "startswith", "endswith", "isdigit", "issubset"))


@dataclass(frozen=True, slots=True)
class CodeFault:
    message: str
    line: int | None = None
    """Counted from 1, within the script."""
    fatal: bool = True
    """The check cannot do its work. False: it is only likely not to be what was meant."""


def examine_assert(code: str) -> tuple[CodeFault, ...]:
    """What is wrong with a script, worst first."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            # What PYTHONOPTIMIZE says here must not matter: at level 1 `assert` statements would not even be compiled.
            compile(code, "<assert>", "exec", dont_inherit=True, optimize=0)
            tree = ast.parse(code)
        except SyntaxError as error:
            return (CodeFault(f"is not valid Python: {error.msg}{_advice(code)}", error.lineno),)
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            return (CodeFault(f"cannot be compiled as Python: {error}"),)
    if not [statement for statement in tree.body if not _is_bare_text(statement)]:
        return (CodeFault("holds no statement, so it would pass whatever the agent did"),)
    faults = list(_undefined(tree))
    faults += [
        CodeFault(f"Python warns: {warning.message}", warning.lineno, fatal=False)
        for warning in caught
        if issubclass(warning.category, SyntaxWarning)
    ]
    last = tree.body[-1]
    if isinstance(last, ast.Expr) and _is_unused_answer(last.value):
        faults.append(
            CodeFault("throws the result of its last line away: write `assert …` around it", last.lineno, fatal=False)
        )
    return tuple(sorted(faults, key=lambda fault: not fault.fatal))


def _advice(code: str) -> str:
    """A hint for those who wrote shell; nothing for those who plainly write Python."""
    if re.search(r"(?m)^\s*(assert |import |from \w+ import |def )", code):
        return ""
    return ". `assert:` holds Python; a shell command goes into subprocess.run([...], check=True)"


def _is_bare_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_unused_answer(value: ast.expr) -> bool:
    if isinstance(value, ast.Compare | ast.BoolOp):
        return True
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.op, ast.Not)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _TELLS_BY_RESULT


def _undefined(tree: ast.Module) -> Iterator[CodeFault]:
    """Names that nothing in the script can have defined, once each; fatal where nothing keeps the line from running."""
    bound: set[str] = set(_ALWAYS_THERE)
    used: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in _LOOKS_UP_NAMES:
                return
            if isinstance(node.ctx, ast.Load):
                used.setdefault(node.id, node.lineno)
            else:
                bound.add(node.id)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            if any(alias.name == "*" for alias in node.names):
                return
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    certain = {
        name.id
        for statement in tree.body
        if isinstance(statement, ast.Expr | ast.Assert | ast.Assign | ast.AugAssign | ast.Raise)
        for name in _surely_read(statement)
    }
    missing = [name for name in used if name not in bound]
    fatal = [name for name in missing if name in certain]
    if fatal:
        names = ", ".join(f"`{name}`" for name in fatal)
        yield CodeFault(f"uses {names}, which nothing defines or imports: it could never pass", used[fatal[0]])
    for name in missing:
        if name not in certain:
            yield CodeFault(f"uses `{name}`, which nothing defines or imports", used[name], fatal=False)


def _surely_read(statement: ast.stmt) -> Iterator[ast.Name]:
    """The names that are read whenever the statement runs: no branch, no function of its own around them."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, ast.BoolOp):
            todo.append(node.values[0])
        elif isinstance(node, ast.IfExp | ast.Assert):
            todo.append(node.test)
        elif not isinstance(node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            todo.extend(ast.iter_child_nodes(node))
