"""A sign-in service on loopback: discovery, authorization with PKCE, tokens, rotating refresh tokens, revocation.

It issues a client id at the first sign-in, as the real one does. A refresh token is good for one use; the second use
ends the whole login, so a test sees at once whether two refreshed at the same time. `browser` plays the person.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

PLAN = "openid profile email offline_access resource.invoke chatgpt.tokens.use.direct"
EMAIL = "person@example.test"


class OAuthServer:
    """A context manager. Its attributes say how it behaves and may be changed while it serves."""

    def __init__(self) -> None:
        self.scope = PLAN
        self.lifetime = 3600
        self.claims: dict[str, Any] = {}
        """Laid over those of the ID tokens."""
        self.tokens: dict[str, Any] = {}
        """Laid over the answers of the token endpoint."""
        self.callback: dict[str, str] = {}
        """Laid over what the browser brings back."""
        self.troubles: list[int] = []
        """Statuses that the token endpoint answers first, one a request; 0 drops the connection."""
        self.revoke_status = 200
        self.dawdle = 0.0
        """Seconds that a refresh takes, so that others can meet it."""
        self.discovery: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Path and form (or query) of every request."""
        self.revoked: list[str] = []
        self.accounts = 0
        self._lock = threading.Lock()
        self._codes: dict[str, dict[str, str]] = {}
        self._good: dict[str, str] = {}
        """Refresh tokens that are still good → client id."""
        self._used: dict[str, str] = {}
        owner = self

        class Handler(_Handler):
            service = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is part of the play."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "OAuthServer":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def requests(self, path: str) -> list[dict[str, str]]:
        return [form for at, form in self.asked if at == path]

    @property
    def refreshes(self) -> int:
        return sum(form.get("grant_type") == "refresh_token" for form in self.requests("/accounts/token"))

    def grant(self, client_id: str = "issued-1") -> str:
        """A refresh token that is good, as if someone had signed in."""
        token = f"refresh-{secrets.token_hex(8)}"
        self._good[token] = client_id
        return token

    def is_good(self, refresh_token: str) -> bool:
        return refresh_token in self._good

    # -- what the endpoints answer

    def describe(self) -> dict[str, Any]:
        found = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/accounts/authorize",
            "token_endpoint": f"{self.url}/accounts/token",
            "revocation_endpoint": f"{self.url}/accounts/revoke",
        }
        return {**found, **self.discovery}

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser is sent."""
        client = query["client_id"]
        if client == "dynamic_agent_client":
            self.accounts += 1
            client = f"issued-{self.accounts}"
        code = secrets.token_hex(8)
        self._codes[code] = {**query, "client_id": client}
        back = {"code": code, "state": query["state"], "client_id": client, "scope": self.scope, **self.callback}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if form.get("grant_type") == "refresh_token":
            return self._refresh(form)
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form.get("redirect_uri")
            or asked["client_id"] != form.get("client_id")
        ):
            return 400, {"error": "invalid_grant", "error_description": "The code does not fit."}
        return 200, self._issue(form["client_id"], asked["nonce"])

    def _refresh(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        token = form.get("refresh_token", "")
        with self._lock:
            client = self._good.pop(token, None)
            if client is None:
                if token in self._used:
                    self._good.clear()  # as real services do: a token that is used twice was stolen
                    return 400, {"error": {"code": "refresh_token_reused", "message": "It was used already."}}
                return 400, {"error": "invalid_grant", "error_description": "Unknown token."}
            self._used[token] = client
        time.sleep(self.dawdle)
        return 200, self._issue(client, None)

    def _issue(self, client: str, nonce: str | None) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": self.url, "aud": client, "sub": "account-1", "email": EMAIL, "iat": now, "exp": now + 3600}
        claims |= {"nonce": nonce} if nonce else {}
        issued = {
            "access_token": f"access-{secrets.token_hex(8)}",
            "refresh_token": self.grant(client),
            "id_token": ".".join(_encoded(part) for part in ({"alg": "RS256"}, {**claims, **self.claims}, {})),
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "scope": self.scope,
        }
        return {name: value for name, value in {**issued, **self.tokens}.items() if value is not None}

    def revoke(self, form: dict[str, str]) -> int:
        if self.revoke_status == 200:
            self.revoked.append(form.get("token", ""))
            self._good.pop(form.get("token", ""), None)
        return self.revoke_status


class _Handler(BaseHTTPRequestHandler):
    service: OAuthServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.service.asked.append((parts.path, query))
        if parts.path == "/.well-known/openid-configuration":
            self._answer(200, self.service.describe())
        elif parts.path == "/accounts/authorize":
            self.send_response(302)
            self.send_header("Location", self.service.authorize(query))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(data).items()}
        self.service.asked.append((self.path, form))
        if self.path == "/accounts/revoke":
            self._answer(self.service.revoke(form), {})
        elif self.path == "/accounts/token":
            if self.service.troubles and (status := self.service.troubles.pop(0)) != 200:
                if status:
                    self._answer(status, {"error": "temporarily_unavailable"})
                else:
                    self.close_connection = True
                return
            self._answer(*self.service.exchange(form))
        else:
            self._answer(404, {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


def browser(address: str) -> tuple[int, str]:
    """Open the address as a browser would, to the page it ends at: its status and text."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=20) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def in_background(play: Callable[[str], object]) -> Callable[[str], None]:
    """`play`, in a thread: a person's browser does not keep the command waiting."""

    def show(address: str) -> None:
        threading.Thread(target=play, args=(address,), daemon=True).start()

    return show


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
