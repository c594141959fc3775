"""Why codex did not serve a call, from its own words, and what to do about it.

What it says of a failed request is the message of the event that closes the turn; statuses are named in it, the words
of the service often are not. Standard error counts only where no event told: it also repeats what tools answered. A
judge is run without events, and its standard error repeats the whole question before the error, transcript included.
"""

import re
import sys
from dataclasses import replace

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends.base import JudgeAnswer, Refusal
from caliper_pipeline.execution.backends.codex_cli import INSTALL
from caliper_pipeline.execution.backends.codex_stream import status_in
from caliper_pipeline.execution.backends.json_lines import plain_lines
from caliper_pipeline.execution.backends.refusals import Complaint, Marker, Remedies, classify, explained, marker
from caliper_pipeline.execution.command import ProcessResult

NAME = "codex"
_SPENT = re.compile(r"out of credits|(?:workspace|your) credit limit", re.IGNORECASE)
_MODEL = re.compile(
    r"\bmodel\b.{0,100}?\b(?:is not supported|is not available|does not exist|not found)|model_not_found"
    r"|requires a newer version of codex|please upgrade to the latest app or cli",
    re.IGNORECASE,
)
_NOT_A_MODEL = re.compile(r"model metadata for", re.IGNORECASE)
_SETUP = marker(
    "configuration",
    "error loading config",
    "missing environment variable",
    "not inside a trusted directory",
    "missing optional dependency",
    "reserved built-in provider",
)
_MARKERS: tuple[Marker, ...] = (
    marker("throttle", "at capacity", "currently experiencing high demand", "capacity is unavailable"),
    marker(
        "login",
        "not logged in",
        "not signed in",
        "please login",
        "please run /login",
        "codex login",
        "sign in again",
        "unauthorized",
        "invalid api key",
        "incorrect api key",
        "missing bearer",
        "token_expired",
        "subscription",
        "chatgpt account",
    ),
)
_MACOS = sys.platform == "darwin"
_BLOCKED = re.compile(r"operation not permitted", re.IGNORECASE)
_BY_STATUS = {401: "login", 402: "cap", 403: "login"}
_TRACE = re.compile(r"\d{4}-\d\d-\d\dT\S+\s+(?:ERROR|WARN|INFO|DEBUG)\s+(\S+):")
_TOOLS_TRACE = ("codex_core::tools", "codex_mcp", "codex_rmcp", "rmcp")
_NOISE = ("warning:", "reading prompt from stdin", "reading additional input from stdin")
_BANNER = re.compile(r"^OpenAI Codex v", re.MULTILINE)
_TRY_AGAIN = re.compile(r"try again in (\d+(?:\.\d+)?)\s*(ms|s|m)\b", re.IGNORECASE)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_TOO_LONG = re.compile(
    r"ran out of room in the model|exceeds the maximum length|context_length_exceeded", re.IGNORECASE
)


def agent_refusal(result: ProcessResult, reply: AgentReply) -> Refusal | None:
    if result.timed_out or result.cancelled or result.exit_code is None:
        return None
    if reply.finished and result.exit_code == 0:
        return None
    texts = [reply.cli_error]
    # A call that was served and answered was not refused, whatever is complained of on the way out.
    if reply.cli_error is None and (not reply.spoke or (result.exit_code != 0 and not reply.finished)):
        texts.append("\n".join(_own_lines(_text(result.stderr))))
    if not reply.spoke and reply.cli_error is None:
        texts += plain_lines(result.stdout)
    return _classified(texts, result)


