"""The automaton agrees with Python's engine, and stays quick where that does not."""

import re
import threading
import time
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from caliper_pipeline.domain.automaton import Matcher

ATOMS = [
    "a",
    "b",
    r"\.",
    "/",
    ".",
    "[ab]",
    "[^a]",
    r"[\w-]",
    r"\w",
    r"\W",
    r"\d",
    r"\s",
    "(a|b)",
    "(?:ab|a|)",
    "^",
    "$",
]
ATOMS += [r"\b", r"\B", r"\A", r"\Z", "(?i:A)", "(?-i:a)", "[a-c]", "(?P<n>a)", "é", "\n"]
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "+?", "??"]

parts = st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(REPEATS)).map("".join), min_size=1, max_size=5)
patterns = st.tuples(
    st.sampled_from(["", "", "(?i)", "(?s)", "(?m)", "(?ms)", "(?a)"]),
    parts.map("".join),
    st.sampled_from(["", "", "*", "+", "{2}"]),
).map(lambda p: f"{p[0]}({p[1]}){p[2]}" if p[2] else p[0] + p[1])


@given(patterns, st.text(alphabet="abAcé./ \n1_-", max_size=12))
def test_it_finds_what_pythons_engine_finds(pattern: str, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = re.search(pattern, text) is not None
        except re.error:
            assume(False)
    matcher = Matcher(pattern)
    assert matcher.bounded
    assert matcher.found_in(text) is expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^\./(a+)+$", "./" + "a" * 5_000 + "!"),
        (r"(x+x+)+y", "x" * 5_000),
        (r"(a|a)*b", "a" * 5_000),
        (r"(a|aa)+$", "a" * 5_000 + "!"),
        (r".*.*.*.*=.*", "x" * 5_000),
        (r"(.*)(\w+)*\.json$", "x" * 5_000),
        (r"(a?){60}a{60}$", "a" * 59 + "!"),
    ],
)
def test_patterns_that_explode_elsewhere_stay_quick(pattern: str, text: str) -> None:
    start = time.process_time()
    assert not Matcher(pattern).found_in(text)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("pattern", "bounded"),
    [
        (r"(?<![\w.-])secret", True),
        (r"(?!x)a.*b", True),
        (r"(a)\1", True),
        (r"(?!b)(a+)+$", False),
        (r"(a|b)*\1(a+)+", False),
        (r"(a{1,500}){1,500}", False),
        (r"(?=.)(a?){10}(a?){10}(a?){10}b", False),
    ],
)
def test_what_cannot_be_matched_in_bounded_time_is_known_and_matches_nothing(pattern: str, bounded: bool) -> None:
    matcher = Matcher(pattern)
    assert matcher.bounded is bounded
    if not bounded:
        assert not matcher.found_in("a" * 60)


def test_looking_around_works_on_long_texts_where_there_is_nothing_to_try() -> None:
    assert Matcher(r"(?<!\w)secret").found_in("x " * 50_000 + "secret")
    assert not Matcher(r"(?<!\w)secret").found_in("x" * 50_000 + "secret")


def test_something_else_than_a_pattern_is_an_error() -> None:
    with pytest.raises(re.error):
        Matcher("(")


def test_many_threads_may_share_one() -> None:
    matcher = Matcher(r"(a|b)*c[^d]*d{1,3}$")
    texts = [("ab" * n + "c" + "x" * n + "d" * (n % 5 + 1), n % 5 < 3) for n in range(40)]
    wrong: list[str] = []

    def look() -> None:
        wrong.extend(text for text, found in texts * 10 if matcher.found_in(text) is not found)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
