"""The real codex CLI with a ChatGPT plan: which token it sends, and what an agent finds of the login."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from model_server import ModelServer
from oauth_server import OAuthServer

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.execution.backends.base import Invocation
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.chatgpt import store
from caliper_pipeline.execution.chatgpt.store import Login
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.workdir import make_attempt_folder

from .codex_driver import LIMIT_SECONDS, MODEL, Real, sh

pytestmark = pytest.mark.real_cli


@pytest.fixture
def real(models: ModelServer, launcher: ProcessLauncher, codex_binary: Path) -> Iterator[Real]:
    stop = StopToken()
    with make_attempt_folder() as folder:
        yield Real(models, launcher, codex_binary, folder, stop)
        launcher.end_group(folder.group)
    stop.close()


def test_the_access_token_is_sent_and_no_refresh_token_is_within_reach(real: Real) -> None:
    """The agent itself looks: at its environment, its home, and the arguments it was started with."""
    look = 'env; cat $(find "$HOME" -type f -size -200k | grep -v /skills/); tr "\\\\0" " " < /proc/$PPID/cmdline'
    url = real.models.add({"turns": [{"tools": [sh(look)]}, {"text": "Looked."}]})
    with OAuthServer() as service:
        person = real.operator(url, config="", CODEX_API_KEY="sk-other", OURS_API_KEY="")
        person = replace(person, environment={**person.environment, "CALIPER_CHATGPT_API": f"{url}/v1"})
        real.write(".codex/auth.json", '{"tokens": {"access_token": "own-a", "refresh_token": "own-refresh"}}')
        now = time.time()
        old = Login(
            issuer=service.url,
            client_id="issued-1",
            subject="account-1",
            email="",
            access_token="access-old",
            refresh_token=service.grant(),
            obtained_at=now - 3590,
            expires_at=now + 10,
            token_endpoint=f"{service.url}/accounts/token",
            revocation_endpoint=f"{service.url}/accounts/revoke",
        )
        store.save(person, old)
        folder = real.folder
        invocation = Invocation(
            engine=Engine("codex", MODEL),
            prompt="Look around.",
            home=folder.home,
            workdir=folder.workdir,
            operator=person,
            timeout_seconds=LIMIT_SECONDS,
            group=folder.group,
        )
        backend = Codex()
        backend.prepare(invocation)
        result = real.launcher.run(backend.command(invocation), real.stop)
        new = store.load(person)
    reply = backend.read(result, invocation)
    assert (result.exit_code, reply.final_answer, reply.model) == (0, "Looked.", MODEL)
    assert new is not None
    requests = real.models.requests(url)
    assert {request.headers["authorization"] for request in requests} == {f"Bearer {new.access_token}"}
    seen = "\n".join(str(turn) for turn in reply.turns)
    assert new.access_token in seen  # it really looked
    for secret in (old.refresh_token, new.refresh_token, "own-refresh"):
        assert secret not in seen
        assert secret.encode() not in b"".join(path.read_bytes() for path in folder.home.rglob("*") if path.is_file())
