"""The ChatGPT plan login against a sign-in service on loopback."""

import json
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from oauth_server import EMAIL, OAuthServer, browser, in_background

from caliper_pipeline.domain.errors import CannotRun, LoginRequired
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.chatgpt import session, store
from caliper_pipeline.execution.chatgpt.service import api_of, issuer_of
from caliper_pipeline.execution.chatgpt.session import access_token, sign_out
from caliper_pipeline.execution.chatgpt.sign_in import sign_in
from caliper_pipeline.execution.chatgpt.store import Login


@pytest.fixture
def service() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        yield server


@pytest.fixture
def person(tmp_path: Path, service: OAuthServer) -> Operator:
    environment = {"HOME": str(tmp_path), "CALIPER_CHATGPT_ISSUER": service.url}
    return Operator(environment=environment, allowed={}, agent_allowed={}, home=tmp_path)


def signed_in(person: Operator, play: Any = browser, **more: Any) -> Login:
    return sign_in(person, in_background(play), **{"limit_seconds": 20.0, "port": 0, **more})


def stored(person: Operator, service: OAuthServer, *, left: float = 10.0, **more: Any) -> Login:
    """A login as if someone had signed in a while ago."""
    now = time.time()
    login = Login(
        issuer=service.url,
        client_id="issued-1",
        subject="account-1",
        email=EMAIL,
        access_token="access-old",
        refresh_token=service.grant(),
        obtained_at=now + left - 3600,
        expires_at=now + left,
        token_endpoint=f"{service.url}/accounts/token",
        revocation_endpoint=f"{service.url}/accounts/revoke",
    )
    login = replace(login, **more)
    store.save(person, login)
    return login


def never(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


# -- signing in


def test_a_sign_in_ends_with_a_login_that_only_its_owner_can_read(person: Operator) -> None:
    login = signed_in(person)
    path = person.home / ".config" / "caliper" / "chatgpt.json"
    assert store.load(person) == login
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (login.client_id, login.account) == ("issued-1", EMAIL)


def test_the_address_asks_for_the_plan_with_pkce_and_registers_this_machine(
    person: Operator, service: OAuthServer
) -> None:
    signed_in(person)
    (asked,) = service.requests("/accounts/authorize")
    assert asked["client_id"] == "dynamic_agent_client"
    assert asked["code_challenge_method"] == "S256"
    assert asked["scope"] == "openid profile email offline_access resource.invoke chatgpt.tokens.use.direct"
    assert asked["ext_agent_host_id"] == store.host_id(person)
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    assert asked["redirect_uri"].endswith("/auth/callback")


def test_a_second_sign_in_keeps_client_and_machine_but_no_secret(person: Operator, service: OAuthServer) -> None:
    first, second = signed_in(person), signed_in(person)
    one, two = service.requests("/accounts/authorize")
    assert second.client_id == first.client_id == two["client_id"]
    assert one["ext_agent_host_id"] == two["ext_agent_host_id"]
    for name in ("state", "nonce", "code_challenge"):
        assert one[name] != two[name]


def test_a_taken_port_is_no_obstacle(person: Operator, service: OAuthServer) -> None:
    taken = int(service.url.rpartition(":")[2])
    assert signed_in(person, port=taken).client_id == "issued-1"


def test_an_answer_with_another_state_is_turned_away_and_the_right_one_still_counts(person: Operator) -> None:
    pages: list[int] = []

    def play(address: str) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        pages.append(browser(f"{asked['redirect_uri']}?code=stolen&client_id=x&state=forged")[0])
        pages.append(browser(asked["redirect_uri"].replace("/auth/callback", "/"))[0])
        pages.append(browser(address)[0])

    login = signed_in(person, play)
    assert store.load(person) == login
    assert pages[:2] == [400, 404]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"error": "access_denied"}, "did not let you in: access_denied"),
        ({"client_id": "dynamic_agent_client"}, "did not register this program"),
        ({"client_id": ""}, "did not register this program"),
        ({"code": ""}, "holds no code"),
        ({"code": "another"}, "gave no tokens: HTTP 400 invalid_grant"),
    ],
)
def test_a_browser_that_brings_no_usable_answer_leaves_no_login(
    person: Operator, service: OAuthServer, told: dict[str, str], words: str
) -> None:
    service.callback = told
    with pytest.raises(CannotRun, match=words):
        signed_in(person)
    assert store.load(person) is None


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iss": "https://elsewhere.test"}, "issued by"),
        ({"aud": "another"}, "another client"),
        ({"aud": ["issued-1", "another"]}, "another client"),  # several audiences need an authorized party
        ({"nonce": "another"}, "nonce"),
        ({"exp": 1000}, "expired"),
        ({"sub": ""}, "no account"),
    ],
)
def test_an_id_token_that_does_not_fit_is_not_believed_and_its_login_revoked(
    person: Operator, service: OAuthServer, claims: dict[str, Any], words: str
) -> None:
    service.claims = claims
    with pytest.raises(CannotRun, match=words):
        signed_in(person)
    assert store.load(person) is None
    assert len(service.revoked) == 1


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ({"scope": "openid email"}, "without the use of your plan"),
        ({"scope": None}, "without the use of your plan"),
        ({"token_type": "mac"}, "not bearer"),
        ({"expires_in": "soon"}, "lasts 'soon'"),
        ({"access_token": "two\nlines"}, "no access token"),
        ({"refresh_token": None}, "lacks an ID token or a refresh token"),
        ({"id_token": "rubbish"}, "cannot be read"),
    ],
)
def test_tokens_that_are_of_no_use_are_not_stored(
    person: Operator, service: OAuthServer, tokens: dict[str, Any], words: str
) -> None:
    service.tokens = tokens
    with pytest.raises(CannotRun, match=words):
        signed_in(person)
    assert store.load(person) is None


