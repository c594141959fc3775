"""Which files a shell command puts before the one who runs it, as far as its words tell.

A command is split the way a shell would, roughly: quotes, pipes, lists, loops, assignments, here-documents, nested
shells, `cd`. It is never run. A file counts when a command that prints files has it as an argument and the print can
be seen. What is written, listed, tested, copied or merely mentioned does not count. Where a file is read whose name
the words do not hold (a variable from elsewhere, `find -exec`, an interpreter), the answer says `uncertain`, and what
the command printed has to tell.
"""

import re
from dataclasses import dataclass

from caliper_pipeline.domain.shell_words import SimpleCommand, split


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READERS = _words(
    """
    cat head tail sed awk gawk mawk less more bat batcat nl tac grep egrep fgrep rg ag ack cut sort uniq fold fmt
    strings xxd hexdump od column pr rev glow mdcat view type get-content gc
    """
)
_SCRIPT_FIRST = _words("sed awk gawk mawk grep egrep fgrep rg ag ack")
"""Their first word is a script or a pattern, not a file."""
_SILENT = _words(
    """
    ls dir stat test [ [[ mkdir rmdir touch cp mv rm ln chmod chown echo printf cd pushd popd du wc file basename
    dirname realpath readlink tee rsync install tar zip unzip gzip which export set unset return exit true false
    sleep md5sum sha1sum sha256sum shasum cksum cmp apply_patch pwd : local declare read trap wait kill tree
    """
)
"""They print no file's text."""
_SEARCHERS = _words("grep egrep fgrep rg ag ack")
_NAMES_ONLY = re.compile(
    r"-\w*[qclL]\w*|--(?:files(?:-with-matches|-without-match(?:es)?)?|count(?:-matches)?|quiet|silent|type-list)"
)
"""Options of searchers that leave the matching text out."""
_CHOOSING = ("-g", "--glob", "--iglob", "-t", "--type", "--type-not", "--include", "--exclude")
"""Options of searchers whose value only says which files are looked at."""
_GIT_READERS = _words("show diff log cat-file grep blame")
_WRAPPERS = _words("sudo env command time nice nohup exec builtin timeout stdbuf")
_SHELLS = _words("sh bash zsh dash ksh")
_KEYWORDS = _words("if then else elif fi do done while until case esac ! { } in time")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_LONGEST = 100_000
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class ShellReads:
    paths: tuple[str, ...] = ()
    """Arguments as they were written, after the command's own `cd`s and variables; wildcards are kept."""
    uncertain: bool = False


def shell_reads(command: str) -> ShellReads:
    """What the command reads and shows."""
    state = _State()
    state.run(command[:_LONGEST], 0)
    return ShellReads(tuple(dict.fromkeys(state.paths)), state.uncertain)


