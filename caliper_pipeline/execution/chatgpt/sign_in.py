"""Signing in through the browser: authorization code with PKCE, answered on loopback.

A first sign-in registers this program as an agent of the person's: it names itself, the machine, and the client id that
stands for "none yet"; the answer brings the id that was issued. A later one, while a login is stored, uses that id and
has to be for the same account.

A callback that is not the answer to this sign-in (a wrong state, a second value for a key) is turned away and waited
past; only the right one ends the waiting.
"""

import base64
import hashlib
import queue
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.chatgpt import store
from caliper_pipeline.execution.chatgpt.service import (
    AGENT_NAME,
    API,
    FIRST_CLIENT,
    SCOPES,
    USAGE_PAGE,
    Endpoints,
    NoReply,
    discover,
    issuer_of,
    post,
)
from caliper_pipeline.execution.chatgpt.session import revoke
from caliper_pipeline.execution.chatgpt.store import Login
from caliper_pipeline.execution.chatgpt.tokens import NoPlan, Tokens, Unusable, read_identity, read_tokens

LIMIT_SECONDS = 300.0
PORT = 1455
PATH = "/auth/callback"
_HOST = "127.0.0.1"
_OTHER_ACCOUNT = "To use another account, sign out first: caliper logout chatgpt"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to the browser and back; nothing of it is used twice."""

    state: str
    nonce: str
    verifier: str
    redirect: str
    client_id: str

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def sign_in(
    operator: Operator,
    show: Callable[[str], None],
    *,
    limit_seconds: float = LIMIT_SECONDS,
    port: int = PORT,
    clock: Callable[[], float] = time.time,
) -> Login:
    """Have a person sign in at the address that is handed to `show`, and store the login.

    Raises `CannotRun` when it does not come to one; what was stored before then stays.
    """
    issuer = issuer_of(operator.environment)
    before = _before(operator, issuer)
    endpoints = discover(issuer)
    with _callback_server(port) as (server, answers):
        attempt = _Attempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(64),
            redirect=f"http://{_HOST}:{server.server_port}{PATH}",
            client_id=FIRST_CLIENT if before is None else before.client_id,
        )
        server.state = attempt.state
        show(_address(endpoints, attempt, store.host_id(operator)))
        try:
            answer = answers.get(timeout=limit_seconds)
        except queue.Empty:
            raise CannotRun(
                f"Nobody signed in to ChatGPT within {limit_seconds:g} seconds.",
                hint=f"Run the command again. Is the browser on another machine? It has to reach port {PORT} of this "
                f"one: ssh -L {PORT}:127.0.0.1:{PORT} …" + (f" {_OTHER_ACCOUNT}" if before else ""),
            ) from None
    client_id = _issued(answer, before)
    asked = clock()
    tokens = _exchanged(endpoints, attempt, client_id, answer["code"])
    login = _checked(tokens, endpoints, attempt, client_id, issuer, before, asked)
    with store.locked(operator):
        store.save(operator, login)
    return login


def _before(operator: Operator, issuer: str) -> Login | None:
    """The stored login, if it is one of this issuer's."""
    try:
        login = store.load(operator)
    except CannotRun:
        return None  # it is about to be replaced
    return login if login is not None and login.issuer == issuer else None


def _address(endpoints: Endpoints, attempt: _Attempt, host: str) -> str:
    asked = {
        "response_type": "code",
        "client_id": attempt.client_id,
        "redirect_uri": attempt.redirect,
        "scope": " ".join(SCOPES),
        "resource": API,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
        "ext_agent_host_id": host,
        **({"agent_name_hint": AGENT_NAME} if attempt.client_id == FIRST_CLIENT else {}),
    }
    return f"{endpoints.authorization}?{urlencode(asked)}"


def _issued(answer: Mapping[str, str], before: Login | None) -> str:
    """The client id to go on with."""
    if "error" in answer:
        told = " ".join(f"{answer['error']} {answer.get('error_description', '')}".split())[:200]
        raise CannotRun(f"ChatGPT did not let you in: {told}", hint="Nothing was stored. Try again when you like.")
    if not answer.get("code"):
        raise CannotRun("ChatGPT's answer holds no code.", hint="Nothing was stored. Try again.")
    issued = answer.get("client_id", "")
    if before is not None:
        if issued not in ("", before.client_id):
            raise CannotRun("ChatGPT answered for another account than the one that is signed in.", hint=_OTHER_ACCOUNT)
        return before.client_id
    if issued in ("", FIRST_CLIENT):
        raise CannotRun("ChatGPT did not register this program: its answer holds no client id.", hint="Try again.")
    return issued


