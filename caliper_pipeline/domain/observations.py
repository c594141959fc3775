"""What a transcript shows: which skills were brought into the agent's context, and which forbidden paths were named.

**Activation.** A skill is activated by a call of the backend's own skill tool that did not fail, or by reading its
`SKILL.md`. Reading means that its text came before the agent: naming, listing, writing, copying or searching for the
file is none. Where a command says which file it reads, the command decides; where it does not (variables, globs,
`find -exec`, interpreters), what the command printed decides: the frontmatter with the skill's name and some of the
text below it. A read that failed shows nothing. Not seen: a skill whose body came in with the prompt (`/name`), one of
which only other files were read, and a reading whose output the stream leaves out and whose command does not tell.

**Forbidden paths.** Only what the agent put into its tools is looked at, never what tools answered or it said. A string
counts as a path when it stands under a key that names paths or commands, or holds `/` or `.`. Writing and reading are
not told apart, so a command that merely mentions a pattern is a violation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from caliper_pipeline.domain.automaton import Matcher
from caliper_pipeline.domain.shell_reads import shell_reads
from caliper_pipeline.domain.transcript import Turn

SKILL_TOOLS: Mapping[str, frozenset[str]] = {
    "claude-code": frozenset({"Skill"}),
    "scripted": frozenset({"Skill"}),
    "hermes": frozenset({"skill_view"}),
    "claude-api": frozenset({"skill"}),
    "openai-api": frozenset({"skill"}),
}
"""The tools that load a skill, by backend. Others load none: their agents read the file."""

PATH_KEYS = frozenset({"path", "paths", "file", "file_path", "filename", "command", "cmd"})
_READ_KEYS = frozenset({"path", "paths", "file", "files", "file_path", "filepath", "filename", "absolute_path", "uri"})
_WRITE_KEYS = frozenset(
    {"content", "contents", "new_string", "new_str", "old_string", "old_str", "edits", "patch", "diff", "file_text"}
    | {"new_source", "insert_text", "newText", "oldText", "text"}
)
_LISTING_TOOL = re.compile(
    r"(?:.*[_\W])?(?:glob|ls|list\w*|find\w*|tree|search_files|write\w*|edit|change)", re.IGNORECASE
)
_DEPTH = 5
EVIDENCE_CHARS = 2_000
"""A longer offending string is kept around the place that offends."""

_STORE = re.compile(r"(?<![\w.-])\.caliper[/\\]+(?:results|runs)[/\\]")
"""Where results and runs are kept, under whatever root: their shape, so that no root has to be known."""


def observe_activation(turns: Sequence[Turn], installed: Sequence[str], *, backend: str) -> tuple[str, ...]:
    """The installed skills that were activated, sorted."""
    names = frozenset(installed)
    if not names:
        return ()
    fired: set[str] = set()
    for turn, result in _calls(turns):
        given = turn.tool_input or {}
        if turn.tool_name in SKILL_TOOLS.get(backend, frozenset()):
            fired |= _loaded(given, result, names)
        elif (command := _command(given)) is not None:
            fired |= _read_by_command(command, result, names)
        else:
            fired |= _read_by_tool(turn.tool_name or "", given, result, names)
    return tuple(sorted(fired))


def observe_builtin(
    turns: Sequence[Turn], listed: Sequence[str] | None, installed: Sequence[str], *, backend: str
) -> tuple[str, ...] | None:
    """The activated skills of those that the CLI lists by itself. `None`: it lists none."""
    if listed is None:
        return None
    return observe_activation(turns, [name for name in listed if name not in installed], backend=backend)


def find_forbidden(turns: Sequence[Turn], patterns: Sequence[str], spec_path: str) -> tuple[str, ...]:
    """The strings in tool inputs that name a forbidden path, each once, in the order they came.

    Raises `re.error` when a pattern is none; specs are checked for that when they are loaded.
    """
    forbidden = [_pattern(text) for text in patterns]
    found: dict[str, None] = {}
    looked: set[str] = set()
    for turn in turns:
        if turn.role != "tool_use" or not turn.tool_input:
            continue
        for text in _path_strings(turn.tool_input):
            if text in looked:
                continue
            looked.add(text)
            place = _violation(text, forbidden, spec_path)
            if place is not None:
                found[_around(text, place)] = None
    return tuple(found)


def _violation(text: str, forbidden: Iterable[Matcher], spec_path: str) -> int | None:
    """Where in the text something forbidden stands (0 where that is not known), or `None`."""
    if spec_path and spec_path in text:
        return text.index(spec_path)
    if store := _STORE.search(text):
        return store.start()
    return 0 if any(pattern.found_in(text) for pattern in forbidden) else None


def _around(text: str, place: int) -> str:
    if len(text) <= EVIDENCE_CHARS:
        return text
    start = max(0, min(place - EVIDENCE_CHARS // 2, len(text) - EVIDENCE_CHARS))
    return f"{'…' if start else ''}{text[start : start + EVIDENCE_CHARS]}…"


@lru_cache(maxsize=256)
def _pattern(text: str) -> Matcher:
    return Matcher(text)


def _path_strings(value: object, key: str = "", depth: int = 0) -> Iterator[str]:
    """The strings of a tool input that may be paths, at most five levels deep."""
    if isinstance(value, str):
        if key.lower() in PATH_KEYS or "/" in value or "." in value:
            yield value
    elif depth < _DEPTH:
        if isinstance(value, Mapping):
            for name, item in value.items():
                yield from _path_strings(item, str(name), depth + 1)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from _path_strings(item, key, depth + 1)


def _calls(turns: Sequence[Turn]) -> Iterator[tuple[Turn, Turn | None]]:
    """Each tool call with its result, by call id, or where there is none by order. `None`: no result came."""
    by_id = {turn.call_id: turn for turn in turns if turn.role == "tool_result" and turn.call_id is not None}
    for index, turn in enumerate(turns):
        if turn.role != "tool_use":
            continue
        if turn.call_id is not None:
            yield turn, by_id.get(turn.call_id)
        else:
            following = turns[index + 1] if index + 1 < len(turns) else None
            yield turn, following if following is not None and following.role == "tool_result" else None


def _failed(result: Turn | None) -> bool:
    return result is not None and (result.is_error is True or result.content.startswith("<tool_use_error>"))


def _loaded(given: Mapping[str, Any], result: Turn | None, names: frozenset[str]) -> set[str]:
    """The skill that a call of the skill tool loaded. `/name` is how one types it; `plugin:name` is another skill.

    The name's key differs between releases: the first Claude Code that had skills called it `command`.
    """
    value = next((given[key] for key in ("skill", "name", "skill_name", "command") if key in given), None)
    if not isinstance(value, str) or _failed(result):
        return set()
    return {value.strip().removeprefix("/")} & names if value not in names else {value}


def _command(given: Mapping[str, Any]) -> str | None:
    """The shell command of a tool input; an editor's `command` beside a path is none."""
    value = given.get("command", given.get("cmd"))
    if any(key in given for key in _READ_KEYS):
        return None
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return value[-1] if len(value) > 2 and re.fullmatch(r"-\w*c", value[-2]) else " ".join(value)
    return value if isinstance(value, str) else None


