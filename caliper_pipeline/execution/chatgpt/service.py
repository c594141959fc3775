"""The sign-in service: where it is, and how it is spoken to.

The flow is the one that OpenAI offers open-source programs ("Sign in with ChatGPT"): authorization code with PKCE, a
client id that is issued during the first sign-in, and scopes that let requests count against the plan. Only the
issuer, the API and these names are constants; the addresses of the endpoints are read from the issuer's OpenID
configuration at sign-in and stored with the login.

Two variables move the constants, for tests against a server on loopback: `CALIPER_CHATGPT_ISSUER` and
`CALIPER_CHATGPT_API`. Anything but loopback has to be HTTPS. Proxies and certificate authorities are those of the
process (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from caliper_pipeline import __version__
from caliper_pipeline.domain.errors import CannotRun

if TYPE_CHECKING:  # what speaks HTTP is imported when something is to be said, since every command imports this
    from urllib.request import OpenerDirector

ISSUER = "https://auth.openai.com"
API = "https://api.openai.com/v1"
"""The audience of the tokens, and where an agent sends its requests."""
FIRST_CLIENT = "dynamic_agent_client"
"""The client id of a first sign-in; the answer brings the one that was issued, which is used from then on."""
AGENT_NAME = "Caliper"
PLAN_SCOPE = "chatgpt.tokens.use.direct"
SCOPES = ("openid", "profile", "email", "offline_access", "resource.invoke", PLAN_SCOPE)
USAGE_PAGE = "https://chatgpt.com/settings"

_ISSUER_VARIABLE = "CALIPER_CHATGPT_ISSUER"
_API_VARIABLE = "CALIPER_CHATGPT_API"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_DISCOVERY = "/.well-known/openid-configuration"
_SECONDS = 20.0
_BYTES = 1_000_000
_WORDS = 200


@dataclass(frozen=True, slots=True)
class Endpoints:
    authorization: str
    token: str
    revocation: str


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Mapping[str, Any]
    """Empty when the body is no JSON object."""

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def code(self) -> str:
        """The service's own word for what is wrong; empty when it gives none."""
        error = self.body.get("error")
        found = error.get("code") if isinstance(error, dict) else error
        return found if isinstance(found, str) else ""

    @property
    def words(self) -> str:
        """What is wrong, for a person; never a token."""
        error = self.body.get("error")
        told = error.get("message") if isinstance(error, dict) else self.body.get("error_description")
        parts = [f"HTTP {self.status}", self.code, told if isinstance(told, str) else ""]
        return " ".join(" ".join(part for part in parts if part).split())[:_WORDS]


class NoReply(Exception):
    """The service could not be reached, or ended the connection."""


def issuer_of(environment: Mapping[str, str]) -> str:
    """Who issues the tokens. Raises `CannotRun` for an address that would send them in the clear."""
    return _moved(environment, _ISSUER_VARIABLE, ISSUER)


def api_of(environment: Mapping[str, str]) -> str:
    """Where requests for a model go. Raises as above."""
    return _moved(environment, _API_VARIABLE, API)


def discover(issuer: str) -> Endpoints:
    """The endpoints that the issuer names. Raises `CannotRun`."""
    try:
        answer = _send(issuer + _DISCOVERY, None)
    except NoReply as error:
        raise CannotRun(
            f"The sign-in service at {issuer} cannot be reached: {error}",
            hint="Look at the network; proxies are taken from HTTPS_PROXY, a certificate authority from SSL_CERT_FILE.",
        ) from error
    found = {name: answer.body.get(f"{name}_endpoint") for name in ("authorization", "token", "revocation")}
    if not answer.ok or answer.body.get("issuer") != issuer:
        raise CannotRun(f"The sign-in service at {issuer} does not describe itself: {answer.words}")
    for name, address in found.items():
        # Whoever could name another host here would be sent the tokens.
        if not isinstance(address, str) or _origin(address) != _origin(issuer):
            raise CannotRun(f"The sign-in service at {issuer} names no {name} endpoint of its own: {address!r}")
    return Endpoints(**{name: str(address) for name, address in found.items()})


def post(address: str, form: Mapping[str, str]) -> Answer:
    """Send a form. Raises `NoReply`."""
    from urllib.parse import urlencode

    return _send(address, urlencode(form).encode())


def _send(address: str, data: bytes | None) -> Answer:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    headers = {"Accept": "application/json", "User-Agent": f"caliper-pipeline/{__version__}"}
    request = Request(address, data, headers)  # its scheme was looked at
    try:
        with _opener().open(request, timeout=_SECONDS) as reply:
            return Answer(reply.status, _object(reply.read(_BYTES)))
    except HTTPError as refused:
        with refused:
            return Answer(refused.code, _object(_rest(refused)))
    except (OSError, HTTPException) as error:
        raise NoReply(str(getattr(error, "reason", None) or error or type(error).__name__)) from error


def _opener() -> "OpenerDirector":
    from urllib.request import HTTPRedirectHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """What is sent here are secrets: they go where they were meant to go."""

        def redirect_request(self, *args: Any) -> None:
            return None

    return build_opener(NoRedirects)


def _rest(refused: Any) -> bytes:
    try:
        return bytes(refused.read(_BYTES))
    except OSError:
        return b""


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _moved(environment: Mapping[str, str], variable: str, usual: str) -> str:
    named = environment.get(variable, "").rstrip("/")
    if not named:
        return usual
    scheme, host, _ = _origin(named)
    if scheme == "https" or (scheme == "http" and host in _LOOPBACK):
        return named
    raise CannotRun(f"{variable} is {named}: it has to be https, or http on loopback.", hint=f"Unset {variable}.")


def _origin(address: str) -> tuple[str, str | None, int | None]:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    try:
        return parts.scheme, parts.hostname, parts.port
    except ValueError:
        return "", None, None
