"""An access token that lasts for one call, and signing out.

The stored token is used as long as it outlasts the call by a minute. Otherwise it is refreshed, under a lock that holds
back every other thread and process, and whoever waited looks again first: so one refresh serves them all. A call that
takes longer than any token lasts gets a token of which at least nine tenths are left; refreshing it would win nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from caliper_pipeline.domain.errors import CannotRun, LoginRequired
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.chatgpt import store
from caliper_pipeline.execution.chatgpt.service import API, Answer, NoReply, post
from caliper_pipeline.execution.chatgpt.store import Login
from caliper_pipeline.execution.chatgpt.tokens import Unusable, read_identity, read_tokens

LOG_IN = ("caliper", "login", "chatgpt")
MARGIN_SECONDS = 60.0
_FRESH = 0.9
_WAITS = (1.0, 3.0)
_USELESS_SECONDS = 30.0


def access_token(
    operator: Operator,
    seconds: float,
    *,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> str | None:
    """A token for a call that takes up to that many seconds. `None`: nobody signed in.

    Raises `LoginRequired` when the service no longer takes the login, `CannotRun` when it could not be asked.
    """
    login = store.load(operator)
    if login is None or _lasts(login, seconds, clock()):
        return None if login is None else login.access_token
    _refuse(login, clock())
    with store.locked(operator):
        login = store.load(operator)
        if login is None or _lasts(login, seconds, clock()):
            return None if login is None else login.access_token
        _refuse(login, clock())
        return _refreshed(operator, login, wait, clock).access_token


def check(operator: Operator) -> None:
    """Raises `LoginRequired` when it is already known that the stored login is of no use."""
    login = store.load(operator)
    if login is not None:
        _refuse(login, time.time())


@dataclass(frozen=True, slots=True)
class SignedOut:
    account: str
    """Whose login it was; empty when the file told nothing."""
    not_revoked: str = ""
    """Why the service did not confirm that it forgot the login. Empty: it did."""


def sign_out(operator: Operator, *, wait: Callable[[float], None] = time.sleep) -> SignedOut | None:
    """Revoke the login and delete it. `None`: there was none."""
    with store.locked(operator):
        try:
            login = store.load(operator)
        except CannotRun as error:
            store.delete(operator)
            return SignedOut("", error.message)
        if login is None:
            return None
        try:
            why = revoke(login.revocation_endpoint, login.client_id, login.refresh_token, wait=wait)
        finally:
            store.delete(operator)
    return SignedOut(login.account, why)


def revoke(endpoint: str, client_id: str, token: str, *, wait: Callable[[float], None] = time.sleep) -> str:
    """Have the service forget a refresh token. Gives why that is not certain; empty when it is."""
    form = {"client_id": client_id, "token": token, "token_type_hint": "refresh_token"}
    try:
        answer = _patiently(endpoint, form, wait)
    except NoReply as error:
        return str(error)
    return "" if answer.ok else answer.words


def _lasts(login: Login, seconds: float, now: float) -> bool:
    left = login.remaining(now)
    return left >= seconds + MARGIN_SECONDS or left >= _FRESH * (login.expires_at - login.obtained_at) > 0


def _refuse(login: Login, now: float) -> None:
    """A login that was refused is of use only as long as its last access token lasts, and then no longer."""
    if login.refused:
        raise required(f"the login of {login.account} was refused: {login.refused}")


def required(why: str) -> LoginRequired:
    error = LoginRequired(
        f"Not logged in to ChatGPT: {why}",
        hint=f"Sign in again: {' '.join(LOG_IN)}. Or go back to codex's own login: caliper logout chatgpt",
    )
    error.login_command = LOG_IN
    return error


def _refreshed(operator: Operator, login: Login, wait: Callable[[float], None], clock: Callable[[], float]) -> Login:
    form = {
        "grant_type": "refresh_token",
        "client_id": login.client_id,
        "refresh_token": login.refresh_token,
        "resource": API,
    }
    asked = clock()
    try:
        answer = _patiently(login.token_endpoint, form, wait)
        why = answer.words
    except NoReply as error:
        answer, why = None, str(error)
    if answer is not None and answer.status in (400, 401) and answer.code:
        store.save(operator, replace(login, refused=why))
        raise required(f"the service refused to renew the login of {login.account}: {why}")
    if answer is None or not answer.ok:
        return _last_resort(login, why, clock())
    try:
        tokens = read_tokens(answer.body)
        if tokens.id_token is not None:
            read_identity(
                tokens.id_token, issuer=login.issuer, client_id=login.client_id, now=clock(), subject=login.subject
            )
    except Unusable as error:
        store.save(operator, replace(login, refused=str(error)))
        raise required(f"the service renewed the login, but {error}") from error
    renewed = replace(
        login,
        access_token=tokens.access,
        refresh_token=tokens.refresh or login.refresh_token,
        obtained_at=asked,
        expires_at=asked + tokens.lifetime_seconds,
    )
    store.save(operator, renewed)  # before anyone uses it: the old refresh token is worth nothing now
    return renewed


def _last_resort(login: Login, why: str, now: float) -> Login:
    """The token that is still there: most calls end long before their limit."""
    if login.remaining(now) > _USELESS_SECONDS:
        return login
    raise CannotRun(
        f"The ChatGPT login could not be renewed: {why}",
        hint="The sign-in service cannot be reached at the moment; the login itself is kept. Try again later with: "
        "caliper run --resume",
    )


def _patiently(address: str, form: dict[str, str], wait: Callable[[float], None]) -> Answer:
    """The answer, asked for again while the service is busy or silent. Raises `NoReply`."""
    for pause in _WAITS:
        try:
            answer = post(address, form)
        except NoReply:
            pass
        else:
            if answer.status < 500 and answer.status != 429:
                return answer
        wait(pause)
    return post(address, form)
