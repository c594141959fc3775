"""Arbitrary values of the records, within what their fields may hold."""

import dataclasses
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from caliper_pipeline.domain.records import LINE_TYPES, Line

TEXTS = st.text(max_size=40) | st.sampled_from(
    ["x'); drop table runs; --", "50% \"q\" \\ 'a'", "é 🌊 \0 \u2028", "a\tb"]
)
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2999, 1, 1), timezones=st.just(UTC))
COUNTS = st.integers(0, 2**31 - 1)
SECONDS = st.floats(0, 1e9, allow_nan=False)


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*(st.none() if part is type(None) else any_of(part) for part in get_args(kind)))
    if origin is tuple:
        return st.lists(any_of(get_args(kind)[0]), max_size=3).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(TEXTS, any_of(get_args(kind)[1]), max_size=3)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = {field.name: any_of(hints[field.name]) for field in dataclasses.fields(kind)}
        make: Any = kind
        return st.builds(make, **fields)
    if kind is datetime:
        return TIMES
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    return {str: TEXTS, int: COUNTS, float: SECONDS, bool: st.booleans()}[kind]


def any_line() -> st.SearchStrategy[Line]:
    return st.one_of(*(any_of(kind) for kind in LINE_TYPES.values()))
