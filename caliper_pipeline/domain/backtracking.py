"""How much a backtracking search can be made to work, read off the pattern.

The matcher is drawn as a graph: one node for each place in the pattern that reads a character, an edge for each way to
go on, and on the edge how many different ways those are. Two questions are put to it. Does some loop read one text in
two ways (then the work doubles with each round)? And how many ways would a failing search try on a text that repeats
one bit (then chains of competing loops and long runs of optional parts show up as a large number)?

Not covered: what a backreference copies is taken for "anything"; a possessive or atomic part for one step.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

_TEXT_LENGTH = 256
_MOST_STEPS = 10_000_000
_MOST_NODES = 1500
_MOST_COPIES = 64
_MOST_WORK = 300_000


def backtracking_fault(pattern: "re.Pattern[str]") -> str | None:
    """How the pattern can be made to backtrack for ever. `None`: it is quick on any text of a path's length."""
    parser: Any = import_module("re._parser")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = parser.parse(pattern.pattern, pattern.flags)
    graph = MatchGraph(tree, pattern.flags)
    doubtful = graph.overflow or graph.has_doubtful_loop()
    if graph.overflow:
        return "is too large to be checked for endless backtracking"
    if doubtful:
        return "can backtrack without end: a part that repeats can read the same text in several ways"
    for bit in graph.bits():
        if graph.steps(bit) > _MOST_STEPS:
            shown = (bit * 8)[:8]
            return f"can backtrack without end, for instance on {shown + '…'!r}"
    return None


@dataclass(slots=True)
class _Part:
    """A piece of the pattern: the nodes it can begin and end with, and the ways to pass it reading nothing."""

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    empty: int = 1


