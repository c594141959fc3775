"""YAML that a person wrote, looked at node by node, so that everything wrong in it has its line and key."""

import math
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any

from caliper_pipeline.domain.errors import Problem, SpecError

Trail = tuple[str, ...]
_MOST_NODES = 100_000
"""Of a file, aliases written out: a few lines of aliases can stand for millions of values."""
_MOST_DEPTH = 40


class AuthoredYaml:
    """Gives values where it can, and collects problems where it cannot. Raises `SpecError` only for what is too large
    to go on with."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._nodes_left = _MOST_NODES

    def problem(self, node: Any, trail: Trail, message: str) -> None:
        line = node.start_mark.line + 1 if node is not None else None
        self.problems.append(Problem(self.file, message, " → ".join(trail), line))

    def document(self, data: bytes) -> Any:
        """The root node. `None`: there is none, which is told."""
        import yaml

        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.problem(None, (), f"this file is not UTF-8 (byte {error.start})")
            return None
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            root = yaml.compose(text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else None
            self.problems.append(Problem(self.file, f"this is no YAML: {error.problem or error.context}", line=line))
            return None
        except (yaml.YAMLError, RecursionError) as error:
            self.problem(None, (), f"this is no YAML: {error}")
            return None
        if root is None:
            self.problem(None, (), "this file is empty")
        return root

    def mapping(
        self, node: Any, trail: Trail, known: Collection[str] | None, *, needed: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The value nodes by key, as far as keys are right. `known`: the keys that may be there; `None`: any."""
        self._count(node, trail)
        if node.id != "mapping":
            self.problem(node, trail, f"a mapping is needed, not {_kind(node)}")
            return {}
        found: dict[str, Any] = {}
        for key, value in node.value:
            if key.id != "scalar" or key.tag.endswith((":merge", ":null")):
                self.problem(key, trail, "every key must be plain text")
                continue
            name = key.value
            if name in found:
                self.problem(key, (*trail, name), "this key is there twice")
            elif known is not None and name not in known:
                close = get_close_matches(name, known, 1)
                meant = f"; did you mean {close[0]}?" if close else f"; known keys: {', '.join(sorted(known))}"
                self.problem(key, (*trail, name), f"unknown key{meant}")
            else:
                found[name] = value
        for name in needed:
            if name not in found:
                self.problem(node, trail, f"`{name}` is missing")
        return found

    def _count(self, node: Any, trail: Trail) -> None:
        self._nodes_left -= 1
        if self._nodes_left < 0:
            problem = Problem(self.file, "this file stands for too many values", " → ".join(trail))
            raise SpecError([problem])

    def items(self, node: Any, trail: Trail) -> list[Any]:
        if node.id != "sequence":
            self.problem(node, trail, f"a list is needed, not {_kind(node)}")
            return []
        if not node.value:
            self.problem(node, trail, "this list is empty")
        return list(node.value)

    def text(self, node: Any, trail: Trail) -> str:
        if node.id != "scalar" or not node.tag.endswith(":str"):
            self.problem(node, trail, f"text is needed, not {_kind(node)}")
            return ""
        return str(node.value)

    def word(self, node: Any, trail: Trail, known: Sequence[str]) -> str:
        """One of the known words."""
        if node.id == "scalar" and node.value in known:
            return str(node.value)
        said = repr(node.value) if node.id == "scalar" else _kind(node)
        self.problem(node, trail, f"one of {', '.join(known)} is needed, not {said}")
        return known[0]

    def boolean(self, node: Any, trail: Trail) -> bool:
        value = self.plain(node, trail) if node.id == "scalar" else None
        if not isinstance(value, bool):
            self.problem(node, trail, f"true or false is needed, not {_kind(node)}")
            return False
        return value

    def integer(self, node: Any, trail: Trail) -> int:
        """A whole number from 0."""
        value = self.number(node, trail)
        if value != int(value):
            self.problem(node, trail, f"a whole number is needed, not {node.value}")
        return int(value)

    def number(self, node: Any, trail: Trail) -> float:
        """A finite number from 0."""
        value = self.plain(node, trail) if node.id == "scalar" else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(node, trail, f"a number is needed, not {_kind(node)}")
            return 0
        if value < 0 or not math.isfinite(value):
            self.problem(node, trail, f"a number from 0 is needed, not {node.value}")
            return 0
        return value

    def plain(self, node: Any, trail: Trail, depth: int = 0) -> Any:
        """Any value, as JSON can hold it; aliases are written out."""
        import yaml

        self._count(node, trail)
        if depth > _MOST_DEPTH:
            raise SpecError([Problem(self.file, "this value is too deep", " → ".join(trail), node.start_mark.line + 1)])
        if node.id == "mapping":
            entries = self.mapping(node, trail, None)
            return {key: self.plain(value, trail, depth + 1) for key, value in entries.items()}
        if node.id == "sequence":
            return [self.plain(item, trail, depth + 1) for item in node.value]
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self.problem(node, trail, f"this value cannot be read: {error}")
            return None
        return value if value is None or isinstance(value, bool | int | float | str) else str(node.value)


def _kind(node: Any) -> str:
    if node.id != "scalar":
        return {"mapping": "a mapping", "sequence": "a list"}[node.id]
    return "nothing" if node.tag.endswith(":null") else f"{node.value!r}"
