"""YAML as a tree that knows the line of every key and value, read with nothing but plain data in mind.

The parser's events are turned into nodes here rather than by the library, so that every guard stands in one place: one
document, keys that are text and stand once (merge keys aside), no tags that build objects, no aliases that multiply
(their sizes are added up, nothing is copied), a limited depth. libyaml's parser is used where it is there; it is twenty
times as fast. Both read the same: escaped surrogate pairs, which JSON writes for an emoji, are joined, half of one is
refused.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from caliper_pipeline.domain.errors import Problem, SpecError
from caliper_pipeline.sources.text_file import line_at, printable, refused

Place = tuple[int, int]
"""Line and column, both counted from 0."""

MOST_NODES = 100_000
"""Values in a file once its aliases are written out."""
MOST_CHARACTERS = 32 * 1024**2
"""Characters in those values."""
DEEPEST = 100
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN_TAGS = {
    "tag:yaml.org,2002:str": "text",
    "!": "text",
    "tag:yaml.org,2002:null": "scalar",
    "tag:yaml.org,2002:bool": "scalar",
    "tag:yaml.org,2002:int": "scalar",
    "tag:yaml.org,2002:float": "scalar",
    "tag:yaml.org,2002:map": "map",
    "tag:yaml.org,2002:seq": "seq",
}
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


@dataclass(slots=True, eq=False)
class Node:
    kind: str
    """`map`, `seq` or `scalar`."""
    start: Place
    end: Place
    value: Any = None
    """Of a scalar: text, number, bool or None."""
    raw: str = ""
    """Of a scalar: its text before it was taken for a number or the like."""
    style: str = ""
    """Of a scalar: empty (plain), `'`, `"`, `|` or `>`; of others: `flow` or `block`."""
    entries: "dict[str, Entry]" = field(default_factory=dict)
    items: "list[Node]" = field(default_factory=list)
    size: int = 1
    characters: int = 0
    plain: Any = None

    @property
    def line(self) -> int:
        return self.start[0] + 1

    def child(self, step: str | int) -> "Node | None":
        if isinstance(step, int):
            return self.items[step] if step < len(self.items) else None
        entry = self.entries.get(step)
        return entry.value if entry is not None else None

    def line_of(self, path: tuple[str | int, ...]) -> int:
        """The line of what a path names; of the nearest thing around it when that is not there."""
        node, line = self, self.line
        for step in path:
            found = node.child(step)
            if found is None:
                return line
            line = found.line if isinstance(step, int) else node.entries[step].key[0] + 1
            node = found
        return line

    def at(self, path: tuple[str | int, ...]) -> "Node | None":
        """The node that a path names."""
        node: Node | None = self
        for step in path:
            node = node.child(step) if node is not None else None
        return node

    def data(self) -> Any:
        """Plain data: dict, list, text, number, bool, None. What an alias repeats is the same object again."""
        if self.kind == "scalar":
            return self.value
        if self.plain is None:
            if self.kind == "map":
                self.plain = {key: entry.value.data() for key, entry in self.entries.items()}
            else:
                self.plain = [item.data() for item in self.items]
        return self.plain


@dataclass(frozen=True, slots=True)
class Entry:
    key: Place
    value: Node


def read_tree(text: str, shown: str, *, first_line: int = 1) -> Node | None:
    """The single document in a text. `None`: there is nothing in it. Raises `SpecError`.

    `first_line` is the line of the file that the text begins at.
    """
    found = _UNPRINTABLE.search(text)
    if found is not None:
        message = f"holds the character U+{ord(found[0]):04X}, which YAML does not allow"
        raise refused(shown, message, line_at(text, found.start()) + first_line - 1)
    marker = _marker(text)
    marked = _PAIR.sub(rf"\1{marker}{marker}\2{marker}{marker}\3", text) if marker else text
    reader = _Reader(printable(shown), first_line, marker)
    loader = _Loader(marked)
    try:
        root = reader.read(loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + first_line if mark is not None else None
        reader.problems.append(Problem(printable(shown), _syntax(error, text, mark), line=line))
    except (yaml.YAMLError, RecursionError) as error:
        reader.problems.append(Problem(printable(shown), f"is not valid YAML: {error}"))
    finally:
        loader.dispose()
    if reader.problems:
        raise SpecError(reader.problems)
    return root


class _Reader:
    """Builds nodes from events."""

    def __init__(self, shown: str, first_line: int, marker: str) -> None:
        self.shown = shown
        self.first_line = first_line
        self.marker = marker
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node | None] = {}
        self.count = 0

    def read(self, loader: Any) -> Node | None:
        root: Node | None = None
        documents = 0
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.refuse(
                        "a second document begins here: one file holds one document", _place(event.start_mark)[0]
                    )
                    return None
            elif isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent | AliasEvent):
                root = self.node(event, loader, 0)
                if root is None:
                    return None
        empty = root is not None and root.kind == "scalar" and root.value is None and not root.raw
        return None if empty else root

    def refuse(self, message: str, line: int) -> None:
        self.problems.append(Problem(self.shown, message, line=line + self.first_line))

    def node(self, event: Any, loader: Any, depth: int) -> Node | None:
        """The node that begins with an event. `None`: a limit was passed, and reading stops."""
        self.count += 1
        line = event.start_mark.line
        if self.count > MOST_NODES:
            self.refuse(f"has too many values: more than {MOST_NODES:,}", line)
            return None
        if depth > DEEPEST:
            self.refuse(f"is nested too deeply: more than {DEEPEST} levels", line)
            return None
        if isinstance(event, AliasEvent):
            return self.alias(event, line)
        start, end = _place(event.start_mark), _place(event.end_mark)
        kind = _PLAIN_TAGS.get(event.tag) if event.tag else None
        if event.tag and kind is None:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.refuse(f"the tag {printable(shown[:80])} is not accepted: only plain data is read", line)
        if event.anchor:
            self.anchors[event.anchor] = None  # under construction: an alias to it from inside would be endless
        if isinstance(event, ScalarEvent):
            node: Node | None = self.scalar(event, kind, start, end)
        elif isinstance(event, SequenceStartEvent):
            node = self.sequence(event, loader, depth, start)
        else:
            node = self.mapping(event, loader, depth, start)
        if node is not None and (node.size > MOST_NODES or node.characters > MOST_CHARACTERS):
            self.refuse("grows too large: its aliases repeat each other", line)
            return None
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: AliasEvent, line: int) -> Node | None:
        if event.anchor not in self.anchors:
            self.refuse(f"*{printable(str(event.anchor))} names no anchor above it", line)
            return Node("scalar", _place(event.start_mark), _place(event.end_mark))
        node = self.anchors[event.anchor]
        if node is None:
            self.refuse(f"*{printable(str(event.anchor))} stands inside what it names", line)
        return node

    def scalar(self, event: ScalarEvent, kind: str | None, start: Place, end: Place) -> Node:
        raw, style = event.value, event.style or ""
        if self.marker and self.marker in raw:
            if style == '"':
                raw = re.sub(f"{self.marker}{{2}}(....){self.marker}{{2}}(....)", _joined, raw)
            else:
                raw = raw.replace(self.marker * 2, "\\u")
        if re.search("[\ud800-\udfff]", raw):
            self.refuse("holds half of a surrogate pair (\\uD800 to \\uDFFF), which is not a character", start[0])
            raw = ""
        plain = kind == "scalar" or (kind is None and not style and event.implicit[0])
        value = _resolve(raw) if plain else raw
        return Node("scalar", start, end, value, raw, style, size=1, characters=len(raw))

    def sequence(self, event: SequenceStartEvent, loader: Any, depth: int, start: Place) -> Node | None:
        node = Node("seq", start, start, style="flow" if event.flow_style else "block")
        while True:
            following = loader.get_event()
            if isinstance(following, SequenceEndEvent):
                node.end = _place(following.end_mark)
                return node
            item = self.node(following, loader, depth + 1)
            if item is None:
                return None
            node.items.append(item)
            node.size += item.size
            node.characters += item.characters

    def mapping(self, event: MappingStartEvent, loader: Any, depth: int, start: Place) -> Node | None:
        node = Node("map", start, start, style="flow" if event.flow_style else "block")
        merged: list[tuple[Node, int]] = []
        while True:
            following = loader.get_event()
            if isinstance(following, MappingEndEvent):
                node.end = _place(following.end_mark)
                break
            key = self.node(following, loader, depth + 1)
            if key is None:
                return None
            value = self.node(loader.get_event(), loader, depth + 1)
            if value is None:
                return None
            node.size += value.size + 1
            node.characters += value.characters + key.characters
            if key.kind != "scalar":
                self.refuse("a key must be text, not a list or a mapping", key.start[0])
            elif key.raw == "<<" and not key.style:
                merged.append((value, key.start[0]))
            elif key.raw in node.entries:
                first = node.entries[key.raw].key[0] + self.first_line
                shown = printable(key.raw[:60])
                self.refuse(f"duplicate key `{shown}`: it stands in line {first} already", key.start[0])
            else:
                node.entries[key.raw] = Entry(key.start, value)
        for value, line in merged:
            self.merge(node, value, line)
        return node

    def merge(self, node: Node, source: Node, line: int) -> None:
        for part in source.items if source.kind == "seq" else [source]:
            if part.kind != "map":
                self.refuse("`<<` merges a mapping, or a list of mappings", line)
                return
            for key, entry in part.entries.items():
                node.entries.setdefault(key, entry)


def _marker(text: str) -> str:
    """A character that the text lacks, to stand twice for `\\u` of a surrogate pair; empty when there is none."""
    if not _PAIR.search(text):
        return ""
    return next(character for character in map(chr, range(0xE000, 0xF8FF)) if character not in text)


def _joined(match: "re.Match[str]") -> str:
    high, low = int(match[1], 16), int(match[2], 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _place(mark: Any) -> Place:
    return mark.line, mark.column


_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
for _true, _false in (("true", "false"), ("yes", "no"), ("on", "off")):
    for _form in (str.lower, str.capitalize, str.upper):
        _WORDS[_form(_true)], _WORDS[_form(_false)] = True, False
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)\Z")
_BASED = re.compile(r"[-+]?0(x[0-9a-fA-F_]+|o?[0-7_]+|b[01_]+)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


def _resolve(raw: str) -> Any:
    """What an unquoted scalar stands for, as YAML 1.1 has it; dates and sexagesimal numbers stay text."""
    if raw in _WORDS:
        return _WORDS[raw]
    if len(raw) > 60 or raw[0] not in "+-.0123456789":
        return raw
    if _INTEGER.match(raw):
        return int(raw.replace("_", ""))
    if _BASED.match(raw):
        digits = raw.replace("_", "").lower()
        return int(re.sub(r"\A([-+]?)0(?=[0-7])", r"\g<1>0o", digits), 0) if re.search("[0-9a-f]", digits[2:]) else raw
    if raw.lower() in _SPECIAL:
        return _SPECIAL[raw.lower()]
    return float(raw.replace("_", "")) if _FLOAT.match(raw) else raw


def _syntax(error: Any, text: str, mark: Any) -> str:
    problem = str(error.problem or error.context or error)
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if "invalid Unicode character escape" in problem or "escape code" in problem:
        return "holds half of a surrogate pair (\\uD800 to \\uDFFF) or another escape that is not a character"
    if re.match(r"[ ]*\t", line) or "\\t" in problem:
        return "is not valid YAML: a tab is used for indentation, where YAML allows only blanks"
    context = f" {error.context}" if error.context and error.context != problem else ""
    return f"is not valid YAML: {printable(problem)}{printable(context)}"
