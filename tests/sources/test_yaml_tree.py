"""YAML from strangers, as plain data with lines."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from caliper_pipeline.domain.errors import Problem, SpecError
from caliper_pipeline.sources import yaml_tree
from caliper_pipeline.sources.yaml_tree import read_tree


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with both parsers: they must not differ in what they accept."""
    name: str = request.param
    monkeypatch.setattr(yaml_tree, "_Loader", yaml.CSafeLoader if name == "libyaml" else yaml.SafeLoader)
    return name


def data_of(text: str) -> Any:
    tree = read_tree(text, "f.yaml")
    return tree.data() if tree is not None else None


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        read_tree(text, "f.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", None),
        ("# nothing\n", None),
        ("---\n...\n", None),
        ("~", None),
        ("a: [x, {b: 'it''s'}]", {"a": ["x", {"b": "it's"}]}),
        ("---\na: b\n...\n", {"a": "b"}),
        ("%YAML 1.1\n---\na: b\n", {"a": "b"}),
        ("a: b\r\nc: |\r\n  d\r\n  e\r\n", {"a": "b", "c": "d\ne\n"}),
        ("a: b\rc: d\r", {"a": "b", "c": "d"}),
        ("a: &x {k: v}\nb: *x", {"a": {"k": "v"}, "b": {"k": "v"}}),
        ("a: &x {k: v}\nb: {<<: *x, k: w, z: y}", {"a": {"k": "v"}, "b": {"k": "w", "z": "y"}}),
        ("b:\n  <<: {k: v}\n  <<: {j: u}\n  i: t", {"b": {"i": "t", "k": "v", "j": "u"}}),
        ("b: {<<: [{k: first}, {k: second, j: u}]}", {"b": {"k": "first", "j": "u"}}),
        ('{"a": "\\u00e9\\n"}', {"a": "é\n"}),
        ("1: a\nyes: b\n'': c", {"1": "a", "yes": "b", "": "c"}),  # keys are always text
        ("a: !!str 5\nb: ! 6\nc: !!int 7", {"a": "5", "b": "6", "c": 7}),
    ],
)
def test_plain_data_is_read(text: str, data: Any) -> None:
    assert data_of(text) == data


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("TRUE", True),
        ("null", None),
        ("", None),
        ("12", 12),
        ("-1_000", -1000),
        ("0x1F", 31),
        ("010", 8),
        ("0o17", 15),
        ("0b11", 3),
        ("0x_", "0x_"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
        ("2024-01-01", "2024-01-01"),  # dates and times of day stay text: nothing here is one
        ("12:30", "12:30"),
        ("09", 9.0),
        ("1.2.3", "1.2.3"),
        ("+", "+"),
        (".", "."),
        ("9" * 5000, "9" * 5000),  # Python refuses to make a number of that many digits
        ("'5'", "5"),
        ('"no"', "no"),
    ],
)
def test_unquoted_words_stand_for_what_yaml_makes_of_them(raw: str, value: Any) -> None:
    found = data_of(f"a: {raw}")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "duplicate key `a`: it stands in line 1"),
        ("x:\n  - {b: 1, b: 2}", 2, "duplicate key `b`"),
        ('"a": 1\na: 2', 2, "duplicate key `a`"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: 1\n---\n", 2, "second document"),
        ("a:\n\tb: 1", 2, "tab"),
        ("t:\n  - n: x\n\tp: y\n", 3, "tab"),
        ("a: b: c", 1, "not valid YAML"),
        ("a: [1, 2", None, "not valid YAML"),
        ('a: "x', None, "not valid YAML"),
        ("a: 'x\n---\n'", None, "not valid YAML"),
        ("a: @x", 1, "not valid YAML"),
        ("a: !!python/object/apply:os.system [x]", 1, "tag !!python/object/apply:os.system"),
        ("a: !!binary aGk=", 1, "tag !!binary"),
        ("a: !mine x", 1, "tag !mine"),
        ("a: *b", 1, "*b"),
        ("a: &a [*a]", 1, "inside what it names"),
        ("? [a]\n: 1", 1, "a key must be text"),
        ("a: {<<: 5}", 1, "merges"),
        ("a: \x01", 1, "U+0001"),
        ("a: 1\nb: \x7f", 2, "U+007F"),
        ('a: "\\ud83c x"', 1, "half of a surrogate pair"),
        ('a: "\\udf0a\\ud83c"', 1, "half of a surrogate pair"),
    ],
)
def test_a_refusal_names_the_line(text: str, line: int | None, words: str, parser: str) -> None:
    if words == "*b" and parser == "python":
        words = "b"
    problems = problems_of(text)
    assert words in problems[0].message
    assert problems[0].file == "f.yaml"
    assert line is None or problems[0].line == line


