"""What people write by hand: models that name everything wrong with their input in one go, in the author's words.

pydantic alone stops at the first level that fails, speaks of its own types, and knows no "did you mean". `Authored`
puts these right once for the spec, the planted history and the project configuration: unknown keys, missing keys,
wrong types and the rules that span several keys are collected together, each with its place as a path of keys and
list positions. Where that place is in a file, and what the file is called, only `sources` knows.
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

_OURS = "finding"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where: `("tasks", 0, "assert")`."""

    path: tuple[str | int, ...]
    message: str


class Authored(BaseModel):
    """A mapping that a person wrote. Frozen; unknown keys are refused; every problem is found at once."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    empty_is_absent: ClassVar[frozenset[str]] = frozenset()
    """Keys that may stand there without a value, as if they were not there."""
    hidden_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that are accepted but never suggested."""

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """The keys that authors may use."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def advice(cls, key: str, value: Any) -> str | None:
        """What to say about an unknown key besides that it is unknown."""
        return None

    @classmethod
    def rules(cls, data: Mapping[str, Any], meant: frozenset[str]) -> Iterator[Finding]:
        """Rules over several keys, on the raw data, so that they speak also when single keys are wrong.

        `meant` are the keys that a misspelt or empty one stands for: their absence has been told already.
        """
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _everything_at_once(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            raise _refusal(cls.__name__, [Finding((), f"must be a mapping of keys to values, not {kind_of(data)}")])
        known = cls.known_keys()
        offered = [name for name in known if name not in cls.hidden_keys]
        findings: list[Finding] = []
        meant: set[str] = set()
        kept: dict[str, Any] = {}
        for key, value in data.items():
            if key not in known:
                advice = cls.advice(key, value)
                near = closest(key, offered) if advice is None else None
                if advice is None and near is not None:
                    meant.add(near)
                    advice = f"there is no such key. Did you mean `{near}`?"
                findings.append(Finding((key,), advice or f"there is no such key. Known here: {', '.join(offered)}."))
            elif value is not None:
                kept[key] = value
            elif key not in cls.empty_is_absent:
                meant.add(key)
                findings.append(Finding((key,), "is there without a value: give it one, or delete the line"))
        findings += cls.rules(data, frozenset(meant))
        try:
            model = handler(kept)
        except ValidationError as error:
            findings += [
                _in_words(detail)
                for detail in error.errors(include_url=False, include_context=True)
                if not (detail["type"] == "missing" and detail["loc"][-1] in meant)
            ]
        if findings:
            raise _refusal(cls.__name__, findings)
        return model


def findings_of(error: ValidationError) -> tuple[Finding, ...]:
    """What an `Authored` model found wrong, in order."""
    return tuple(_in_words(detail) for detail in error.errors(include_url=False, include_context=True))


def kind_of(value: Any) -> str:
    """What a value is, in the words of someone who writes YAML."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a yes/no value)"
    if isinstance(value, int | float):
        return f"a number ({value})"
    if isinstance(value, str):
        return f"text ({shorten(value, 40)!r})"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return type(value).__name__


def shorten(text: str, limit: int) -> str:
    """The text on one line, cut to so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that the word was probably meant to be."""
    from difflib import get_close_matches

    by_folded = {candidate.lower().replace("-", "_"): candidate for candidate in candidates}
    found = get_close_matches(word.lower().replace("-", "_"), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def visible(text: str) -> str:
    """The text as an eye can tell it apart: composed, runs of blanks as one, nothing that leaves no mark."""
    kept = "".join(
        " " if character.isspace() else character
        for character in unicodedata.normalize("NFC", text)
        if character.isspace() or not _leaves_no_mark(character)
    )
    return " ".join(kept.split())


def _leaves_no_mark(character: str) -> bool:
    # Cf: zero-width and direction marks; Cc: control characters; the rest are letters that draw nothing.
    return unicodedata.category(character) in ("Cf", "Cc") or character in "\u034f\u115f\u1160\u2800\u3164\uffa0"


def _sound(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which no command and no file name can carry")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds half of a surrogate pair, which is not a character")
    return text


def _not_blank(text: str) -> str:
    if not visible(text):
        raise ValueError("is blank")
    return text


Text = Annotated[str, AfterValidator(_sound)]
"""Text that can be written to files and handed to commands."""
SolidText = Annotated[str, AfterValidator(_sound), AfterValidator(_not_blank)]
"""Text with something to see in it."""


def _refusal(title: str, findings: Iterable[Finding]) -> ValidationError:
    return ValidationError.from_exception_data(
        title,
        [
            InitErrorDetails(
                type=PydanticCustomError(_OURS, "{text}", {"text": finding.message}), loc=finding.path, input=None
            )
            for finding in findings
        ],
    )


_WANTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "mapping_type": "a mapping of names to values",
}


def _in_words(detail: ErrorDetails) -> Finding:
    path = tuple(step for step in detail["loc"] if step != "[key]")
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == _OURS:
        return Finding(path, str(context["text"]))
    if kind == "missing":
        return Finding(path, "is missing")
    if kind in _WANTED:
        message = f"must be {_WANTED[kind]}, not {kind_of(value)}"
        if _WANTED[kind] == "a list" and isinstance(value, str):
            message += f"; a list of one is written [{shorten(value, 60)}]"
        return Finding(path, message)
    if kind == "literal_error":
        return Finding(path, f"must be {context['expected']}, not {kind_of(value)}")
    if kind == "value_error":
        return Finding(path, str(context["error"]))
    if kind in ("greater_than", "greater_than_equal", "less_than_equal"):
        bound = context.get("gt", context.get("ge", context.get("le")))
        words = {"greater_than": "more than", "greater_than_equal": "at least", "less_than_equal": "at most"}[kind]
        shown = value if not (isinstance(value, float) and math.isnan(value)) else "not a number"
        return Finding(path, f"must be {words} {bound}, not {shown}")
    return Finding(path, detail["msg"][:1].lower() + detail["msg"][1:])
