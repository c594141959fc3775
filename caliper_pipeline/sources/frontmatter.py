"""The head of a `SKILL.md`: the name that is the skill's identity, and what may keep agents from using it.

Agents differ in how strictly they read it. Here the name is found wherever some agent would find it, and everything
that a stricter one stumbles over is a warning: a skill that an agent does not load is measured as one that never fires.
"""

import re
from dataclasses import dataclass

from caliper_pipeline.domain.errors import SpecError
from caliper_pipeline.sources.text_file import printable
from caliper_pipeline.sources.yaml_tree import Node, read_tree

LONGEST_DESCRIPTION = 1024
LONGEST_NAME = 128
_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_FENCE = re.compile(r"---[ \t]*\Z")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Frontmatter:
    name: str
    description: str | None
    warnings: tuple[str, ...] = ()


class FrontmatterFault(Exception):
    """Why the skill has no usable name, and in which line."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def read_frontmatter(text: str, shown: str) -> Frontmatter:
    """The frontmatter of a skill's text (no byte order mark). Raises `FrontmatterFault`."""
    block = _block(text)
    warnings: list[str] = []
    try:
        tree = read_tree(block, shown, first_line=2)
    except SpecError as error:
        problem = error.problems[0]
        reason = problem.message.removeprefix("is not valid YAML: ")
        warnings.append(
            f"its frontmatter is not valid YAML (line {problem.line}: {reason}); a strict agent will not load the skill"
        )
        tree = None
        name, description = _line_value(block, "name"), _line_value(block, "description")
    else:
        if tree is None or tree.kind != "map":
            raise FrontmatterFault("its frontmatter holds no `name:`, and the name is the skill's identity", 1)
        name, description = _text(tree, "name"), _text(tree, "description")
    _check_name(name, tree, block)
    assert name is not None
    warnings += _remarks(tree, description)
    return Frontmatter(name, description or None, tuple(warnings))


def _block(text: str) -> str:
    """The lines between the fences."""
    lines = _LINE_END.split(text)
    if not _FENCE.match(lines[0]):
        if any(_FENCE.match(line) for line in lines[:5]) and not "".join(lines[:1]).strip():
            raise FrontmatterFault("blank lines come before its frontmatter: the first line must be ---", 1)
        raise FrontmatterFault("has no frontmatter: the first line must be ---, and `name:` must follow", 1)
    for number, line in enumerate(lines[1:], 1):
        if _FENCE.match(line):
            return "\n".join(lines[1:number]) + "\n"
    raise FrontmatterFault("its frontmatter never ends: a line --- must close it", 1)


def _text(tree: Node, key: str) -> str | None:
    node = tree.child(key)
    return node.value.strip() if node is not None and isinstance(node.value, str) else None


def _line_value(block: str, key: str) -> str | None:
    """What stands after `key:` on its own line: no quotes, no trailing comment. `None`: there is no such line."""
    found = re.findall(rf"(?m)^{key}[ \t]*:[ \t]*(.*)$", block)
    if key == "name" and len(set(found)) > 1:
        raise FrontmatterFault("its frontmatter holds `name:` more than once, and the name is the skill's identity", 1)
    if not found:
        return None
    value = found[0].strip()
    if value[:1] in ("'", '"') and (end := value.find(value[0], 1)) > 0:
        return str(value[1:end]).strip()
    return re.sub(r"(\A|\s+)#.*\Z", "", value).strip()


def _check_name(name: str | None, tree: Node | None, block: str) -> None:
    node = tree.child("name") if tree is not None else None
    line = tree.line_of(("name",)) + 1 if tree is not None and node is not None else None
    if not name:
        if node is not None and node.kind == "scalar" and node.raw.strip() and not isinstance(node.value, str):
            raise FrontmatterFault(f'its `name:` is not text: write "{printable(node.raw[:40])}" in quotes', line)
        raise FrontmatterFault("its frontmatter holds no `name:`, and the name is the skill's identity", line or 1)
    if name in (".", "..") or not _NAME.match(name):
        raise FrontmatterFault(
            f"its name {name[:80]!a} cannot name a folder: letters, digits, `.`, `_` and `-` only", line
        )
    if len(name) > LONGEST_NAME:
        raise FrontmatterFault(f"its name has {len(name)} characters; at most {LONGEST_NAME} are accepted", line)


def _remarks(tree: Node | None, description: str | None) -> list[str]:
    remarks = []
    node = tree.child("description") if tree is not None else None
    if not description:
        wrong = node is not None and (node.kind != "scalar" or not isinstance(node.value, str | None))
        fault = "its description is not text" if wrong else "it has no description"
        remarks.append(f"{fault}: agents choose a skill by its description, so this one will hardly fire")
    elif len(description) > LONGEST_DESCRIPTION:
        remarks.append(
            f"its description is longer than {LONGEST_DESCRIPTION} characters ({len(description):,}); "
            "some agents refuse to load such a skill"
        )
    hidden = tree.child("disable-model-invocation") if tree is not None else None
    if hidden is not None and hidden.value is True:
        remarks.append("`disable-model-invocation: true` keeps agents from choosing it by themselves")
    return remarks
