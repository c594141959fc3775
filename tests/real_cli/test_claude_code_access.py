"""How the real Claude Code CLI reaches a model: what the default rules let through takes effect, isolated or not."""

import datetime
import ipaddress
import json
import os
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer

from caliper_pipeline.domain.project import AGENT, EVERYWHERE
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.environment import operator_from
from caliper_pipeline.execution.process import ProcessLauncher

from .claude_driver import Real, driven

pytestmark = pytest.mark.real_cli


@pytest.fixture
def real(models: ModelServer, launcher: ProcessLauncher, claude_folder: Path) -> Iterator[Real]:
    with driven(models, launcher, claude_folder) as made:
        yield made


class Gatekeeper:
    """Keeps the lines of the requests that reach it, and serves none."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.lines: list[str] = []
        lines = self.lines

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                """Nothing on the terminal of a test."""

            def refuse(self) -> None:
                lines.append(self.requestline)
                self.rfile.read(int(self.headers.get("content-length") or 0))
                body = b'{"type":"error","error":{"type":"invalid_request_error","message":"seen"}}'
                self.send_response(400)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET = do_CONNECT = refuse  # noqa: N815

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that does not trust us."""

        self._http = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> "Gatekeeper":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def operator(real: Real, **exported: str) -> Operator:
    """Someone who exported these variables, under the rules that hold when caliper.yaml says nothing."""
    path = os.pathsep.join([str(real.claude_folder), os.environ["PATH"]])
    own = {
        "PATH": path,
        "HOME": str(real.theirs),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    real.theirs.mkdir(exist_ok=True)
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "CLAUDE_CODE_MAX_RETRIES")
    return operator_from({**own, **exported}, EVERYWHERE, (*AGENT, *quiet))


def test_bedrock_is_reached(real: Real) -> None:
    with Gatekeeper() as gate:
        by = operator(
            real,
            CLAUDE_CODE_USE_BEDROCK="1",
            CLAUDE_CODE_SKIP_BEDROCK_AUTH="1",
            ANTHROPIC_BEDROCK_BASE_URL=f"http://{gate.address}",
            AWS_REGION="eu-west-1",
        )
        real.attempt({}, model="anthropic.test-v1", operator=by)
    assert any(line.startswith("POST /model/anthropic.test-v1/invoke") for line in gate.lines), gate.lines


def test_vertex_is_reached_when_settings_choose_it(real: Real) -> None:
    with Gatekeeper() as gate:
        variables = {
            "CLAUDE_CODE_USE_VERTEX": "1",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
            "ANTHROPIC_VERTEX_BASE_URL": f"http://{gate.address}/v1",
            "ANTHROPIC_VERTEX_PROJECT_ID": "harbour",
            "CLOUD_ML_REGION": "europe-west1",
        }
        (real.theirs / ".claude").mkdir(parents=True)
        settings = json.dumps({"env": variables, "model": "pinned"})
        (real.theirs / ".claude" / "settings.json").write_text(settings, encoding="utf-8")
        real.attempt({}, model="claude-test@1", operator=operator(real))
    assert any("/projects/harbour/locations/europe-west1/" in line for line in gate.lines), gate.lines


def test_a_proxy_is_used(real: Real) -> None:
    with Gatekeeper() as gate:
        by = operator(
            real,
            HTTPS_PROXY=f"http://{gate.address}",
            ANTHROPIC_BASE_URL="https://model.invalid",
            ANTHROPIC_API_KEY="sk-test",
        )
        real.attempt({}, operator=by)
    assert any(line.startswith("CONNECT model.invalid:443") for line in gate.lines), gate.lines


def test_a_certificate_authority_of_ones_own_is_believed(real: Real, tmp_path: Path) -> None:
    context, authority = self_signed(tmp_path)
    with Gatekeeper(context) as gate:
        exported = {"ANTHROPIC_BASE_URL": f"https://{gate.address}", "ANTHROPIC_API_KEY": "sk-test"}
        real.attempt({}, operator=operator(real, NODE_EXTRA_CA_CERTS=str(authority), **exported))
    assert any(line.startswith("POST /v1/messages") for line in gate.lines), gate.lines


def test_a_key_that_a_command_gives_serves_an_isolated_attempt_and_a_judge(real: Real) -> None:
    helper = real.theirs / "key.sh"
    (real.theirs / ".claude").mkdir(parents=True)
    helper.write_text('#!/bin/sh\necho "sk-of-$(basename "$HOME")"\n', encoding="utf-8")
    helper.chmod(0o755)
    settings = '{"apiKeyHelper": "~/key.sh", "model": "pinned"}'
    (real.theirs / ".claude" / "settings.json").write_text(settings, encoding="utf-8")
    ran = real.attempt({"turns": [{"text": "ok"}]}, agent={"ANTHROPIC_API_KEY": ""})
    assert (ran.reply.final_answer, ran.requests[0].headers["x-api-key"]) == ("ok", "sk-of-operator")
    assert ran.requests[0].body["model"] != "pinned"
    verdict = {"text": '{"reasoning": "Fine.", "passed": true}'}
    result, requests = real.judge({"judge": [verdict]}, agent={"ANTHROPIC_API_KEY": ""})
    assert (result.passed, requests[0].headers["x-api-key"]) == (True, "sk-of-operator")


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context for 127.0.0.1, and the certificate to believe."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "harbour")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "ca.pem", folder / "key.pem"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return context, public
