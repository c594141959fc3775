"""Which files a shell command puts before the one who runs it, as far as its words tell.

A command is split the way a shell would, roughly: quotes, pipes, lists, loops, assignments, here-documents, nested
shells, `cd`. It is never run. A file counts when a command that prints files has it as an argument and the print can
be seen. What is written, listed, tested, copied or merely mentioned does not count. Where a file is read whose name
the words do not hold (a variable from elsewhere, `find -exec`, an interpreter), the answer says `uncertain`, and what
the command printed has to tell.
"""

import re
from dataclasses import dataclass, field


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
_GIT_READERS = _words("show diff log cat-file grep blame")
_WRAPPERS = _words("sudo env command time nice nohup exec builtin timeout stdbuf")
_SHELLS = _words("sh bash zsh dash ksh")
_KEYWORDS = _words("if then else elif fi do done while until case esac ! { } in time")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_LONGEST = 100_000
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class ShellReads:
    paths: tuple[str, ...] = ()
    """Arguments as they were written, after the command's own `cd`s and variables; wildcards are kept."""
    uncertain: bool = False


@dataclass(slots=True)
class _Simple:
    """One command without pipes: its words, and where its input and output go."""

    words: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    hidden: bool = False
    """Its output goes to a file."""
    text: str | None = None
    """The here-document it reads."""
    nested: list[str] = field(default_factory=list)
    """Commands whose output stands in its words."""


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
        for pipeline in _split(command):
            self._pipeline(pipeline, depth)

    def _pipeline(self, commands: list[_Simple], depth: int) -> None:
        last = _name_and_words(commands[-1].words)
        seen = not commands[-1].hidden and not (last and last[0] in _SILENT and last[0] != "tee")
        if last and last[0] in ("grep", "egrep", "fgrep", "rg") and _has_flag(last[1], "qclL"):
            seen = False
        for simple in commands:
            self._simple(simple, depth, seen=seen)

    def _simple(self, simple: _Simple, depth: int, *, seen: bool) -> None:
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
            if seen and not (name == "sed" and _has_flag(rest, "i")):
                self._read(_arguments(name, rest) + simple.inputs)
        elif name not in _SILENT:
            self.uncertain |= seen

    def _nested_shell(self, rest: list[str], simple: _Simple, depth: int) -> None:
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


def _has_flag(words: list[str], letters: str) -> bool:
    return any(re.match(rf"-\w*[{letters}]", word) and not word.startswith("--") for word in words)


def _split(command: str) -> list[list[_Simple]]:
    """The command's pipelines, each a list of simple commands."""
    return _Splitter(command).pipelines


