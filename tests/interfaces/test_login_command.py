"""`caliper login chatgpt` and `caliper logout chatgpt`, against a sign-in service on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from oauth_server import EMAIL, OAuthServer, browser


class Desk:
    def __init__(self, folder: Path, service: OAuthServer) -> None:
        self.file = folder / ".config" / "caliper" / "chatgpt.json"
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "CALIPER_CHATGPT_ISSUER": service.url,
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "caliper_pipeline.interfaces.cli", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def log_in(self) -> tuple[int, str, str]:
        """With a person who opens the address that is printed. Exit code, address, what else is said."""
        process = self.start("login", "chatgpt")
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        browser(address)
        _, err = process.communicate(timeout=60)
        return process.returncode, address, err


@pytest.fixture
def service() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        yield server


@pytest.fixture
def desk(tmp_path: Path, service: OAuthServer) -> Desk:
    return Desk(tmp_path, service)


def test_whoever_opens_the_printed_address_is_signed_in(desk: Desk, service: OAuthServer) -> None:
    code, address, err = desk.log_in()
    assert code == 0, err
    assert address.startswith(f"{service.url}/accounts/authorize?")
    assert f"Signed in to ChatGPT as {EMAIL}." in err
    assert json.loads(desk.file.read_bytes())["client_id"] == "issued-1"


def test_a_refused_consent_ends_with_exit_code_2_and_stores_nothing(desk: Desk, service: OAuthServer) -> None:
    service.callback = {"error": "access_denied"}
    code, _, err = desk.log_in()
    assert code == 2
    assert "did not let you in: access_denied" in err
    assert not desk.file.exists()


def test_signing_out_revokes_the_login_and_says_so(desk: Desk, service: OAuthServer) -> None:
    desk.log_in()
    code, _, err = desk.run("logout", "chatgpt")
    assert (code, err) == (0, f"Signed out of ChatGPT ({EMAIL}). The login is deleted.\n")
    assert len(service.revoked) == 1
    assert not desk.file.exists()


def test_a_revocation_that_failed_is_told_with_what_to_do(desk: Desk, service: OAuthServer) -> None:
    desk.log_in()
    service.revoke_status = 400
    code, _, err = desk.run("logout", "chatgpt")
    assert code == 0
    assert "did not confirm that it is revoked: HTTP 400" in err
    assert "ChatGPT's settings" in err
    assert not desk.file.exists()


def test_signing_out_of_nothing_is_no_error(desk: Desk) -> None:
    assert desk.run("logout", "chatgpt") == (0, "", "You are not signed in to ChatGPT.\n")


def test_another_service_is_refused_with_the_ones_there_are(desk: Desk) -> None:
    code, _, err = desk.run("login", "elsewhere")
    assert code == 2
    assert "chatgpt" in err
