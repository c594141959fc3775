"""Regular expressions of authors against text that an agent chooses, matched in time linear in the text.

Python's engine tries alternatives one after the other and can take for ever on `(a+)+$`. So a pattern is read with
Python's own parser and run as an automaton whose states are made as they are needed (Thompson 1968; Cox 2007,
"Regular Expression Matching Can Be Simple And Fast"). `patterns` refuses such patterns when a spec is loaded; this
is the guarantee where text meets them, whatever came past it.

Look-around, back-references, conditionals and possessive repeats have no such automaton: they run on Python's engine,
on short texts, and only where it has few ways to try. `Matcher.bounded` says which patterns that leaves out; they
match nothing.
"""

import math
import re
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

MAX_NODES = 2_000
"""An automaton larger than this (`(a{1,500}){1,500}`) is not built."""
MAX_STATES = 2_000
"""Known states; beyond it they are forgotten and made again."""
ENGINE_TEXT = 500
"""Longest text for Python's engine where it has choices to try; of a longer one both ends are looked at."""
MAX_EFFORT = math.log(ENGINE_TEXT**2)
"""Ways to try at one position of such a text: the worst search then takes about a second."""

_parser: Any = import_module("re._parser")

_Test = Callable[[str], bool]
_Place = tuple[frozenset[int], str, str]
"""Nodes, what stands before (`start`, `newline`, `word`, `other`), and the character that follows."""


class Matcher:
    """One pattern; many threads may use the same one, since what it remembers can always be made again."""

    def __init__(self, text: str) -> None:
        """Raises `re.error` when the text is no regular expression."""
        self.text = text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(text)
            tree = _parser.parse(text)
        self._machine: _Machine | None = None
        self._engine: re.Pattern[str] | None = None
        self._longest: int | None = None
        try:
            self._machine = _Machine(tree)
        except _NoAutomaton:
            effort = _effort(tree)
            self._engine = compiled if effort <= MAX_EFFORT else None
            self._longest = ENGINE_TEXT if effort else None

    @property
    def bounded(self) -> bool:
        """Whether it can be matched in bounded time at all."""
        return self._machine is not None or self._engine is not None

    def found_in(self, text: str) -> bool:
        if self._machine is not None:
            return self._machine.search(text)
        if self._engine is None:
            return False
        limit = self._longest
        parts = [text] if limit is None or len(text) <= limit else [text[:limit], text[-limit:]]
        return any(self._engine.search(part) for part in parts)


class _NoAutomaton(Exception):
    pass


_SPLIT, _CHAR, _AT, _ACCEPT = range(4)
_END, _LAST_NEWLINE = "end", "last newline"


class _Machine:
    """The automaton: nodes made from the parse tree, and sets of nodes made while text is read."""

    def __init__(self, tree: Any) -> None:
        self._kinds: list[int] = []
        self._tests: list[Any] = []
        self._next: list[tuple[int, ...]] = []
        self._start = self._sequence(tree, self._node(_ACCEPT), tree.state.flags)
        self._forget()

    def _forget(self) -> None:
        """Start remembering anew. Searches under way go on with what they have."""
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        self._steps: dict[_Place, tuple[bool, frozenset[int]]] = {}

    def search(self, text: str) -> bool:
        nodes, before, last = frozenset((self._start,)), "start", len(text) - 1
        steps = self._steps
        for index, char in enumerate(text):
            look = _LAST_NEWLINE if index == last and char == "\n" else char
            found = steps.get((nodes, before, look))
            if found is None:
                if len(self._sets) > MAX_STATES:
                    self._forget()
                steps = self._steps
                found = steps[nodes, before, look] = self._step(nodes, before, look)
            if found[0]:
                return True
            nodes = found[1]
            before = "newline" if char == "\n" else "word" if _is_word(char) else "other"
        return self._step(nodes, before, _END)[0]

    def _step(self, nodes: frozenset[int], before: str, look: str) -> tuple[bool, frozenset[int]]:
        """Whether a match ends before the next character, and the set after it (one object for equal sets)."""
        char = "\n" if look == _LAST_NEWLINE else look
        after: set[int] = {self._start}
        seen: set[int] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            kind = self._kinds[node]
            if kind == _ACCEPT:
                return True, nodes
            if kind == _SPLIT or (kind == _AT and _holds(self._tests[node], before, look)):
                waiting.extend(self._next[node])
            elif kind == _CHAR and look != _END and self._tests[node](char):
                after.update(self._next[node])
        reached = frozenset(after)
        return False, self._sets.setdefault(reached, reached)

    def _node(self, kind: int, test: Any = None, following: tuple[int, ...] = ()) -> int:
        if len(self._kinds) >= MAX_NODES:
            raise _NoAutomaton
        self._kinds.append(kind)
        self._tests.append(test)
        self._next.append(following)
        return len(self._kinds) - 1

    def _sequence(self, items: Iterable[Any], after: int, flags: int) -> int:
        """The first node of the items, built from the last one backwards."""
        for op, value in reversed(list(items)):
            after = self._item(str(op), value, after, flags)
        return after

    def _item(self, op: str, value: Any, after: int, flags: int) -> int:
        match op:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._node(_CHAR, _char_test(op, value, flags), (after,))
            case "AT":
                return self._node(_AT, (str(value), bool(flags & re.MULTILINE), bool(flags & re.ASCII)), (after,))
            case "SUBPATTERN":
                _, add, remove, items = value
                return self._sequence(items, after, (flags | add) & ~remove)
            case "BRANCH":
                return self._node(_SPLIT, None, tuple(self._sequence(one, after, flags) for one in value[1]))
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(value[0], value[1], value[2], after, flags)
            case _:
                raise _NoAutomaton

    def _repeat(self, least: int, most: int, items: Any, after: int, flags: int) -> int:
        if most == _parser.MAXREPEAT:
            entry = self._node(_SPLIT)
            self._next[entry] = (self._sequence(items, entry, flags), after)
        else:
            entry = after
            for _ in range(most - least):
                entry = self._node(_SPLIT, None, (self._sequence(items, entry, flags), after))
        for _ in range(least):
            entry = self._sequence(items, entry, flags)
        return entry