class MatchGraph:
    """The positions automaton of a pattern (Glushkov, 1961); numbers are how many different ways lead along an edge."""

    def __init__(self, tree: Any, flags: int) -> None:
        self.letters = _letters(tree)
        self.everything = (1 << len(self.letters)) - 1
        self.reads: list[int] = []
        self.next: list[dict[int, int]] = []
        self.starts: dict[int, int] = {}
        self.overflow = False
        whole = self._sequence(list(tree), flags)
        _add(self.starts, whole.first, 1)
        first = (
            str(tree[0][0]) == "AT" and str(tree[0][1]) in ("AT_BEGINNING", "AT_BEGINNING_STRING") if tree else False
        )
        self.anchored = first and not flags & re.MULTILINE

    def bits(self) -> list[str]:
        """The texts to repeat: each letter the pattern tells apart, and the shortest round of each larger loop."""
        kinds: dict[tuple[bool, ...], str] = {}
        for place, letter in enumerate(self.letters):
            kinds.setdefault(tuple(bool(mask >> place & 1) for mask in self.reads), letter)
        rounds = {word for node in range(len(self.reads)) if (word := self._round(node))}
        return [*kinds.values(), *sorted(rounds)[:40]]

    def steps(self, bit: str) -> int:
        """How many steps a failing search takes on the bit repeated to a text of a path's length."""
        places = [self.letters.index(letter) for letter in bit]
        ways: dict[int, int] = {}
        total = 0
        for index in range(_TEXT_LENGTH):
            place = places[index % len(places)]
            # What comes before the repeated bit may have led to any node.
            following = dict.fromkeys(range(len(self.reads)), 1) if index == 0 else {}
            for node, count in ways.items():
                _add(following, self.next[node], count)
            if not self.anchored:
                _add(following, self.starts, 1)
            ways = {node: count for node, count in following.items() if self.reads[node] >> place & 1}
            total += sum(ways.values())
            if total > _MOST_STEPS or (not ways and self.anchored):
                break
        return total

    def has_doubtful_loop(self) -> bool:
        """Whether two different ways through the graph lead from some node back to it on the same text.

        Then the ways double with each round. Pairs of nodes that read the same text are followed from all equal
        pairs; a way back to an equal pair from an unequal one is the proof (Weber and Seidl, 1991).
        """
        loops = self._loops()
        ahead: dict[tuple[int, int], list[tuple[int, int]]] = {}
        queue = [(node, node) for node in range(len(self.reads)) if loops[node]]
        seen = set(queue)
        work = 0
        for pair in queue:
            ahead[pair] = []
            for left, count in self.next[pair[0]].items():
                if not loops[pair[0]] >> left & 1:
                    continue
                if pair[0] == pair[1] and count > 1:
                    return True
                work += len(self.next[pair[1]])
                for right in self.next[pair[1]]:
                    if self.reads[left] & self.reads[right] and loops[pair[0]] >> right & 1:
                        ahead[pair].append((left, right))
                        if (left, right) not in seen:
                            seen.add((left, right))
                            queue.append((left, right))
            if work > _MOST_WORK:
                self.overflow = True
                return False
        behind: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for pair, others in ahead.items():
            for other in others:
                behind.setdefault(other, []).append(pair)
        queue = [pair for pair in seen if pair[0] == pair[1]]
        back = set(queue)
        for pair in queue:
            for other in behind.get(pair, ()):
                if other[0] != other[1]:
                    return True
                if other not in back:
                    back.add(other)
                    queue.append(other)
        return False

    def _loops(self) -> list[int]:
        """For each node, as bits, the nodes that it shares a loop with; 0 when it is in none."""
        ahead = [sum(1 << other for other in following) for following in self.next]
        for middle in range(len(ahead)):
            for node, bits in enumerate(ahead):
                if bits >> middle & 1:
                    ahead[node] = bits | ahead[middle]
        return [
            sum(1 << other for other in range(len(ahead)) if bits >> other & 1 and ahead[other] >> node & 1)
            for node, bits in enumerate(ahead)
        ]

    def _round(self, start: int) -> str | None:
        """The letters on the shortest way from a node back to itself, when that takes more than one step."""
        if start in self.next[start]:
            return None
        came_from: dict[int, int] = {}
        queue = [start]
        for node in queue:
            for other in self.next[node]:
                if other == start:
                    way = [node]
                    while way[-1] != start:
                        way.append(came_from[way[-1]])
                    return "".join(self._letter_of(step) for step in reversed(way))
                if other not in came_from:
                    came_from[other] = node
                    queue.append(other)
        return None

    def _letter_of(self, node: int) -> str:
        # The letter that most other nodes read too, since doubt is what we look for.
        places = [place for place in range(len(self.letters)) if self.reads[node] >> place & 1] or [0]
        return self.letters[max(places, key=lambda place: sum(mask >> place & 1 for mask in self.reads))]

    # -- building ---------------------------------------------------------------------------------------------------

    def _node(self, mask: int) -> _Part:
        if len(self.reads) >= _MOST_NODES:
            self.overflow = True
            return _Part()
        self.reads.append(mask)
        self.next.append({})
        here = len(self.reads) - 1
        return _Part({here: 1}, {here: 1}, 0)

    def _sequence(self, items: Any, flags: int) -> _Part:
        whole = _Part()
        for item in items:
            whole = self._join(whole, self._item(item, flags))
        return whole

    def _join(self, left: _Part, right: _Part) -> _Part:
        for node, count in left.last.items():
            _add(self.next[node], right.first, count)
        first, last = dict(left.first), dict(right.last)
        _add(first, right.first, left.empty)
        _add(last, left.last, right.empty)
        return _Part(first, last, min(left.empty * right.empty, 2))

    def _either(self, parts: list[_Part]) -> _Part:
        whole = _Part(empty=0)
        for part in parts:
            _add(whole.first, part.first, 1)
            _add(whole.last, part.last, 1)
            whole.empty = min(whole.empty + part.empty, 2)
        return whole

    def _loop(self, part: _Part) -> _Part:
        for node, count in part.last.items():
            _add(self.next[node], part.first, count)
        return _Part(part.first, part.last, 1)

    def _item(self, item: Any, flags: int) -> _Part:
        kind, value = str(item[0]), item[1]
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeat(value[0], value[1], lambda: self._sequence(value[2], flags))
        if kind == "SUBPATTERN":
            return self._sequence(value[3], (flags | value[1]) & ~value[2])
        if kind == "BRANCH":
            return self._either([self._sequence(branch, flags) for branch in value[1]])
        if kind in ("ASSERT", "ASSERT_NOT"):
            _add(self.starts, self._sequence(value[1], flags).first, 1)
            return _Part()
        if kind in ("ATOMIC_GROUP", "POSSESSIVE_REPEAT"):
            part = self._node(self.everything)
            part.empty = int(kind == "POSSESSIVE_REPEAT" and value[0] == 0)
            return part
        if kind == "GROUPREF":
            return self._loop(self._node(self.everything))
        if kind == "GROUPREF_EXISTS":
            return self._either([self._sequence(branch or [], flags) for branch in value[1:]])
        if kind in ("AT", "FAILURE"):
            return _Part()
        return self._node(self._mask(kind, value, flags))

    def _repeat(self, least: int, most: int, build: Callable[[], _Part]) -> _Part:
        endless = str(most) == "MAXREPEAT" or most > _MOST_COPIES
        whole = _Part()
        for _ in range(min(least, _MOST_COPIES)):
            whole = self._join(whole, build())
        if endless:
            return self._join(whole, self._loop(build()))
        tail = _Part()
        for _ in range(most - min(least, most)):
            tail = self._join(build(), tail)
            tail.empty = min(tail.empty + 1, 2)
        return self._join(whole, tail)

    def _mask(self, kind: str, value: Any, flags: int) -> int:
        return sum(1 << place for place, letter in enumerate(self.letters) if _reads(kind, value, letter, flags))


