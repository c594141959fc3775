"""What Claude Code's refusals look like, and what a person is told of them."""

import re

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Refusal
from caliper_pipeline.execution.backends.refusals import Complaint, Marker, Remedies, classify, explained, marker

NAME = "claude-code"
BINARY = "claude"

_SETUP = marker(
    "configuration",
    "does not have access to claude code",
    "disabled claude subscription access",
    "use an anthropic api key instead",
    "cannot be used with root/sudo privileges",
    "native binary not installed",
    "invalid mcp configuration",
)
_MARKERS: tuple[Marker, ...] = (
    marker(
        "login",
        "not logged in",
        "please run /login",
        "failed to authenticate",
        "oauth session expired",
        "oauth token has expired",
        "invalid api key",
        "api error: 401",
        "api error 401",
    ),
    marker("model", "issue with the selected model"),
)
_NODE_CRASH = re.compile(r"cli\.[cm]?js\b")
_NODE_ERROR = re.compile(r"\b[A-Z]\w*Error\b|^Node\.js v\d", re.MULTILINE)
_BY_CODE = {"billing_error": "cap", "authentication_failed": "login", "model_not_found": "model"}
_BY_STATUS = {401: "login", 402: "cap", 403: "login", 404: "model"}


def find(complaint: Complaint) -> Refusal | None:
    return classify(complaint, structure=_structure, markers=_MARKERS)


def explain(refusal: Refusal, engine: Engine, *, judge: bool) -> CannotRun:
    """The error that a refusal for good ends the run with, and its remedy."""
    remedies = Remedies(
        login=f"Log in with `{BINARY} auth login`, or set a valid ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN.",
        model=f"Name another with {{flag}}, for instance {{flag}} {NAME}:sonnet.",
        option="Update it: npm install -g @anthropic-ai/claude-code, or `claude update`.",
        other=_remedy(refusal.text),
    )
    return explained(refusal, engine, remedies, judge=judge)


def _structure(complaint: Complaint) -> str | None:
    """What codes, statuses and shapes tell, whatever the words around them."""
    if complaint.line_with(_SETUP.pattern):
        return _SETUP.kind
    if complaint.code in _BY_CODE:
        return _BY_CODE[complaint.code]
    if complaint.status in _BY_STATUS:
        return _BY_STATUS[complaint.status]
    whole = "\n".join(complaint.lines)
    if complaint.failed and _NODE_CRASH.search(whole) and _NODE_ERROR.search(whole):
        return "configuration"
    lowered = whole.lower()
    if complaint.failed and complaint.status is None and "api key" in lowered and "anthropic" in lowered:
        return "login"
    return None


def _remedy(text: str) -> str:
    lowered = text.lower()
    if "native binary not installed" in lowered:
        return "Its install script did not run: node node_modules/@anthropic-ai/claude-code/install.cjs"
    if "root/sudo" in lowered:
        return "Run as another user."
    if _NODE_CRASH.search(text):
        return "The command crashed at its start: try another (even) version of Node.js, or install the CLI anew."
    return f"`{BINARY} -p hello` in a terminal shows whether the CLI works at all; `{BINARY} doctor` looks it over."