def _holds(at: tuple[str, bool, bool], before: str, look: str) -> bool:
    """Whether a position between two characters is what an anchor asks for."""
    name, multiline, ascii_only = at
    at_end = look in (_END, _LAST_NEWLINE)
    match name:
        case "AT_BEGINNING":
            return before == "start" or (multiline and before == "newline")
        case "AT_BEGINNING_STRING":
            return before == "start"
        case "AT_END":
            return at_end or (multiline and look == "\n")
        case "AT_END_STRING":
            return look == _END
        case "AT_BOUNDARY" | "AT_NON_BOUNDARY":
            if before == "start" and look == _END:
                return False  # as Python has it for an empty text
            after_word = not at_end and _is_word(look) and (not ascii_only or look.isascii())
            return (after_word != (before == "word")) is (name == "AT_BOUNDARY")
    raise AssertionError(name)


def _char_test(op: str, value: Any, flags: int) -> _Test:
    if op == "ANY":
        return (lambda char: True) if flags & re.DOTALL else (lambda char: char != "\n")
    if op == "IN":
        negated = bool(value) and str(value[0][0]) == "NEGATE"
        parts = [_class_part(str(kind), part, flags) for kind, part in (value[1:] if negated else value)]
    else:
        negated = op == "NOT_LITERAL"
        parts = [_class_part("LITERAL", value, flags)]
    if flags & re.IGNORECASE:
        return lambda char: any(part(c) for part in parts for c in (char, char.lower(), char.upper())) is not negated
    return lambda char: any(part(char) for part in parts) is not negated


def _class_part(kind: str, value: Any, flags: int) -> _Test:
    # Upper and lower case of one character can be two: those are none of the class.
    if kind == "LITERAL":
        return lambda char: len(char) == 1 and ord(char) == value
    if kind == "RANGE":
        low, high = value
        return lambda char: len(char) == 1 and low <= ord(char) <= high
    if kind == "CATEGORY":
        name = str(value).removeprefix("CATEGORY_")
        test = _CATEGORIES[name.removeprefix("NOT_")]
        wanted, plain = not name.startswith("NOT_"), bool(flags & re.ASCII)
        return lambda char: (test(char) and (char.isascii() or not plain)) is wanted
    raise _NoAutomaton


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


_CATEGORIES: dict[str, _Test] = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": _is_word}


def _effort(items: Any) -> float:
    """The logarithm of how many ways Python's engine may try at one position: what its longest search can cost."""
    total = 0.0
    for op, value in items:
        match str(op):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, part = value
                inner = _effort(part)
                if most == _parser.MAXREPEAT or most > ENGINE_TEXT:
                    total += math.inf if inner else math.log(ENGINE_TEXT)
                else:
                    total += most * inner + math.log(most - least + 1)
            case "BRANCH":
                total += math.log(len(value[1])) + max(_effort(one) for one in value[1])
            case "SUBPATTERN":
                total += _effort(value[3])
            case "ASSERT" | "ASSERT_NOT":
                total += _effort(value[1])
            case "ATOMIC_GROUP":
                total += _effort(value)
            case "GROUPREF":
                total += math.log(ENGINE_TEXT)
            case "GROUPREF_EXISTS":
                total += sum(_effort(part) for part in value[1:] if part is not None)
    return total