def test_another_account_does_not_replace_the_one_that_is_signed_in(person: Operator, service: OAuthServer) -> None:
    login = signed_in(person)
    service.claims = {"sub": "account-2"}
    with pytest.raises(CannotRun, match="another account") as refused:
        signed_in(person)
    assert "caliper logout chatgpt" in str(refused.value.hint)
    assert store.load(person) == login


def test_a_person_who_does_not_come_back_is_waited_for_no_longer_than_the_limit(person: Operator) -> None:
    with pytest.raises(CannotRun, match=r"within 0\.05 seconds"):
        signed_in(person, lambda address: None, limit_seconds=0.05)


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://elsewhere.test"},
        {"token_endpoint": "https://elsewhere.test/token"},
        {"token_endpoint": None},
    ],
)
def test_a_service_that_points_elsewhere_is_not_followed(
    person: Operator, service: OAuthServer, described: dict[str, Any]
) -> None:
    service.discovery = described
    with pytest.raises(CannotRun, match="sign-in service"):
        signed_in(person)


def test_a_service_that_cannot_be_reached_is_named(person: Operator) -> None:
    nowhere = replace(person, environment={**person.environment, "CALIPER_CHATGPT_ISSUER": "http://127.0.0.1:9"})
    with pytest.raises(CannotRun, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        signed_in(nowhere)


@pytest.mark.parametrize("address", ["http://elsewhere.test", "ftp://127.0.0.1", "http://127.0.0.1:port"])
def test_tokens_are_not_sent_in_the_clear(address: str) -> None:
    for find, name in ((issuer_of, "CALIPER_CHATGPT_ISSUER"), (api_of, "CALIPER_CHATGPT_API")):
        with pytest.raises(CannotRun, match=name):
            find({name: address})


# -- tokens for calls


def test_without_a_login_there_is_no_token(person: Operator) -> None:
    assert access_token(person, 60) is None


def test_a_token_that_outlasts_the_call_is_used_as_it_is(person: Operator, service: OAuthServer) -> None:
    stored(person, service, left=185)
    assert access_token(person, 120) == "access-old"
    assert service.asked == []


def test_a_token_that_would_expire_within_the_call_is_refreshed_and_the_new_pair_kept(
    person: Operator, service: OAuthServer
) -> None:
    old = stored(person, service, left=175)
    token = access_token(person, 120)
    kept = store.load(person)
    assert kept is not None
    assert token == kept.access_token != old.access_token
    assert kept.refresh_token != old.refresh_token
    assert service.is_good(kept.refresh_token)
    assert access_token(person, 120) == token
    assert service.refreshes == 1


def test_a_call_longer_than_any_token_lasts_does_not_refresh_a_fresh_one(
    person: Operator, service: OAuthServer
) -> None:
    stored(person, service, left=3300)
    assert access_token(person, 7200) == "access-old"
    stored(person, service, left=3200)
    assert access_token(person, 7200) != "access-old"
    assert service.refreshes == 1


def test_a_service_that_gives_no_new_refresh_token_leaves_the_old_one(person: Operator, service: OAuthServer) -> None:
    old = stored(person, service)
    service.tokens = {"refresh_token": None}
    access_token(person, 120)
    kept = store.load(person)
    assert kept is not None
    assert kept.refresh_token == old.refresh_token


@pytest.mark.parametrize("trouble", [500, 503, 429, 0])
def test_a_busy_or_silent_service_is_asked_again_after_one_and_three_seconds(
    person: Operator, service: OAuthServer, trouble: int
) -> None:
    stored(person, service)
    service.troubles = [trouble, trouble]
    waits: list[float] = []
    assert str(access_token(person, 120, wait=waits.append)).startswith("access-")
    assert waits == [1.0, 3.0]


def test_a_refusal_is_remembered_and_the_used_up_token_not_tried_again(person: Operator, service: OAuthServer) -> None:
    stored(person, service, refresh_token="unknown")
    for _ in range(2):
        with pytest.raises(LoginRequired, match=r"Not logged in to ChatGPT.*invalid_grant") as refused:
            access_token(person, 120, wait=never)
        assert refused.value.login_command == ("caliper", "login", "chatgpt")
    assert service.refreshes == 1
    with pytest.raises(LoginRequired):
        session.check(person)


def test_a_refused_login_serves_as_long_as_its_last_token_does(person: Operator, service: OAuthServer) -> None:
    stored(person, service, left=900, refused="HTTP 400 invalid_grant")
    assert access_token(person, 120) == "access-old"


def test_a_new_sign_in_clears_the_refusal(person: Operator, service: OAuthServer) -> None:
    stored(person, service, refused="HTTP 400 invalid_grant")
    signed_in(person)
    session.check(person)
    assert str(access_token(person, 120)).startswith("access-")


def test_a_plan_that_was_taken_back_ends_the_login(person: Operator, service: OAuthServer) -> None:
    stored(person, service)
    service.scope = "openid email"
    with pytest.raises(LoginRequired, match=r"chatgpt\.tokens\.use\.direct"):
        access_token(person, 120)


def test_while_the_service_is_away_a_token_that_still_lasts_a_while_is_used(
    person: Operator, service: OAuthServer
) -> None:
    login = stored(person, service, left=90)
    service.troubles = [503] * 3
    assert access_token(person, 120, wait=lambda seconds: None) == "access-old"
    assert store.load(person) == login


def test_while_the_service_is_away_an_expired_token_stops_the_run_but_keeps_the_login(
    person: Operator, service: OAuthServer
) -> None:
    login = stored(person, service, left=5)
    service.troubles = [503] * 3
    with pytest.raises(CannotRun, match="could not be renewed: HTTP 503") as stopped:
        access_token(person, 120, wait=lambda seconds: None)
    assert not isinstance(stopped.value, LoginRequired)
    assert store.load(person) == login


_ASK = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.chatgpt.session import access_token
person = Operator(environment=dict(os.environ), allowed={}, agent_allowed={}, home=Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(8) as pool:
    print(",".join(pool.map(lambda _: access_token(person, 120), range(8))), flush=True)
"""


def test_eight_threads_in_each_of_two_processes_refresh_once(person: Operator, service: OAuthServer) -> None:
    old = stored(person, service)
    service.dawdle = 0.2
    command = [sys.executable, "-c", _ASK, str(person.home)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, env=person.environment, **pipes) as one,
        subprocess.Popen(command, env=person.environment, **pipes) as two,
    ):
        both = (one, two)
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        with ThreadPoolExecutor(2) as pool:
            told = list(pool.map(lambda process: process.communicate("go\n", timeout=60)[0], both))
    tokens = {token for line in told for token in line.strip().split(",")}
    assert len(tokens) == 1
    assert service.refreshes == 1
    kept = store.load(person)
    assert kept is not None
    assert service.is_good(kept.refresh_token)
    assert not service.is_good(old.refresh_token)


# -- signing out, and what is stored


def test_signing_out_revokes_and_deletes(person: Operator, service: OAuthServer) -> None:
    login = signed_in(person)
    out = sign_out(person)
    assert out is not None
    assert (out.account, out.not_revoked) == (EMAIL, "")
    assert service.revoked == [login.refresh_token]
    assert store.load(person) is None
    assert sign_out(person) is None


def test_a_revocation_that_is_not_confirmed_is_told_and_the_login_deleted_all_the_same(
    person: Operator, service: OAuthServer
) -> None:
    signed_in(person)
    service.revoke_status = 503
    out = sign_out(person, wait=lambda seconds: None)
    assert out is not None
    assert out.not_revoked == "HTTP 503"
    assert len(service.requests("/accounts/revoke")) == 3
    assert store.load(person) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"issuer": 1}', "{" * 100_000])
def test_a_damaged_file_is_named_with_its_remedy_and_can_be_removed(person: Operator, text: str) -> None:
    path = person.home / ".config" / "caliper" / "chatgpt.json"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CannotRun, match="damaged") as damaged:
        access_token(person, 60)
    assert damaged.value.hint == "Sign in anew: caliper login chatgpt"
    out = sign_out(person)
    assert out is not None
    assert "damaged" in out.not_revoked
    assert not path.exists()


def test_the_folder_is_the_one_that_xdg_names_unless_it_is_relative(person: Operator, tmp_path: Path) -> None:
    named = replace(person, environment={"XDG_CONFIG_HOME": str(tmp_path / "conf")})
    assert store.folder_of(named) == tmp_path / "conf" / "caliper"
    relative = replace(person, environment={"XDG_CONFIG_HOME": "conf"})
    assert store.folder_of(relative) == tmp_path / ".config" / "caliper"


def test_a_login_shows_no_token_where_it_is_printed(person: Operator, service: OAuthServer) -> None:
    login = stored(person, service)
    assert login.refresh_token not in repr(login)
    assert login.access_token not in f"{login}"


def test_fields_of_a_newer_version_do_no_harm(person: Operator, service: OAuthServer) -> None:
    login = stored(person, service)
    path = store.folder_of(person) / "chatgpt.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "new": 1}), encoding="utf-8")
    assert store.load(person) == login
