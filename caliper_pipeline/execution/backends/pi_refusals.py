"""Why pi did not serve a call, and what to do about it.

The errors of a model are the last message of the stream: newer versions quote the service's whole answer in them,
older ones its message alone. Everything before a first request is on standard error, with exit code 1.
"""

import re

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends.base import Refusal
from caliper_pipeline.execution.backends.json_lines import plain_lines
from caliper_pipeline.execution.backends.pi_cli import INSTALL
from caliper_pipeline.execution.backends.refusals import Complaint, Marker, Remedies, classify, explained, marker
from caliper_pipeline.execution.command import ProcessResult

_BY_CODE = {
    "insufficient_quota": "cap",
    "billing_error": "cap",
    "invalid_api_key": "login",
    "authentication_error": "login",
    "model_not_found": "model",
}
_BY_STATUS = {401: "login", 402: "cap", 403: "login", 404: "model"}
_MARKERS: tuple[Marker, ...] = (
    marker("configuration", "unknown provider", "requires --model", "failed to load extension", only_when_failed=True),
    marker(
        "login",
        "no api key found",
        "no models available",
        "no model selected",
        "authentication failed for",
        "oauth refresh failed",
        "oauth token refresh failed",
        "invalid_grant",
        "invalid api key",
        "incorrect api key",
        "failed to resolve api key",
        "not logged in",
    ),
    Marker(
        "model",
        re.compile(
            r"model \S+ not found"
            r"|model\b.{0,200}\b(?:does not exist|is not (?:supported|available|found))"
            r"|not a valid model|model is ambiguous",
            re.IGNORECASE,
        ),
    ),
)
_OPTION = re.compile(r"Error: Unknown options?:", re.IGNORECASE)
_LOG_IN = (
    "Start `pi` and use /login (newer versions: `pi auth login PROVIDER`), or set the provider's API key in the "
    "environment"
)


def refusal(result: ProcessResult, reply: AgentReply) -> Refusal | None:
    if result.timed_out or result.cancelled or result.ended_because or result.exit_code is None:
        return None
    texts = [reply.cli_error]
    # A call that was served and answered was not refused, whatever is complained of on the way out.
    if not reply.spoke or (result.exit_code != 0 and not reply.finished):
        texts.append(_quiet(result.stderr.decode("utf-8", "replace")))
    if not reply.spoke and reply.cli_error is None:
        texts += plain_lines(result.stdout)
    failed = 1 if reply.cli_error is not None and result.exit_code == 0 else result.exit_code
    complaint = Complaint.of(texts, exit_code=failed, status=reply.error_status, code=reply.error_code)
    return classify(complaint, structure=_structure, markers=_MARKERS)


def explain(refused: Refusal, engine: Engine, *, judge: bool) -> Exception:
    remedies = Remedies(
        login=f"{_LOG_IN} or in models.json; name one of your models with {{flag}} pi:PROVIDER/MODEL, or as the "
        "default in settings.json.",
        model="`pi --list-models` lists what your login reaches; name one with {flag} pi:PROVIDER/MODEL.",
        option=f"Update it: {INSTALL}, or `pi update`.",
        other="`pi --list-models` lists providers and models; name one with {flag} pi:PROVIDER/MODEL.",
    )
    return explained(refused, engine, remedies, judge=judge)


def _structure(complaint: Complaint) -> str | None:
    """What codes, statuses and shapes tell, whatever the words around them."""
    if complaint.code in _BY_CODE:
        return _BY_CODE[complaint.code]
    if complaint.status in _BY_STATUS:
        return _BY_STATUS[complaint.status]
    if complaint.failed and complaint.line_with(_OPTION):
        return "option"
    return None


def _quiet(stderr: str) -> str:
    """Without the pointers to the manual, whose paths could hold any word, and without what it merely warned of."""
    return "\n".join(line for line in stderr.splitlines() if not line.startswith(("  ", "Warning:")))
