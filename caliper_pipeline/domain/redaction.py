"""Text without secrets whose values are known, in whatever form programs may have written them.

A secret is hidden as it is, as JSON and Python write it, percent-encoded and in Base64 (on its own, not amid other
text). Values under four characters could be anything and stay.
"""

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

SHORTEST = 4
MARK = "[hidden]"


class Redaction:
    """Hides the secrets; equal texts come out equal."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._text = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        coded = [re.escape(form.encode("utf-8", "surrogateescape")) for form in ordered]
        self._data = re.compile(b"|".join(coded)) if coded else None

    def text(self, text: str) -> str:
        return text if self._text is None else self._text.sub(MARK, text)

    def data(self, data: bytes) -> bytes:
        return data if self._data is None else self._data.sub(MARK.encode(), data)

    def plain(self, value: Any) -> Any:
        """Plain data, keys included."""
        if self._text is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.plain(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.plain(item) for item in value)
        return value


def _forms(secret: str) -> set[str]:
    coded = base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode()
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        urllib.parse.quote(secret, safe="", errors="surrogateescape"),
        urllib.parse.quote(secret, errors="surrogateescape"),
        coded,
        coded.rstrip("="),
    }