def judge_refusal(result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
    if result.timed_out or result.cancelled or result.exit_code is None or answer.cli_error is None:
        return None
    return _classified([answer.cli_error], result)


def judge_complaint(stderr: bytes, prompt: str) -> str | None:
    """What the CLI said went wrong with a judge call, without the question it repeats."""
    told = _text(stderr)
    begun = _BANNER.search(told) is not None
    for said in (prompt, prompt.strip()):
        told = told.replace(said, "\n") if said else told
    lines = [line.strip() for line in told.splitlines()]
    if begun:
        # The session's own errors are written in capitals and stand at the end, mostly twice.
        found = [line for line in lines if line.startswith("ERROR:")] or [
            line for line in lines[-3:] if line.startswith("Error: ")
        ]
        return found[-1].removeprefix("ERROR:").strip() if found else None
    return "\n".join(_own_lines(told)) or None


def is_too_long(words: str | None) -> bool:
    return words is not None and _TOO_LONG.search(words) is not None


def explain(refused: Refusal, engine: Engine, login: tuple[str, ...], *, judge: bool) -> Exception:
    remedies = Remedies(
        login=f"Log in with `{' '.join(login)}`, or with a ChatGPT plan by `caliper login chatgpt`, or set a valid "
        "CODEX_API_KEY. A login that the CLI keeps in the "
        'system\'s keyring cannot be copied: set cli_auth_credentials_store = "file" in its config.toml and log in '
        "again.",
        model=f"Name another with {{flag}}, for instance {{flag}} {NAME}:gpt-5.5, or update the CLI, which brings the "
        f"models it knows: {INSTALL}",
        option=f"Update it: {INSTALL}",
        other=_remedy(refused.text),
    )
    return explained(refused, engine, remedies, judge=judge)


def _classified(texts: list[str | None], result: ProcessResult) -> Refusal | None:
    status = next((code for text in texts if (code := status_in(text)) is not None), None)
    # A message that the CLI closed the turn with is a failure, whatever the exit code.
    failed = result.exit_code if result.exit_code != 0 or texts[0] is None else 1
    refused = classify(Complaint.of(texts, exit_code=failed, status=status), structure=_structure, markers=_MARKERS)
    if refused is None or refused.kind != "throttle":
        return refused
    wait = next((found for text in texts if text and (found := _TRY_AGAIN.search(text))), None)
    seconds = float(wait[1]) * _UNIT_SECONDS[wait[2].lower()] if wait else None
    return replace(refused, retry_after_seconds=seconds)


def _structure(complaint: Complaint) -> str | None:
    """What statuses and shapes tell, before single words are looked for."""
    if complaint.line_with(_SPENT):
        return "cap"
    if complaint.line_with(_SETUP.pattern):
        return _SETUP.kind
    if any(_MODEL.search(line) and not _NOT_A_MODEL.search(line) for line in complaint.lines):
        return "model"
    if complaint.status in _BY_STATUS:
        return _BY_STATUS[complaint.status]
    if _MACOS and complaint.failed and complaint.line_with(_BLOCKED):
        return "configuration"
    return None


def _own_lines(stderr: str) -> list[str]:
    """The lines in which the CLI complains: no warnings, and nothing that it repeats of tools and servers."""
    found: list[str] = []
    lines = stderr.rstrip().splitlines()
    repeats = False
    for number, line in enumerate(lines, 1):
        trace = _TRACE.match(line)
        if trace is not None:
            repeats = trace[1].startswith(_TOOLS_TRACE)
        elif number == len(lines) and line.startswith("Error: "):
            repeats = False  # how the CLI itself ends
        if repeats:
            continue  # what a tool printed goes on until the next trace
        words = line.strip()
        if not words or words.lower().startswith(_NOISE):
            continue
        if found and found[-1].startswith("Error loading config"):
            found[-1] += f" {words}"  # where, and what is wrong, follow on lines of their own
        else:
            found.append(words)
    return found


def _remedy(text: str) -> str:
    lowered = text.lower()
    if "missing environment variable" in lowered:
        return (
            "Your config.toml names this variable as the key of the provider: export it, and let it through with "
            "`environment: {agent: [NAME]}` in caliper.yaml."
        )
    if "missing optional dependency" in lowered:
        return f"The package is incomplete. Install it anew: {INSTALL}"
    if "error loading config" in lowered:
        return "The CLI refuses what your own config.toml says; mend it there, or use --no-user-customizations."
    if _BLOCKED.search(text):
        return "The system keeps the command from running there: allow it in the privacy settings."
    return "`codex exec hello` in a terminal shows whether the CLI works at all; `codex doctor` looks it over."


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