def test_all_duplicates_and_tags_are_told_together() -> None:
    problems = problems_of("a: 1\na: 2\nb: !x {c: 1, c: 2}\n")
    assert [problem.line for problem in problems] == [2, 3, 3]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"w \ud83c\udf0a"', "w 🌊"),
        (r'"\ud83c\udf0a\uD83D\uDE00"', "🌊😀"),
        (r'"\\ud83c\\udf0a"', r"\ud83c\udf0a"),  # an escaped backslash, and plain letters
        (r'"\\\ud83c\udf0a"', "\\🌊"),
        (r"'\ud83c\udf0a'", r"\ud83c\udf0a"),
        (r"\ud83c\udf0a", r"\ud83c\udf0a"),
    ],
)
def test_escaped_surrogate_pairs_are_joined_where_they_are_escapes(text: str, value: str) -> None:
    assert data_of(f"a: {text}") == {"a": value}


def test_a_script_in_a_block_keeps_its_escapes() -> None:
    assert data_of('a: |\n  x = "\\ud83c\\udf0a"\nb: "\\ud83c\\udf0a"') == {"a": 'x = "\\ud83c\\udf0a"\n', "b": "🌊"}


def test_lines_point_at_keys_and_items() -> None:
    tree = read_tree("a: 1\ntasks:\n  - name: x\n    steps: [p,\n      q]\n  - name: y\n", "f")
    assert tree is not None
    assert tree.line_of(("tasks",)) == 2
    assert tree.line_of(("tasks", 0)) == 3
    assert tree.line_of(("tasks", 0, "steps", 1)) == 5
    assert tree.line_of(("tasks", 1, "prompt")) == 6  # what is missing is looked for where it should be


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bomb(20), "aliases repeat each other"),
        ("a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 1000 + "]", "aliases repeat each other"),
        ("[" * 50_000, "neste|nesting"),
        ("{a: " * 50_000, "neste|nesting"),
        ("- " * 2_000 + "x", "neste|nesting"),
        ("[" + "x," * 150_000 + "]", "too many values"),
    ],
)
def test_input_made_to_exhaust_is_refused_early(text: str, words: str, parser: str) -> None:
    if parser == "python" and len(text) > 200_000:
        pytest.skip("the slow parser is only a fallback; the limit is the same code")
    assert any(word in problems_of(text)[0].message for word in words.split("|"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_- é", min_size=1), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(VALUES.map(lambda value: {"k": value}))
def test_json_is_read_as_json(value: Any) -> None:
    """Both as a program that escapes everything writes it, and as one that escapes nothing."""
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        if yaml_tree._UNPRINTABLE.search(text):
            continue
        if not ascii_only and any(mark in text for mark in "\x85\u2028\u2029\ufeff"):
            continue  # line ends to YAML, plain characters to JSON
        assert data_of(text) == value


@settings(deadline=None)
@given(VALUES.map(lambda value: {"k": value}))
def test_yaml_is_read_back_as_it_was_written(value: Any) -> None:
    assert data_of(yaml.safe_dump(value)) == value
