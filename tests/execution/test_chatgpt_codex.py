"""Codex runs of somebody who signed in to a ChatGPT plan: what a call is given, and what it is not."""

import json
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import LoginRequired
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation, Operator
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.backends.codex_access import TOKEN_VARIABLE
from caliper_pipeline.execution.chatgpt import store
from caliper_pipeline.execution.chatgpt.store import Login

from .stand_in import operator

OWN_LOGIN = {"tokens": {"access_token": "own-access", "refresh_token": "own-refresh"}}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    (folder / ".codex").mkdir(parents=True)
    (folder / ".codex" / "auth.json").write_text(json.dumps(OWN_LOGIN), encoding="utf-8")
    (folder / "bin").mkdir()
    script = folder / "bin" / "codex"
    script.write_text("#!/bin/sh\necho codex-cli 0.171.0\n", encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def person(theirs: Path) -> Operator:
    """Signed in, with a token for the next hour."""
    found = operator(theirs, first_on_path=theirs / "bin", agent={"CODEX_API_KEY": "sk-key"})
    now = time.time()
    login = Login(
        issuer="https://issuer.test",
        client_id="issued-1",
        subject="account-1",
        email="person@example.test",
        access_token="access-plan",
        refresh_token="refresh-plan",
        obtained_at=now,
        expires_at=now + 3600,
        token_endpoint="http://127.0.0.1:9/token",
        revocation_endpoint="http://127.0.0.1:9/revoke",
    )
    store.save(found, login)
    return found


def call(person: Operator, home: Path, **more: object) -> Invocation:
    (home / "work").mkdir(parents=True)
    facts = {"engine": Engine("codex"), "prompt": "Hi.", "home": home, "workdir": home / "work", "operator": person}
    return Invocation(**{**facts, "timeout_seconds": 120.0, **more})  # type: ignore[arg-type]


def overrides(argv: tuple[str, ...]) -> dict[str, str]:
    return dict(argv[at + 1].split("=", 1) for at, word in enumerate(argv) if word == "-c")


def test_a_call_gets_a_provider_by_overrides_and_its_token_in_a_variable(person: Operator, tmp_path: Path) -> None:
    invocation = call(person, tmp_path / "home")
    Codex().prepare(invocation)
    command = Codex().command(invocation)
    given = overrides(command.argv)
    provider = json.loads(given["model_provider"])
    assert given[f"model_providers.{provider}.base_url"] == '"https://api.openai.com/v1"'
    assert given[f"model_providers.{provider}.wire_api"] == '"responses"'
    assert given[f"model_providers.{provider}.supports_websockets"] == "false"
    assert given[f"model_providers.{provider}.requires_openai_auth"] == "false"
    assert command.env[json.loads(given[f"model_providers.{provider}.env_key"])] == "access-plan"


def test_no_login_lands_in_the_home_and_no_token_in_the_arguments(person: Operator, tmp_path: Path) -> None:
    invocation = call(person, tmp_path / "home")
    Codex().prepare(invocation)
    command = Codex().command(invocation)
    everything = "".join(path.read_text(encoding="utf-8") for path in invocation.home.rglob("*") if path.is_file())
    everything += "".join(command.argv)
    for secret in ("access-plan", "refresh-plan", "own-access", "own-refresh"):
        assert secret not in everything
    assert "refresh" not in "".join(command.env.values())
    assert not (invocation.home / ".codex" / "auth.json").exists()


def test_nothing_that_the_agent_sees_names_this_product(person: Operator, tmp_path: Path) -> None:
    command = Codex().command(call(person, tmp_path / "home"))
    seen = " ".join([*command.argv, *command.env]).replace(str(tmp_path), "")
    assert "caliper" not in seen.lower()


def test_a_judge_uses_the_plan_as_well(person: Operator, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    question = JudgeInvocation(
        engine=Engine("codex"),
        prompt="?",
        home=home,
        workdir=home / "work",
        operator=person,
        timeout_seconds=60.0,
        system="Judge.",
    )
    Codex().prepare_judge(question)
    command = Codex().judge_command(question)
    assert command.env[TOKEN_VARIABLE] == "access-plan"
    assert not (home / ".codex" / "auth.json").exists()
    assert 'developer_instructions = "Judge."' in (home / ".codex" / "config.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "config",
    [
        'openai_base_url = "https://gateway.test/v1"',
        'forced_login_method = "api"',
        'model_provider = "ours"\n[model_providers.ours]\nname = "ours"\nenv_key = "OURS"',
    ],
)
def test_a_configuration_that_needs_no_login_is_left_alone(
    person: Operator, theirs: Path, tmp_path: Path, config: str
) -> None:
    (theirs / ".codex" / "config.toml").write_text(config, encoding="utf-8")
    invocation = call(person, tmp_path / "home")
    Codex().prepare(invocation)
    command = Codex().command(invocation)
    assert TOKEN_VARIABLE not in command.env
    assert "model_provider" not in overrides(command.argv)
    assert Codex().login_command(person) == (str(theirs / "bin" / "codex"), "login")


def test_without_a_plan_codex_uses_its_own_login(person: Operator, theirs: Path, tmp_path: Path) -> None:
    store.delete(person)
    invocation = call(person, tmp_path / "home")
    Codex().prepare(invocation)
    assert json.loads((invocation.home / ".codex" / "auth.json").read_bytes()) == OWN_LOGIN
    assert Codex().login_command(person) == (str(theirs / "bin" / "codex"), "login")


def test_connectors_of_codex_own_account_are_not_claimed_for_a_plan(person: Operator) -> None:
    assert Codex().user_layer(person) == ()
    store.delete(person)
    assert "mcp:codex_apps" in (Codex().user_layer(person) or ())


def test_a_refused_plan_is_found_before_the_first_attempt(person: Operator) -> None:
    login = store.load(person)
    assert login is not None
    store.save(person, replace(login, refused="HTTP 400 invalid_grant"))
    with pytest.raises(LoginRequired, match="Not logged in to ChatGPT"):
        Codex().check(person, (), Engine("codex"), None)
    assert Codex().login_command(person) == ("caliper", "login", "chatgpt")
