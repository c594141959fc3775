"""Values to and from plain data (dict, list, str, number, bool, None), the form that JSON keeps.

Reading ignores keys it does not know and fills missing ones with their defaults, so that files of other versions
load. Times are aware, in UTC, and written as `2026-11-20T10:00:00.000000Z`.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

T = TypeVar("T")


def utc_text(moment: datetime) -> str:
    """The instant as text, with microseconds and `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_time(text: str) -> datetime:
    """The instant that a text names. One without an offset is read as UTC. ValueError when it is none."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def to_plain(value: Any) -> Any:
    """The value as plain data; dataclasses become dicts in the order of their fields, tuples become lists."""
    if value is None or isinstance(value, str | bool | int | float):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _field_types(type(value))}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(to_plain(item) for item in value)
    raise TypeError(f"no plain form for {type(value).__name__}")


def from_plain(kind: type[T], data: Any) -> T:
    """The value of that kind that `to_plain` gave. ValueError or TypeError when the data does not fit."""
    return typing.cast(T, _reader(typing.cast(Any, kind))(data))


@cache
def _field_types(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


Reader = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> Reader:
    """What reads values of that kind. Made once: a history of 20,000 runs asks for each of them millions of times."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda data: data
    if origin in (Union, types.UnionType):
        return _union_reader([part for part in parts if part is not type(None)], nullable=type(None) in parts)
    if origin is tuple:
        item = _reader(parts[0])
        return lambda data: tuple([item(one) for one in _sequence(data)])
    if origin is list:
        item = _reader(parts[0])
        return lambda data: [item(one) for one in _sequence(data)]
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        item = _reader(parts[1])
        return lambda data: {key: item(one) for key, one in _mapping(data).items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(typing.cast(type, kind))
    if kind is datetime:
        return utc_time
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return _scalar_reader(kind) if isinstance(kind, type) else lambda data: data


def _union_reader(options: list[Any], *, nullable: bool) -> Reader:
    one = _reader(options[0]) if len(options) == 1 else None

    def read(data: Any) -> Any:
        if data is None:
            if not nullable:
                raise TypeError("null where a value is needed")
            return None
        return data if one is None else one(data)

    return read


def _dataclass_reader(kind: Any) -> Reader:
    fields: dict[str, Reader] = {}

    def read(data: Any) -> Any:
        if not fields:  # only now: a kind may hold itself
            fields.update({name: _reader(field) for name, field in _field_types(kind).items()})
        given = _mapping(data)
        return kind(**{name: field(given[name]) for name, field in fields.items() if name in given})

    return read


def _scalar_reader(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is kind:
            return data
        if kind is float and isinstance(data, int) and not isinstance(data, bool):
            return float(data)
        if not isinstance(data, kind):
            raise TypeError(f"{kind.__name__} is needed, not {type(data).__name__}")
        if kind is int and isinstance(data, bool):
            raise TypeError("int is needed, not bool")
        return data

    return read


def _mapping(data: Any) -> Mapping[Any, Any]:
    if not isinstance(data, Mapping):
        raise TypeError(f"a mapping is needed, not {type(data).__name__}")
    return data


def _sequence(data: Any) -> Any:
    if not isinstance(data, list | tuple):
        raise TypeError(f"a list is needed, not {type(data).__name__}")
    return data
