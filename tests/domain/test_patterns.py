"""Which regular expressions are let near text that an agent makes up."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caliper_pipeline.domain.patterns import pattern_fault


@pytest.mark.parametrize(
    "pattern",
    [
        "answers/.*",
        r".*\.eval\.yaml",
        r"\.eval\.yaml$",
        "evals/",
        "([^/]+/)*key",  # nested, and never in doubt
        r"(?:^|/)\.caliper/results/",
        r"^.*/answers/[^/]*\.md$",
        r"(foo|bar|baz)/.*\.json",
        "[a-f0-9]{64}",
        r"(?i)solution(s)?\.(py|md|txt)$",
        r"^(?:\.\./)*answers/",
        "a++b",  # possessive: nothing to go back to
        r"key-\d{4}-\d{2}-\d{2}\.txt",
        r"(expected|golden)[-_]?(output|answer)s?",
        r".*/a/.*/b/.*\.md",
        r"(\w+\.)*yaml$",
        "(?<!my-)answers",
        "(" * 50 + "a" + ")" * 50,
    ],
)
def test_patterns_of_real_specs_are_accepted(pattern: str) -> None:
    assert pattern_fault(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\./(a+)+$",
        "(a|aa)+$",
        "(ab|a|b)*c",
        "([ab]c|[bd]c)*x",
        "(?:(ab|([^a]a|b)))+$",  # in doubt only on "abbabb"
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        "(x+x+)+y",
        "(.*a){20}",
        r"(\w+\s?)*$",
        r"(\d+|\w+)*-",
        "(a*)*$",
        "((a*)*)*b",
        "(x(|)y)*z",
        "(?=(a+)+$)b",
        "(?m)^(a+)+$",
        "(.+/)+key",
        "a*a*a*a*a*b",  # polynomial, of the sixth degree
        "(.*)(.*)(.*)(.*)x",
        "(?:a?){25}a{25}",  # bounded, and 2^25 ways
        "a?" * 25 + "a" * 25,
        "(a{1,50}){1,50}b",
        "(?:a++)+b",  # quick in Python, but nothing that `automaton` can bound
    ],
)
def test_patterns_that_backtrack_without_end_are_refused(pattern: str) -> None:
    fault = pattern_fault(pattern)
    assert fault is not None
    assert pattern[:20] in fault or repr(pattern)[1:20] in fault


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "blank"),
        (" ", "blank"),
        ("(", "not a regular expression"),
        ("[z-a]", "bad character range"),
        ("a{5,2}", "min repeat"),
        ("*a", "nothing to repeat"),
        (".*", "matches every text"),
        ("a*", "matches every text"),
        ("x|", "matches every text"),
        ("a" * 1001, "1,001 characters"),
        ("(" * 499 + "a" + ")" * 499, "usable"),
    ],
)
def test_a_refused_pattern_says_why(pattern: str, words: str) -> None:
    fault = pattern_fault(pattern)
    if words == "usable" and fault is None:
        return  # whether so deep a pattern compiles is for this Python to say
    assert fault is not None
    assert words in fault


ATOMS = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", r"\w", "/"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,3}", "*?"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(PATTERNS, st.sampled_from(["", "x", "$"]))
def test_what_is_accepted_is_quick_on_repeated_text(pattern: str, end: str) -> None:
    if pattern_fault(pattern + end) is not None:
        return
    compiled = re.compile(pattern + end)
    for bit in ("a", "b", "ab", "aab", "abb", "/", "a/"):
        for tail in ("", "!"):
            with at_most(5.0):
                compiled.search((bit * 100)[:100] + tail)


@settings(deadline=None, max_examples=30)
@given(PATTERNS)
def test_weighing_a_pattern_is_quick_itself(pattern: str) -> None:
    started = time.thread_time()
    pattern_fault(pattern)
    assert time.thread_time() - started < 2.0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Python's matcher looks at signals, so a runaway search ends here instead of hanging the tests."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