class _State:
    def __init__(self) -> None:
        self.paths: list[str] = []
        self.uncertain = False
        self._folder = ""
        self._variables: dict[str, list[str]] = {}

    def run(self, command: str, depth: int) -> None:
        if depth > _DEEPEST:
            self.uncertain = True
            return
        for pipeline in split(command):
            self._pipeline(pipeline, depth)

    def _pipeline(self, commands: list[SimpleCommand], depth: int) -> None:
        last = _name_and_words(commands[-1].words)
        seen = not commands[-1].hidden and not (last and last[0] in _SILENT and last[0] != "tee")
        if last and _names_only(*last):
            seen = False
        for simple in commands:
            self._simple(simple, depth, seen=seen)

    def _simple(self, simple: SimpleCommand, depth: int, *, seen: bool) -> None:
        words = list(simple.words)
        while words and words[0] in _KEYWORDS:
            words.pop(0)
        if words[:1] == ["for"] and len(words) > 2 and words[2] == "in":
            self._variables[words[1]] = [value for word in words[3:] for value in self._expand(word)]
            return
        captured = bool(words) and all(_ASSIGNMENT.match(word) for word in words)
        while words and (assigned := _ASSIGNMENT.match(words[0])):
            self._variables[assigned[1]] = self._expand(assigned[2])
            words.pop(0)
        if not captured:
            for command in simple.nested:
                self.run(command, depth + 1)
        found = _name_and_words(words)
        if found is None:
            self.uncertain |= seen and bool(simple.inputs)  # a loop that is fed with a file
            return
        name, rest = found
        if name == "cd" and rest:
            self._go(rest[-1])
        elif name in _SHELLS:
            self._nested_shell(rest, simple, depth)
        elif name == "xargs":
            self.uncertain |= seen and bool(_READERS & set(rest))
        elif name == "git":
            self.uncertain |= seen and bool(_GIT_READERS & set(rest))
        elif name == "find":
            self.uncertain |= seen and any(word.startswith("-exec") for word in rest)
        elif name in _READERS:
            if seen and not (name == "sed" and _has_flag(rest, "i")) and not _names_only(name, rest):
                searched = _searched(name, rest)
                self.uncertain |= len(searched) < len(rest)
                self._read(_arguments(name, searched) + simple.inputs)
        elif name not in _SILENT:
            self.uncertain |= seen

    def _nested_shell(self, rest: list[str], simple: SimpleCommand, depth: int) -> None:
        for index, word in enumerate(rest):
            if word.startswith("-") and not word.startswith("--") and "c" in word and index + 1 < len(rest):
                self.run(rest[index + 1], depth + 1)
                return
        if simple.text is not None:
            self.run(simple.text, depth + 1)
        else:
            self.uncertain = True

    def _read(self, words: list[str]) -> None:
        for word in words:
            for path in self._expand(word):
                full = self._at(path)
                if any(mark in part for part in full.replace("\\", "/").split("/")[-2:] for mark in ("$", "`", "{}")):
                    self.uncertain = True
                else:
                    self.paths.append(full)
        if any("SKILL.md" in word and "/" not in word.replace("\\", "/") for word in words) and not self._folder:
            self.uncertain = True

    def _go(self, folder: str) -> None:
        values = self._expand(folder)
        self._folder = self._at(values[0]) if len(values) == 1 else folder

    def _at(self, path: str) -> str:
        if not self._folder or path.startswith(("/", "~", "$", "\\")) or re.match(r"[A-Za-z]:[\\/]", path):
            return path
        return f"{self._folder.rstrip('/')}/{path.removeprefix('./')}"

    def _expand(self, word: str) -> list[str]:
        """The word with known variables put in; several where a loop runs over several."""
        values = [word]
        for _ in range(8):
            again: list[str] = []
            for value in values:
                known = next((m for m in _VARIABLE.finditer(value) if (m[1] or m[2]) in self._variables), None)
                if known is None:
                    again.append(value)
                else:
                    options = self._variables[known[1] or known[2]]
                    again += [value[: known.start()] + option + value[known.end() :] for option in options]
            if again == values:
                break
            values = again[:200]
        return values


def _name_and_words(words: list[str]) -> tuple[str, list[str]] | None:
    """The command's name without its folder, and its words; what only wraps another command is looked through."""
    rest = list(words)
    while rest:
        name = rest.pop(0).replace("\\", "/").rsplit("/", 1)[-1].lower()
        if name not in _WRAPPERS:
            return name, rest
        while rest and (rest[0].startswith("-") or _ASSIGNMENT.match(rest[0]) or re.match(r"\d+[smh]?\Z", rest[0])):
            rest.pop(0)
    return None


def _arguments(name: str, words: list[str]) -> list[str]:
    plain = [word for word in words if not word.startswith("-") or word == "-"]
    if name in _SCRIPT_FIRST and not any(re.match(r"-\w*[ef]\Z|--(expression|file|regexp)", word) for word in words):
        return plain[1:]
    return plain


def _names_only(name: str, words: list[str]) -> bool:
    return name in _SEARCHERS and any(_NAMES_ONLY.fullmatch(word) for word in words)


def _searched(name: str, words: list[str]) -> list[str]:
    """The words without those that choose among the files below a folder."""
    if name not in _SEARCHERS:
        return words
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _CHOOSING:
            next(rest, None)
        elif not word.startswith(tuple(f"{option}=" for option in _CHOOSING if option.startswith("--"))):
            kept.append(word)
    return kept


def _has_flag(words: list[str], letters: str) -> bool:
    return any(re.match(rf"-\w*[{letters}]", word) and not word.startswith("--") for word in words)
