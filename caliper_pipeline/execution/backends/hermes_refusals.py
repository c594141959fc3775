"""Why hermes did not serve a call: its own words, and those of the provider that it passes on.

Hermes passes an HTTP error on as `HTTP 401: <the provider's message>`. A 404 may also be a wrong address, so it is an
unavailable model only where a model is spoken of; some providers answer an unknown model with 400.
"""

import re
from collections.abc import Iterable

from caliper_pipeline.execution.backends.base import Refusal
from caliper_pipeline.execution.backends.refusals import Complaint, classify, marker

_SETUP = marker(
    "configuration",
    "config: failed to parse",
    "unknown provider",
    "package is required for",
    "requires --model",
    "did not contain any valid toolsets",
)
_CAP = marker("cap", "insufficient credits", "out of credits", "no credits", "insufficient balance", "add credits")
_LOGIN = marker(
    "login",
    "no inference provider configured",
    "isn't configured yet",
    "not logged in",
    "no access token found",
    "nous portal login",
    "relogin",
    "re-login",
    "log in again",
    "sign in again",
    "no active model",
    "no model selected",
    "no default model",
    "credentials found",
    "no api key",
    "missing api key",
    "incorrect api key",
    "invalid api key",
    "invalid_api_key",
    "no credentials",
    "auth is missing",
    "token has expired",
)
_NO_MODEL = re.compile(
    r"model.*(?:not found|does not exist|not supported|not available|not a valid)"
    r"|(?:unknown|invalid|no such|not a valid) model",
    re.IGNORECASE,
)
_BY_STATUS = {401: "login", 402: "cap", 403: "login", 404: "configuration"}


def refusal_in(texts: Iterable[str | None], *, exit_code: int | None, status: int | None) -> Refusal | None:
    """The refusal that the command's texts amount to. `None`: it is none."""
    complaint = Complaint.of(texts, exit_code=exit_code, status=status)
    return classify(complaint, structure=_structure, markers=(_LOGIN,))


def _structure(complaint: Complaint) -> str | None:
    for item in (_SETUP, _CAP):
        if complaint.line_with(item.pattern):
            return item.kind
    if complaint.status in (None, 400, 404, 422) and complaint.line_with(_NO_MODEL):
        return "model"
    return _BY_STATUS.get(complaint.status or 0)