def _exchanged(endpoints: Endpoints, attempt: _Attempt, client_id: str, code: str) -> Tokens:
    form = {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "code": code,
        "code_verifier": attempt.verifier,
        "redirect_uri": attempt.redirect,
        "resource": API,
    }
    try:
        answer = post(endpoints.token, form)
    except NoReply as error:
        raise CannotRun(f"The sign-in service cannot be reached: {error}", hint="Nothing was stored.") from error
    if not answer.ok:
        raise CannotRun(f"The sign-in service gave no tokens: {answer.words}", hint="Nothing was stored. Try again.")
    try:
        return read_tokens(answer.body if "scope" in answer.body else {**answer.body, "scope": "none told"})
    except Unusable as error:
        # A login that is not kept should not stay valid somewhere else.
        unkept = answer.body.get("refresh_token")
        if isinstance(unkept, str):
            revoke(endpoints.revocation, client_id, unkept, wait=lambda seconds: None)
        raise CannotRun(
            f"ChatGPT let you in, but without the use of your plan: {error}."
            if isinstance(error, NoPlan)
            else f"The sign-in service's answer is of no use: {error}.",
            hint=f"Nothing was stored. A plan of its own (Plus, Pro) is needed, and your consent; see {USAGE_PAGE}",
        ) from error


def _checked(
    tokens: Tokens,
    endpoints: Endpoints,
    attempt: _Attempt,
    client_id: str,
    issuer: str,
    before: Login | None,
    asked: float,
) -> Login:
    subject = before.subject if before else None
    try:
        if tokens.id_token is None or tokens.refresh is None:
            raise Unusable("it lacks an ID token or a refresh token")
        claims = read_identity(
            tokens.id_token, issuer=issuer, client_id=client_id, now=asked, nonce=attempt.nonce, subject=subject
        )
    except Unusable as error:
        if tokens.refresh is not None:
            revoke(endpoints.revocation, client_id, tokens.refresh, wait=lambda seconds: None)
        raise CannotRun(
            f"The sign-in service's answer is of no use: {error}.",
            hint="Nothing was stored." + (f" {_OTHER_ACCOUNT}" if before else ""),
        ) from error
    email = claims.get("email")
    return Login(
        issuer=issuer,
        client_id=client_id,
        subject=claims["sub"],
        email=email if isinstance(email, str) else "",
        access_token=tokens.access,
        refresh_token=tokens.refresh,
        obtained_at=asked,
        expires_at=asked + tokens.lifetime_seconds,
        token_endpoint=endpoints.token,
        revocation_endpoint=endpoints.revocation,
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    state = ""
    answers: "queue.Queue[dict[str, str]]"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that opens a connection and drops it is nothing to tell of."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path != PATH:
            self._say(404, "There is nothing here.")
            return
        given = parse_qs(parts.query, keep_blank_values=True)
        single = {name: values[0] for name, values in given.items() if len(values) == 1}
        if len(single) != len(given) or not secrets.compare_digest(
            single.get("state", "").encode(), self.server.state.encode()
        ):
            self._say(400, "This is not the answer to the sign-in that is under way.")
        elif self._hand_over(single):
            self._say(200, "You can close this page and go back to the terminal.")

    def _hand_over(self, answer: dict[str, str]) -> bool:
        try:
            self.server.answers.put_nowait(answer)
        except queue.Full:
            self._say(400, "This sign-in was answered already.")
            return False
        return True

    def _say(self, status: int, words: str) -> None:
        data = words.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """The address that was asked for holds the code."""


@contextmanager
def _callback_server(port: int) -> Iterator[tuple[_Server, "queue.Queue[dict[str, str]]"]]:
    """A server on loopback: at that port, or at any free one when it is taken."""
    try:
        server = _Server((_HOST, port), _Handler)
    except OSError:
        server = _Server((_HOST, 0), _Handler)
    server.answers = queue.Queue(maxsize=1)
    serving = Thread(target=server.serve_forever, args=(0.05,), daemon=True, name="sign-in-callback")
    serving.start()
    try:
        yield server, server.answers
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
