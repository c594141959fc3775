"""Tokens in the output of an agent that is still at work, for the limit of one attempt.

Each event with usage stands for one call of the model. Claude Code repeats a call's event for each block of its answer,
with the same message id and counts that grow: the largest counts.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def claude_tokens(stdout: bytes) -> int:
    """Of the stream of Claude Code, sub-agents included."""
    calls: dict[object, int] = {}
    for number, event in enumerate(_events(stdout, b'"usage"')):
        message = event.get("message") if event.get("type") == "assistant" else None
        if isinstance(message, dict):
            key = message.get("id") or number
            calls[str(key)] = max(calls.get(str(key), 0), _sum(message.get("usage"), CLAUDE_KEYS))
    return sum(calls.values())


def pi_tokens(stdout: bytes) -> int:
    """Of the stream of pi."""
    total = 0
    for event in _events(stdout, b'"message_end"'):
        message = event.get("message") if event.get("type") == "message_end" else None
        if isinstance(message, dict) and message.get("role") == "assistant":
            total += _sum(message.get("usage"), PI_KEYS)
    return total


CLAUDE_KEYS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
PI_KEYS = ("input", "output", "cacheRead", "cacheWrite")


def _sum(usage: object, keys: tuple[str, ...]) -> int:
    if not isinstance(usage, Mapping):
        return 0
    counts = [usage.get(key) for key in keys]
    return sum(count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count > 0)


def _events(stdout: bytes, mark: bytes) -> Iterator[dict[str, Any]]:
    """The whole lines that hold the mark and are events."""
    for line in stdout.splitlines():
        if mark in line:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
