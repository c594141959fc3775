"""A spec of release 0.4 in the present form, with every comment and every untouched line as it was.

Only the top-level `skill:` and `judge:` are rewritten, in the text itself: a YAML writer would lay out the whole file
anew, and drop the comments that follow a removed key, because it files them under that key. The result is read again
and must hold what the old one held; where it does not (an anchor inside a removed block), nothing is changed.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import BadInput, SpecError
from caliper_pipeline.domain.spec import legacy_form
from caliper_pipeline.sources.text_file import refused
from caliper_pipeline.sources.yaml_tree import Entry, Node, Place, read_tree

_OLD = ("skill", "judge")
_LINE_END = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_SAFE = re.compile(r"[\w./~][\w./~@+-]*\Z")


@dataclass(frozen=True, slots=True)
class Migration:
    text: str
    changed: bool
    flags: tuple[str, ...] = ()
    """What the removed engine keys are on the command line of `run`."""


def migrate_text(text: str) -> str:
    """The spec in the present form; the text itself when it is that already. Raises `SpecError` or `BadInput`."""
    return migrate_spec(text, "the spec").text


def migrate_spec(text: str, shown: str, folder: Path | None = None) -> Migration:
    """The same, telling more. `folder`: of the spec, to complete a path that names a skill's folder."""
    tree = read_tree(text, shown)
    if tree is None or tree.kind != "map" or not any(key in tree.entries for key in _OLD):
        return Migration(text, False)
    if "skill" in tree.entries and "skills" in tree.entries:
        raise refused(shown, "has both `skill:` and `skills:`; merge them by hand", tree.line_of(("skill",)))
    data = tree.data()
    path = _skill_path(data.get("skill"), folder)
    flags = legacy_form(data)[1]
    editor = _Editor(text, tree)
    result = editor.flow(path) if tree.style == "flow" else editor.block(path, flags)
    wanted = {key: value for key, value in data.items() if key not in _OLD}
    if "skill" in data:
        wanted["skills"] = [path] if path is not None else []
    try:
        found = read_tree(result, shown)
        held = found.data() if found is not None else {}
    except SpecError:
        held = None
    if held != wanted:
        raise BadInput(
            f"{shown}: `skill:` and `judge:` are written in a way that cannot be rewritten safely.",
            hint="Replace them by hand: caliper validate prints the new form.",
        )
    return Migration(result, True, flags)


def _skill_path(skill: Any, folder: Path | None) -> str | None:
    path = skill.get("path") if isinstance(skill, dict) else skill
    if not isinstance(path, str) or not path.strip():
        return None
    if folder is not None and not path.endswith("SKILL.md") and (folder / path / "SKILL.md").is_file():
        return f"{path.rstrip('/')}/SKILL.md"
    return path


