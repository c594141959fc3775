"""A shell command split the way a shell would, roughly: quotes, pipes, lists, redirections, here-documents.

Nothing is run and nothing is refused: text that is no proper command is split as far as it makes sense.
"""

import re
from dataclasses import dataclass, field

_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")


@dataclass(slots=True)
class SimpleCommand:
    """One command without pipes: its words, and where its input and output go."""

    words: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    hidden: bool = False
    """Its output goes to a file."""
    text: str | None = None
    """The here-document it reads."""
    nested: list[str] = field(default_factory=list)
    """Commands whose output stands in its words."""


def split(command: str) -> list[list[SimpleCommand]]:
    """The command's pipelines, each a list of simple commands."""
    return _Splitter(command).pipelines


class _Splitter:
    """One pass over the characters."""

    def __init__(self, text: str) -> None:
        self._text, self._heredocs = _without_heredocs(text.replace("\\\n", " "))
        self._at = 0
        self.pipelines: list[list[SimpleCommand]] = []
        self._simple = SimpleCommand()
        self._pipeline: list[SimpleCommand] = []
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
        self._simple = SimpleCommand()

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