def _read_by_command(command: str, result: Turn | None, names: frozenset[str]) -> set[str]:
    reads = shell_reads(command)
    plain: set[str] = set()
    globbed: set[str] = set()
    for path in reads.paths:
        name, wild = _skill_of(path)
        if name is not None:
            (globbed if wild else plain).update(
                one for one in names if one == name or (wild and fnmatchcase(one, name))
            )
    if result is None:
        return plain | globbed
    shown = _shown(result.content)
    if _failed(result):
        # A later part may have failed after the text was printed.
        return {name for name in plain | globbed if name in shown} | _whole(shown, names, uncertain=reads.uncertain)
    if len(plain | globbed) > 1:
        # The first lines of many files are a survey, not a reading.
        plain = {name for name in plain if shown.get(name, True)}
    if any(name in shown for name in globbed):
        globbed = {name for name in globbed if shown.get(name)}
    return plain | globbed | _whole(shown, names, uncertain=reads.uncertain)


def _whole(shown: Mapping[str, bool], names: frozenset[str], *, uncertain: bool) -> set[str]:
    return {name for name, body in shown.items() if uncertain and body and name in names}


def _read_by_tool(tool: str, given: Mapping[str, Any], result: Turn | None, names: frozenset[str]) -> set[str]:
    if _failed(result) or _LISTING_TOOL.fullmatch(tool) or _WRITE_KEYS & given.keys():
        return set()
    if "pattern" in given and given.get("output_mode") != "content":
        return set()
    if str(given.get("command", "view")) not in ("view", "read", "open", "cat"):
        return set()
    found = (_skill_of(path) for path in _named_paths(given, 0))
    return {name for name, wild in found if name in names and not wild and name is not None}


def _named_paths(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    """The strings under keys that name files, at most five levels deep."""
    for key, item in value.items():
        items = item if isinstance(item, list | tuple) else (item,)
        for one in items:
            if isinstance(one, str):
                if str(key).lower() in _READ_KEYS:
                    yield one
            elif isinstance(one, Mapping) and depth < _DEPTH:
                yield from _named_paths(one, depth + 1)


def _skill_of(path: str) -> tuple[str | None, bool]:
    """The folder that holds the `SKILL.md` that a path names, and whether the path has wildcards."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    if len(parts) < 2:
        return None, False
    folder, file = parts[-2], parts[-1]
    wild = any(mark in folder + file for mark in "*?[{")
    if not wild:
        return (folder, False) if file == "SKILL.md" else (None, False)
    return (folder.replace("**", "*"), True) if fnmatchcase("SKILL.md", file) else (None, False)


_LINE_NUMBER = re.compile(r"[ \t]*\d+[\t→|:] ?")
_NAME_LINE = re.compile(r"name:[ \t]*[\"']?([^\"'#]+?)[\"']?[ \t]*\Z")
_HEADER_LINES = 60
_NEXT_FILE = "==> "
"""How `head` and `tail` announce each of several files."""


def _shown(output: str) -> dict[str, bool]:
    """The skills whose frontmatter stands in the output; true where some of the text below it does too."""
    if "name:" not in output:
        return {}
    lines = [_LINE_NUMBER.sub("", line, count=1).lstrip("\ufeff").rstrip() for line in output.splitlines()]
    found: dict[str, bool] = {}
    index = 0
    while index < len(lines):
        if lines[index] != "---":
            index += 1
            continue
        end, stop = None, min(len(lines), index + _HEADER_LINES)
        for i in range(index + 1, stop):
            if lines[i] == "---" or lines[i].startswith(_NEXT_FILE):
                end, stop = (i if lines[i] == "---" else None), i
                break
        header = lines[index + 1 : stop]
        name = next((match[1] for line in header if (match := _NAME_LINE.match(line))), None)
        if name is None:
            index += 1
            continue
        body = [] if end is None else [line for line in lines[end + 1 : end + 8] if line]
        # The beginnings of several files: what closes this header may be what opens the next one.
        cut = bool(body) and (body[0] == "---" or body[0].startswith(_NEXT_FILE) or _NAME_LINE.match(body[0]))
        found[name] = found.get(name, False) or (bool(body) and not cut)
        index = stop if end is None or cut else end + 1
    return found