class _Splitter:
    """One pass over the characters."""

    def __init__(self, text: str) -> None:
        self._text, self._heredocs = _without_heredocs(text.replace("\\\n", " "))
        self._at = 0
        self.pipelines: list[list[_Simple]] = []
        self._simple = _Simple()
        self._pipeline: list[_Simple] = []
        self._word: list[str] = []
        self._in_word = False
        self._redirect: str | None = None
        self._go()

    def _go(self) -> None:
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in "'\"":
                self._quoted(char)
            elif char == "\\":
                self._escaped()
            elif char == "`" or text.startswith("$(", self._at):
                self._substitution()
            elif char == "#" and not self._in_word:
                self._at = _until(text, "\n", self._at)
            elif char in " \t\r":
                self._end_word()
                self._at += 1
            elif char in ";&|\n()":
                self._operator(char)
            elif char in "<>":
                self._redirection(char)
            else:
                self._add(char)
        self._end_pipeline()

    def _add(self, text: str, step: int = 1) -> None:
        self._word.append(text)
        self._in_word = True
        self._at += step

    def _quoted(self, quote: str) -> None:
        """A quoted part: substitutions inside double quotes are commands too."""
        self._at += 1
        self._in_word = True
        text = self._text
        while self._at < len(text) and text[self._at] != quote:
            if quote == '"' and text[self._at] == "\\" and text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`"):
                self._add(text[self._at + 1], 2)
            elif quote == '"' and (text[self._at] == "`" or text.startswith("$(", self._at)):
                self._substitution()
            else:
                self._add(text[self._at])
        self._at += 1

    def _escaped(self) -> None:
        """A backslash hides what a shell would act on; before a plain character it may part folders."""
        following = self._text[self._at + 1 : self._at + 2]
        if following and following in " \t'\"\\$`;&|()<>*?[]#~!{}\n":
            self._add(following, 2)
        else:
            self._add("\\")

    def _substitution(self) -> None:
        text, start = self._text, self._at
        if text[start] == "`":
            end = _until(text, "`", start + 1)
            inner = text[start + 1 : end]
        else:
            end, level = start + 2, 1
            while end < len(text) and level:
                level += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            end -= 1
            inner = text[start + 2 : end]
        self._simple.nested.append(inner)
        self._add("$()", 0)
        self._at = end + 1

    def _operator(self, char: str) -> None:
        self._end_word()
        text = self._text
        if char == "|" and not text.startswith("||", self._at):
            self._end_simple()
            self._at += 2 if text.startswith("|&", self._at) else 1
            return
        if char == "&" and text.startswith("&>", self._at):
            self._at += 1
            return
        self._end_pipeline()
        self._at += 2 if text[self._at : self._at + 2] in ("&&", "||", ";;") else 1

    def _redirection(self, char: str) -> None:
        """`>` hides the output, `<` names an input; the number before it is no word."""
        number = "".join(self._word) if self._in_word and "".join(self._word).isdigit() else None
        if number is not None:
            self._word, self._in_word = [], False
        self._end_word()
        text = self._text
        if text.startswith("<<<", self._at):
            self._at += 3
            self._redirect = "ignore"
        elif text.startswith("<<", self._at):
            self._at += 2
            self._redirect = "heredoc"
        else:
            self._at += 2 if text.startswith(">>", self._at) else 1
            if text.startswith("&", self._at):
                self._at += 1
                self._redirect = "ignore"
            elif char == "<":
                self._redirect = "input"
            else:
                self._redirect = "ignore" if number == "2" else "output"

    def _end_word(self) -> None:
        if not self._in_word:
            return
        word, self._word, self._in_word = "".join(self._word), [], False
        kind, self._redirect = self._redirect, None
        if kind is None:
            self._simple.words.append(word)
        elif kind == "output":
            self._simple.hidden |= word not in ("/dev/stdout", "/dev/stderr", "/dev/tty")
        elif kind == "input":
            self._simple.inputs.append(word)
        elif kind == "heredoc":
            self._simple.text = self._heredocs.pop(0) if self._heredocs else None

    def _end_simple(self) -> None:
        self._end_word()
        if self._simple.words or self._simple.inputs or self._simple.nested:
            self._pipeline.append(self._simple)
        self._simple = _Simple()

    def _end_pipeline(self) -> None:
        self._end_simple()
        if self._pipeline:
            self.pipelines.append(self._pipeline)
        self._pipeline = []


def _until(text: str, mark: str, start: int) -> int:
    end = text.find(mark, start)
    return len(text) if end < 0 else end


def _without_heredocs(text: str) -> tuple[str, list[str]]:
    """The command without the bodies of its here-documents, and the bodies in order."""
    if "<<" not in text:
        return text, []
    kept: list[str] = []
    bodies: list[str] = []
    waiting: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        if waiting:
            mark, body = waiting[0]
            if line.strip("\t") == mark or line.strip() == mark:
                bodies.append("\n".join(body))
                waiting.pop(0)
            else:
                body.append(line)
            continue
        kept.append(line)
        waiting = [(found[2], []) for found in _HEREDOC.finditer(line.replace("<<<", "   "))]
    bodies += ["\n".join(body) for _, body in waiting]
    return "\n".join(kept), bodies
