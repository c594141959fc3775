"""What the token endpoint answers, checked before anything of it is believed.

The signature of an ID token is not verified: it comes straight from the issuer over TLS, where OpenID Connect lets the
server's certificate stand for it (Core 1.0, §3.1.3.7). Everything else about it is.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caliper_pipeline.execution.chatgpt.service import PLAN_SCOPE

_SKEW_SECONDS = 60.0


class Unusable(Exception):
    """The answer is not one to store, and why."""


class NoPlan(Unusable):
    """The person, or the account, does not let requests count against the plan."""


@dataclass(frozen=True, slots=True)
class Tokens:
    access: str
    refresh: str | None
    """`None`: the one that was used stays."""
    id_token: str | None
    lifetime_seconds: float
    scope: str | None
    """`None`: as before."""


def read_tokens(body: Mapping[str, Any]) -> Tokens:
    """The tokens in an answer. Raises `Unusable`."""
    access, seconds = body.get("access_token"), body.get("expires_in")
    if not isinstance(access, str) or not access or not access.isascii() or not access.isprintable():
        raise Unusable("it holds no access token")
    if str(body.get("token_type", "")).lower() != "bearer":
        raise Unusable(f"the token is of the type {body.get('token_type')!r}, not bearer")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise Unusable(f"the token lasts {seconds!r} seconds")
    scope = _text(body, "scope")
    if scope is not None and PLAN_SCOPE not in scope.split():
        raise NoPlan(f"{PLAN_SCOPE} is not among the granted scopes ({scope})")
    return Tokens(access, _text(body, "refresh_token"), _text(body, "id_token"), float(seconds), scope)


def read_identity(
    token: str, *, issuer: str, client_id: str, now: float, nonce: str | None = None, subject: str | None = None
) -> Mapping[str, Any]:
    """The claims of an ID token. `nonce`, `subject`: what they have to be, where that is known. Raises `Unusable`."""
    claims = _claims(token)
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires = claims.get("exp")
    if claims.get("iss") != issuer:
        raise Unusable(f"the ID token is issued by {claims.get('iss')!r}, not by {issuer}")
    if client_id not in audiences or (len(audiences) > 1 and claims.get("azp") != client_id):
        raise Unusable("the ID token is meant for another client")
    if isinstance(expires, bool) or not isinstance(expires, int | float) or expires + _SKEW_SECONDS < now:
        raise Unusable("the ID token has expired; is the clock of this machine right?")
    if nonce is not None and claims.get("nonce") != nonce:
        raise Unusable("the ID token answers another sign-in (its nonce differs)")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise Unusable("the ID token names no account")
    if subject is not None and claims["sub"] != subject:
        raise Unusable("the ID token is of another account")
    return claims


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    try:
        middle = parts[1] if len(parts) == 3 else ""
        found = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unusable("the ID token cannot be read")
    return found


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) and value else None