def _add(into: dict[int, int], more: dict[int, int], times: int) -> None:
    if times:
        for node, count in more.items():
            into[node] = into.get(node, 0) + count * times


_SAMPLE = "aZm059_ \t\n./-!\x01é水\U0001f30a"


def _letters(tree: Any) -> list[str]:
    """One letter for each kind that the pattern can tell apart, as far as its text shows."""
    found = dict.fromkeys(_SAMPLE)
    queue = [tree]
    while queue:
        item = queue.pop()
        if isinstance(item, tuple) and len(item) == 2:
            kind, value = str(item[0]), item[1]
            if kind in ("LITERAL", "NOT_LITERAL"):
                found[chr(value)] = None
            elif kind == "RANGE":
                found.update(dict.fromkeys((chr(value[0]), chr(value[1]))))
                if value[1] < 0x10FFFF:
                    found[chr(value[1] + 1)] = None
                if value[0] > 0:
                    found[chr(value[0] - 1)] = None
        if isinstance(item, tuple | list) or hasattr(item, "data"):
            queue.extend(list(item))
    return list(found)


def _reads(kind: str, value: Any, letter: str, flags: int) -> bool:
    forms = {letter}
    if flags & re.IGNORECASE:
        forms |= {letter.lower()[:1], letter.upper()[:1]}
    if kind == "ANY":
        return bool(flags & re.DOTALL) or letter != "\n"
    if kind == "LITERAL":
        return any(ord(form) == value for form in forms)
    if kind == "NOT_LITERAL":
        return all(ord(form) != value for form in forms)
    if kind == "RANGE":
        return any(value[0] <= ord(form) <= value[1] for form in forms)
    if kind == "CATEGORY":
        return _in_category(str(value), letter, ascii_only=bool(flags & re.ASCII))
    if kind == "IN":
        negated = bool(value) and str(value[0][0]) == "NEGATE"
        inside = any(_reads(str(item[0]), item[1], letter, flags) for item in value[negated:])
        return inside != negated
    return True


def _in_category(name: str, letter: str, *, ascii_only: bool) -> bool:
    plain = letter.isascii() or not ascii_only
    found = {
        "DIGIT": letter.isdigit() and plain,
        "SPACE": letter.isspace() and plain,
        "WORD": (letter.isalnum() or letter == "_") and plain,
    }[name.rpartition("_")[2]]
    return found != ("NOT_" in name)
