"""Secrets hidden in whatever form they were written."""

import base64
import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caliper_pipeline.domain.redaction import Redaction

SECRET = 'p"ss wörd/1'


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps({"a": SECRET}, ensure_ascii=False),
        repr(SECRET),
        f"https://x/?k={urllib.parse.quote(SECRET, safe='')}",
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_hidden_as_text_and_as_bytes(written: str) -> None:
    hidden = Redaction([SECRET])
    assert "[hidden]" in hidden.text(written)
    assert "rd/1" not in hidden.text(written)
    assert hidden.data(written.encode()) == hidden.text(written).encode()


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert Redaction(["token", "token-and-more"]).text("token-and-more token") == "[hidden] [hidden]"


def test_plain_data_is_hidden_to_its_depth() -> None:
    value = {"a": ["x token", {"token": 1}], "b": ("token", None, 2.5)}
    assert Redaction(["token"]).plain(value) == {"a": ["x [hidden]", {"[hidden]": 1}], "b": ("[hidden]", None, 2.5)}


@given(st.text(), st.lists(st.text(max_size=3)))
def test_values_that_could_be_anything_stay(text: str, secrets: list[str]) -> None:
    assert Redaction(secrets).text(text) == text


@given(st.text(min_size=4), st.text(), st.text())
def test_no_secret_is_left(secret: str, before: str, after: str) -> None:
    hidden = Redaction([secret]).text(f"{before} {secret} {after}")
    assert "[hidden]" in hidden or secret in "[hidden]"
