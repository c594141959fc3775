"""From findings to problems: the file, the line, and the key in the author's words."""

from collections.abc import Iterable

from caliper_pipeline.domain.authored import Finding, shorten
from caliper_pipeline.domain.errors import Problem
from caliper_pipeline.sources.text_file import printable
from caliper_pipeline.sources.yaml_tree import Node

ARROW = " → "


class Placer:
    """Places findings in one file; `tree` is `None` where the file holds nothing."""

    def __init__(self, shown: str, tree: Node | None, *, item_word: str = "#") -> None:
        self.shown = printable(shown)
        self.tree = tree
        self.item_word = item_word

    def problem(self, finding: Finding, *, line: int | None = None) -> Problem:
        """The finding as a problem; `line` when it is known better than from the path."""
        message = finding.message
        node = self.tree.at(finding.path) if self.tree is not None else None
        unquoted = node.raw if node is not None and not node.style and not isinstance(node.value, str) else ""
        if unquoted and message.startswith("must be text"):
            message += f'. YAML takes {unquoted} for something else: write "{unquoted}" in quotes'
        if line is None and self.tree is not None:
            line = self.tree.line_of(finding.path)
        return Problem(self.shown, printable(message), key=self.key(finding.path), line=line)

    def problems(self, findings: Iterable[Finding]) -> list[Problem]:
        return [self.problem(finding) for finding in findings]

    def key(self, path: tuple[str | int, ...]) -> str:
        """The path in words: tasks by their name, sources by their path, other list items by number."""
        words = []
        for depth, step in enumerate(path):
            if isinstance(step, str):
                words.append(printable(shorten(step, 60)))
                continue
            item = self.tree.at(path[: depth + 1]) if self.tree is not None else None
            words.append(_name_of(item, path[:depth]) or f"{'#' if depth else self.item_word}{step + 1}")
        return ARROW.join(words)


def by_line(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each problem once; file by file in the order they came up, and in the order of each file's lines."""
    unique = list(dict.fromkeys(problems))
    files = list(dict.fromkeys(problem.file for problem in unique))
    return tuple(sorted(unique, key=lambda problem: (files.index(problem.file), problem.line or 0)))


def _name_of(item: Node | None, above: tuple[str | int, ...]) -> str | None:
    if item is None:
        return None
    named = item.child("name") if above == ("tasks",) else item if above == ("skills",) else None
    if named is None or named.kind != "scalar" or not named.raw.strip():
        return None
    return printable(shorten(named.raw, 60))
