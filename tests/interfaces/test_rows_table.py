"""Folding text to a width, and numbers as a table shows them."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from caliper_pipeline.interfaces.render.cells import decimals, readable
from caliper_pipeline.interfaces.render.rows_table import fold

TEXTS = st.text(st.sampled_from("ab é字🙂 \n.-"), max_size=60)


@given(TEXTS, st.integers(2, 20))
def test_folded_text_fits_and_loses_nothing_but_blanks(text: str, width: int) -> None:
    lines = fold(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(TEXTS)
def test_text_that_fits_is_left_as_it_is(text: str) -> None:
    assert fold(text, 1000) == text.split("\n")


@given(st.text(max_size=40))
def test_a_cell_holds_nothing_that_a_terminal_would_act_on(text: str) -> None:
    shown = readable(text, null="-")
    assert all(c == "\n" or (ord(c) >= 32 and not 127 <= ord(c) < 160) for c in shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "—"),
        ("", ""),
        (True, "true"),
        (3, "3"),
        (1 / 3, "0.3333"),
        (2.0, "2"),
        (0.00000123, "1.2e-06"),
        (float("nan"), "nan"),
        (Decimal("1.50"), "1.5"),
        (datetime(2026, 1, 2, 3, 4, 5, 678), "2026-01-02 03:04:05"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04:05"),
        (date(2026, 1, 2), "2026-01-02"),
        ([], "[]"),
        (["a", None], "a, NULL"),
        ({"a": 1}, '{"a": 1}'),
        (b"\x00\xff", "AP8="),
        ("a\tb", "a    b"),
    ],
)
def test_a_value_is_shown_as_people_read_it(value: Any, shown: str) -> None:
    assert readable(value, null="—") == shown


@pytest.mark.parametrize(
    ("values", "places"),
    [([], 0), ([1.0, 2.0], 0), ([0.5, 0.25], 2), ([1 / 3], 4), ([1 / 3, 12.5], 3), ([1 / 3, 12345.6], 0), ([None], 0)],
)
def test_a_column_of_numbers_shows_about_four_digits(values: list[Any], places: int) -> None:
    assert decimals(values) == places
