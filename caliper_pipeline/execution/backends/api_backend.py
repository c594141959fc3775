"""What `claude-api` and `openai-api` have in common: an agent of our own on a vendor's SDK, and no command to install.

An attempt is a process (`api_program.py`) that talks to the service itself. So nothing of the operator's is loaded,
only the key crosses, and what the service says of a failure is known exactly instead of being read from words.
"""

import importlib.util
import socket
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun, LoginRequired, MissingCli
from caliper_pipeline.domain.planted import PlantedTurn
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.backends.api_agent.failures import SPENT
from caliper_pipeline.execution.backends.api_program import AGENT_FOLDER, program_command
from caliper_pipeline.execution.backends.api_stream import Trouble, read_stream, read_trouble
from caliper_pipeline.execution.backends.base import (
    BackendInfo,
    Capabilities,
    Invocation,
    JudgeAnswer,
    JudgeInvocation,
    Operator,
    Refusal,
)
from caliper_pipeline.execution.backends.refusals import TEXT_CHARS, Complaint, Remedies, classify, explained
from caliper_pipeline.execution.command import Command, ProcessResult

_SYSTEM = """\
You are an agent that does a task on a computer, with the tools that you have. Nobody is there to answer questions: do \
the task to its end, check what you did, and close with a short answer.

Working directory: {workdir}"""
_PLANTED = "planted"
_BY_CODE = {
    "mcp": "configuration",
    "sdk": "configuration",
    "invalid_api_key": "login",
    "authentication_error": "login",
    "model_not_found": "model",
}
_BY_STATUS = {401: "login", 402: "cap", 403: "login"}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_CONNECT_SECONDS = 3.0