class _Editor:
    def __init__(self, text: str, tree: Node) -> None:
        self.text = text
        self.tree = tree
        ends = [match.end() for match in _LINE_END.finditer(text)]
        self.starts = [0, *ends]
        self.lines = [text[start:end] for start, end in zip(self.starts, [*ends, len(text)], strict=True)]
        found = _LINE_END.search(text)
        self.newline = found[0] if found else "\n"

    def offset(self, place: Place) -> int:
        return self.starts[place[0]] + place[1]

    def item(self, path: str, *, in_flow: bool) -> str:
        """The path as a value, as the author quoted it where it is unchanged."""
        skill = self.tree.entries["skill"].value
        node = skill.child("path") if skill.kind == "map" else skill
        if node is not None and node.value == path and node.style in ("", "'", '"') and node.start[0] == node.end[0]:
            written = self.text[self.offset(node.start) : self.offset(node.end)]
            if not in_flow or node.style or not re.search(r"[,\[\]{}]", written):
                return written
        return path if _SAFE.match(path) else json.dumps(path, ensure_ascii=False)

    # -- a spec in one pair of braces, such as JSON -----------------------------------------------------------------

    def flow(self, path: str | None) -> str:
        edits: list[tuple[int, int, str]] = []
        order = list(self.tree.entries.items())
        for index, (key, entry) in enumerate(order):
            start, end = self.offset(entry.key), self.offset(entry.value.end)
            if key == "skill":
                quote = self.text[start] if self.text[start] in "'\"" else ""
                edits.append(
                    (start, end, f"{quote}skills{quote}: [{self.item(path, in_flow=True) if path is not None else ''}]")
                )
            elif key == "judge" and index + 1 < len(order):
                edits.append((start, self.offset(order[index + 1][1].key), ""))
            elif key == "judge":
                edits.append((self.offset(order[index - 1][1].value.end) if index else start, end, ""))
        text = self.text
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        return text

    # -- the usual layout, a key a line -----------------------------------------------------------------------------

    def block(self, path: str | None, flags: tuple[str, ...]) -> str:
        tops = sorted(entry.key[0] for entry in self.tree.entries.values())
        first = min(self.tree.entries[key].key[0] for key in _OLD if key in self.tree.entries)
        out = self.lines[:]
        for key in _OLD:
            entry = self.tree.entries.get(key)
            if entry is None:
                continue
            begin = entry.key[0]
            end = next((line for line in tops if line > begin), len(self.lines))
            replaced = self.skill(entry, end, path) if key == "skill" else self.dropped(entry, end)
            if begin == first and flags:
                margin = " " * entry.key[1]
                replaced = f"{margin}# Engines are chosen when it runs: {' '.join(flags)}{self.newline}" + replaced
            out[begin] = replaced
            out[begin + 1 : end] = [""] * (end - begin - 1)
        return "".join(out)

    def skill(self, entry: Entry, end: int, path: str | None) -> str:
        begin, margin = entry.key[0], " " * entry.key[1]
        node = entry.value.child("path") if entry.value.kind == "map" else None
        if path is None or node is None or entry.value.style == "flow" or node.start[0] == begin:
            value = f"[{self.item(path, in_flow=True)}]" if path is not None else "[]"
            comments = self.comments(entry, begin, end)
            return f"{margin}skills: {value}{self.newline}" + "".join(comments)
        out = [f"{margin}skills:{self.comment_of(begin, entry.key[1])}{self.newline}"]
        for line in range(begin + 1, end):
            if line == node.start[0]:
                indent = self.lines[line][: len(self.lines[line]) - len(self.lines[line].lstrip())]
                comment = self.comment_of(line, node.end[1] if node.end[0] == line else node.start[1])
                out.append(f"{indent}- {self.item(path, in_flow=False)}{comment}{self.newline}")
            else:
                out += self.kept(line, entry)
        return "".join(out)

    def dropped(self, entry: Entry, end: int) -> str:
        return "".join(self.comments(entry, entry.key[0], end))

    def comments(self, entry: Entry, begin: int, end: int) -> list[str]:
        return [text for line in range(begin, end) for text in self.kept(line, entry)]

    def kept(self, line: int, entry: Entry) -> list[str]:
        """What stays of a line whose key goes: blank and comment lines as they are, else only its comment."""
        text = self.lines[line]
        if not text.strip() or text.lstrip().startswith("#"):
            return [text]
        ends = [node.end[1] for node in _scalars(entry.value) if node.start[0] == node.end[0] == line]
        comment = self.comment_of(line, max(ends, default=0)).strip()
        return [f"{' ' * entry.key[1]}{comment}{self.newline}"] if comment else []

    def comment_of(self, line: int, column: int) -> str:
        """The comment after a column, with the blanks before it; empty when there is none."""
        found = re.search(r"[ \t]+#.*", self.lines[line][column:].rstrip("\r\n\x85\u2028\u2029"))
        return found[0] if found else ""


def _scalars(node: Node) -> list[Node]:
    if node.kind == "scalar":
        return [node]
    below = [entry.value for entry in node.entries.values()] or node.items
    return [found for item in below for found in _scalars(item)]
