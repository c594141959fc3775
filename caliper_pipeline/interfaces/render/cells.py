"""One value of a query's answer as text: for people to read, or as plain data."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from caliper_pipeline.interfaces.render.text import clean

_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "BIGNUM")
_MOST_DECIMALS = 4


def is_number(kind: str) -> bool:
    """Whether a column of DuckDB's type holds numbers."""
    return not kind.endswith("]") and any(part in kind.partition("(")[0] for part in _NUMBERS) and kind != "INTERVAL"


def plain(value: Any, kind: str) -> Any:
    """The value as JSON has it: numbers, lists, times as `2026-11-30T12:00:00Z`; not a number is null."""
    if kind == "JSON" and isinstance(value, str):
        try:
            return _finite(json.loads(value))
        except ValueError:
            return value
    return _finite(value)


def is_moment(kind: str) -> bool:
    """Whether a column of DuckDB's type holds times or days."""
    return kind in ("DATE", "TIME") or (kind.startswith("TIMESTAMP") and not kind.endswith("]"))


def decimals(values: Sequence[Any]) -> int:
    """How many places behind the point a column of numbers needs: about four digits in all, and at most four places."""
    found = [value for value in values if isinstance(value, float | Decimal) and math.isfinite(value)]
    largest = max((abs(float(value)) for value in found), default=0.0)
    room = max(0, _MOST_DECIMALS - max(0, len(str(int(largest))) - 1))
    return max((len(f"{value:.{room}f}".rstrip("0").partition(".")[2]) for value in found), default=0)


def readable(value: Any, *, null: str, places: int | None = None) -> str:
    """The value for a person: cleaned of anything a terminal would act on; line breaks stay. Times to the second, UTC.

    `places`: of numbers, behind the point; `None`: as many as it has.
    """
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | Decimal):
        return _number(value, places)
    if isinstance(value, list | tuple):
        return ", ".join(readable(item, null="NULL") for item in value) if value else "[]"
    if isinstance(value, datetime):
        return text_of(value.replace(microsecond=0)).replace("T", " ").removesuffix("Z")
    return clean(text_of(value)).replace("\t", "    ")


def text_of(value: Any) -> str:
    """The value as a field of a data file: exact, and empty for NULL."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | Decimal):
        return str(value)
    plain_value = _finite(value)
    return plain_value if isinstance(plain_value, str) else json.dumps(plain_value, ensure_ascii=False)


def _number(value: float | Decimal, places: int | None) -> str:
    if not math.isfinite(value):
        return str(value)
    if value and abs(value) < 10**-_MOST_DECIMALS / 2:
        return f"{value:.1e}"
    if places is not None:
        return f"{value:.{places}f}"
    text = f"{value:.{_MOST_DECIMALS}f}"
    return text.rstrip("0").rstrip(".")


def _finite(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"{moment.isoformat()}Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta | UUID):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {text_of(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value)