class ApiBackend:
    """A subclass says what is its vendor's own."""

    name: str
    sdk: str
    """The package, and the extra that brings it."""
    keys: tuple[str, ...]
    """Variables that hold a key; the first is the usual one."""
    variables: tuple[str, ...]
    """All variables that the SDK is given."""
    url_variable: str
    vendor_hosts: tuple[str, ...]
    default_model: str
    capabilities = Capabilities(mcp=True, history=True, user_customizations=False, limits_tokens=True)

    def protocol(self, operator: Operator) -> str:
        raise NotImplementedError

    def check(
        self, operator: Operator, extra_path: tuple[str, ...], engine: Engine, spec_path: Path | None
    ) -> BackendInfo:
        """Whether there is an SDK, a key and, where the server is on this machine, a server. Raises `CannotRun`."""
        if importlib.util.find_spec(self.sdk) is None:
            raise MissingCli(
                f"{self.name}: the {self.sdk} SDK is not installed.",
                hint=f"Install it: pip install 'caliper-pipeline[{self.sdk}]'",
            )
        url = self.base_url(operator)
        if not _picked(operator.environment, self.keys) and url is None:
            raise LoginRequired(
                f"Not logged in: {self.keys[0]} is not set.",
                hint=f"Export {self.keys[0]}"
                f", or point {self.url_variable} at a server that needs no key. The key is never stored.",
            )
        if url is not None:
            self._check_server(url, engine)
        return BackendInfo(version=f"{self.sdk} {metadata.version(self.sdk)}")

    def base_url(self, operator: Operator) -> str | None:
        """Another server than the vendor's. `None`: the vendor's own."""
        url = operator.environment.get(self.url_variable, "").strip()
        host = urlsplit(url).hostname or ""
        return None if not url or host in self.vendor_hosts else url

    def _check_server(self, url: str, engine: Engine) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            host, port = None, 0
        if host is None or parts.scheme not in ("http", "https"):
            raise CannotRun(f"{self.url_variable} is {url!r}, which is no URL.", hint="Write http://HOST:PORT/v1")
        if host in _LOCAL_HOSTS:
            try:
                socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
            except OSError as error:
                raise CannotRun(
                    f"{self.name}: nothing answers at {url} ({self.url_variable}): {error.strerror or error}",
                    hint="Start the server, or unset the variable to use the vendor's own.",
                ) from error

    def skills_root(self, home: Path) -> Path:
        return home / AGENT_FOLDER / "skills"

    def user_layer(
        self, operator: Operator, declared: tuple[str, ...] = (), servers: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        return ()

    def login_command(self, operator: Operator) -> tuple[str, ...] | None:
        return None

    def prepare(self, invocation: Invocation) -> None:
        pass

    def plant(self, invocation: Invocation) -> str:
        return _PLANTED

    def command(self, invocation: Invocation) -> Command:
        job = self._job(invocation) | {
            "system": _SYSTEM.format(workdir=invocation.workdir),
            "tools": True,
            "skills": list(invocation.skills),
            "servers": [
                {**asdict(server), "args": list(server.args), "env": dict(server.env), "headers": dict(server.headers)}
                for server in invocation.servers
            ],
            "history": [_turn(turn) for turn in invocation.history],
            "max_tokens": invocation.max_tokens,
        }
        return program_command(invocation, job, keys=self.keys)

    def recovery(self, invocation: Invocation, result: ProcessResult) -> Command | None:
        return None

    def read(self, result: ProcessResult, invocation: Invocation | None = None) -> AgentReply:
        return read_stream(result.stdout)

    def refusal(self, result: ProcessResult, reply: AgentReply) -> Refusal | None:
        return self._refusal(result)

    def prepare_judge(self, invocation: JudgeInvocation) -> None:
        pass

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        job = self._job(invocation) | {
            "system": invocation.system,
            "tools": False,
            "skills": [],
            "servers": [],
            "history": [],
            "max_tokens": None,
        }
        return program_command(invocation, job, keys=self.keys)

    def read_judge(self, result: ProcessResult, invocation: JudgeInvocation | None = None) -> JudgeAnswer:
        reply = read_stream(result.stdout)
        return JudgeAnswer(
            text=reply.final_answer if reply.cli_error is None else "",
            model=reply.model,
            usage=reply.usage,
            cli_error=reply.cli_error,
            error_status=reply.error_status,
            too_long=reply.error_code == "context",
        )

    def judge_refusal(self, result: ProcessResult, answer: JudgeAnswer) -> Refusal | None:
        return self._refusal(result)

    def explain(self, refusal: Refusal, engine: Engine, *, judge: bool) -> Exception:
        remedies = Remedies(
            login=f"Set a valid {self.keys[0]}.",
            model=f"Name another with {{flag}}, for instance {{flag}} {self.name}:{self.default_model}.",
            other=f"See that {self.keys[0]} is a key for what is asked, and that the base URL, if you set one, fits.",
            unnamed_model=self.default_model,
        )
        return explained(refusal, engine, remedies, judge=judge)

    def _job(self, invocation: Invocation | JudgeInvocation) -> dict[str, Any]:
        operator = invocation.operator
        return {
            "protocol": self.protocol(operator),
            "model": invocation.engine.model or self.default_model,
            "prompt": invocation.prompt,
            "workdir": str(invocation.workdir),
            "skills_root": str(self.skills_root(invocation.home)),
            "variables": _picked(operator.environment, self.variables),
            "seconds": invocation.timeout_seconds,
        }

    def _refusal(self, result: ProcessResult) -> Refusal | None:
        if result.timed_out or result.cancelled or result.exit_code is None:
            return None
        trouble = read_trouble(result.stdout)
        return None if trouble is None else refusal_of(trouble)


def refusal_of(trouble: Trouble) -> Refusal | None:
    """The refusal that an error amounts to. `None`: it concerns this attempt alone, or may pass."""
    if trouble.code in ("context", "length", "token_limit", "turns", "internal", "cut", "connection"):
        return None
    text = trouble.message[:TEXT_CHARS]
    if any(word in trouble.code for word in SPENT):
        return Refusal("cap", text)
    complaint = Complaint.of([trouble.message], exit_code=1, status=trouble.status, code=trouble.code)
    found = classify(complaint, structure=lambda _: _structure(trouble), markers=())
    if found is None or found.kind != "throttle":
        return found
    return Refusal(found.kind, found.text, retry_after_seconds=trouble.retry_after)


def _structure(trouble: Trouble) -> str | None:
    """Every attempt begins with the same kind of request: what was refused there is refused everywhere. A request that
    only later was not taken is that conversation's own matter."""
    if trouble.code in _BY_CODE:
        return _BY_CODE[trouble.code]
    if trouble.status in _BY_STATUS:
        return _BY_STATUS[trouble.status]
    if trouble.status == 404:
        return "model" if "model" in trouble.message.lower() else "configuration"
    refused = trouble.code == "protocol" or (trouble.status is not None and 400 <= trouble.status < 500)
    return "configuration" if refused and not trouble.answered else None


def _turn(turn: PlantedTurn) -> dict[str, Any]:
    if turn.user is not None:
        return {"user": turn.user}
    return {"assistant": turn.assistant or "", "commands": [[call.run, call.output] for call in turn.shell]}


def _picked(environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Without the line end that comes along when a key is read from a file."""
    return {name: environment[name].strip() for name in names if environment.get(name, "").strip()}
