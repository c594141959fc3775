"""A model server on loopback that plays scenarios: what the real agent CLIs are driven against, offline.

It speaks the three protocols of `model_protocols`, streamed and whole. One server serves any number of scenarios at
once, each below a path of its own (`server.url(name)` is the base URL to hand to a CLI; clients of OpenAI's protocols
want `/v1` behind it), and keeps every request that it got.

A scenario is `{"turns": [TURN…]}`. Turn after turn answers one request of a conversation; after the last one the
answer is "done". Every CLI session is a conversation of its own, so parallel attempts do not eat each other's turns
(it is told by its id, or by the working directory that its system prompt names);
with `"shared": true` all sessions draw from one row of turns (a throttle that ends after n calls).

    judge    turns for requests that offer no tools, which is how a judge asks
    when     [{"text": …, "turns": […]}]: turns for conversations whose user messages hold that text; first match wins,
             a judge's own turns before it unless the rule has `judge: true`

Keys of a TURN, to be combined:

    text         what the model says; a list is one delta each
    thinking     a thinking block before it
    tools        [{"name", "input"}…]: tool calls after it; `namespace` and `kind: custom` for the Responses API
    stop_reason, usage, model          instead of the usual ones
    status, error_type, message, code  an HTTP error in the API's own shape; headers are sent along
    raw_body, ctype                    anything else, a page of HTML for instance
    stream_error                       an error event after the content: {"type", "message"}, or true for overloaded
    incomplete                         the Responses API ends the answer early, for this reason
    cut, hang, hang_mid, delay         drop the connection after the content; never answer; stall after the
                                       content; wait that many seconds first
    repeat                             play the turn that often

`{workdir}` in a tool's input becomes the working directory that the request names.
"""

import json
import re
import ssl
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from model_protocols import Protocol, protocol_of

_WORKDIR = re.compile(r"(?:[Ww]orking directory: |<cwd>\s*)(/[^\n\"\\<]*)")


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names of the tools offered to the model."""
        offered = self.body.get("tools") or []
        return [str(tool.get("name") or (tool.get("function") or {}).get("name")) for tool in offered]

    @property
    def text(self) -> str:
        """All text of the conversation so far, system prompt included."""
        told = [self.body.get(key) for key in ("system", "instructions", "messages", "input")]
        return "\n".join(_texts(told))

    @property
    def user_text(self) -> str:
        said = self.body.get("messages") or self.body.get("input") or []
        if isinstance(said, str):
            return said
        return "\n".join(_texts([item.get("content") for item in said if item.get("role") == "user"]))

    @property
    def session(self) -> str:
        told = (self.body.get("metadata") or {}).get("user_id") or self.body.get("prompt_cache_key")
        return str(told or self.workdir or "")

    @property
    def workdir(self) -> str | None:
        """The working directory that the request names."""
        found = _WORKDIR.search(self.text)
        return found[1].strip() if found else None


@dataclass
class _Played:
    scenario: dict[str, Any]
    requests: list[Request] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)


class ModelServer:
    """A context manager; scenarios may be added while it serves. With the file of a certificate and its key it speaks
    HTTPS."""

    def __init__(self, certificate: Path | None = None) -> None:
        self._scheme = "http" if certificate is None else "https"
        self._played: dict[str, _Played] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        owner = self

        class Handler(_Handler):
            server_state = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is part of the play."""

        self._http = Server(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "ModelServer":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def add(self, scenario: dict[str, Any], name: str | None = None) -> str:
        """The base URL under which the scenario is played from now on."""
        name = name or uuid.uuid4().hex[:12]
        with self._lock:
            self._played[name] = _Played(scenario)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}/s/{name}"

    def requests(self, url_or_name: str) -> list[Request]:
        """What was asked of the scenario so far, in order."""
        with self._lock:
            return list(self._played[url_or_name.rsplit("/", 1)[-1]].requests)

    def wait_until_closing(self, seconds: float | None = None) -> None:
        self._closing.wait(seconds)

    def next_turn(self, request: Request) -> dict[str, Any] | None:
        """The turn that answers this request. `None`: no such scenario."""
        name = request.path.removeprefix("/s/").split("/", 1)[0]
        with self._lock:
            played = self._played.get(name)
            if played is None:
                return None
            played.requests.append(request)
            branch, turns = _branch(played.scenario, request)
            key = (branch, "" if played.scenario.get("shared") else request.session)
            index = played.counts[key]
            played.counts[key] += 1
        for turn in turns:
            index -= int(turn.get("repeat", 1))
            if index < 0:
                return dict(turn)
        return {"text": "done"}


def _branch(scenario: dict[str, Any], request: Request) -> tuple[str, list[dict[str, Any]]]:
    asks_to_judge = "judge" in scenario and not request.tools
    for number, rule in enumerate(scenario.get("when", [])):
        if rule["text"] in request.user_text and (not asks_to_judge or rule.get("judge")):
            return f"when {number}", rule["turns"]
    if asks_to_judge:
        return "judge", scenario["judge"]
    return "", scenario.get("turns", [])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key in ("text", "content", "output"):
            yield from _texts(value.get(key))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: ModelServer

    def log_message(self, *args: Any) -> None:
        """Nothing on the terminal of a test."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(urlsplit(self.path).path, headers, json.loads(raw or b"{}"))
        protocol = protocol_of(request.path)
        turn = self.server_state.next_turn(request) if protocol is not None else None
        if protocol is None or turn is None:
            self._nothing_here()
            return
        turn = _filled(turn, request.workdir or ".")
        if turn.get("delay"):
            self.server_state.wait_until_closing(turn["delay"])
        if turn.get("hang"):
            self.server_state.wait_until_closing()
            self.close_connection = True
        elif "raw_body" in turn:
            self._send(turn.get("status", 200), turn["raw_body"].encode(), turn.get("ctype", "text/html"))
        elif turn.get("status", 200) != 200:
            self._send(turn["status"], json.dumps(protocol.error(turn)).encode(), headers=turn.get("headers"))
        elif request.body.get("stream"):
            self._stream(protocol, turn, request)
        else:
            self._send(200, json.dumps(protocol.whole(turn, request.body)).encode())

    def do_GET(self) -> None:
        """No list of models and no WebSocket; a client that asks for an upgrade is to use plain requests."""
        if self.headers.get("upgrade"):
            self._send(426, b"{}")
        else:
            self._nothing_here()

    def _nothing_here(self) -> None:
        error = {"type": "not_found_error", "message": f"nothing is served at {self.path}"}
        self._send(404, json.dumps({"type": "error", "error": error}).encode())

    def _send(
        self, status: int, body: bytes, ctype: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", ctype)
        self.send_header("content-length", str(len(body)))
        self.send_header("request-id", "req_" + uuid.uuid4().hex[:12])
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, protocol: Protocol, turn: dict[str, Any], request: Request) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        broken = any(turn.get(key) for key in ("stream_error", "cut", "hang_mid"))
        for event in protocol.events(turn, request.body, whole=not broken):
            self._event(event)
        if turn.get("cut"):
            # Closed without the chunk that ends a body: the other side sees a lost connection.
            self.close_connection = True
        elif turn.get("hang_mid"):
            self.server_state.wait_until_closing()
            self.close_connection = True
        else:
            if turn.get("stream_error"):
                self._event(protocol.stream_error(turn))
            self.wfile.write(b"0\r\n\r\n")

    def _event(self, event: dict[str, Any] | str) -> None:
        if isinstance(event, str):
            text = f"data: {event}\n\n"
        elif "type" in event:
            text = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        else:
            text = f"data: {json.dumps(event)}\n\n"
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _filled(value: Any, workdir: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, workdir) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, workdir) for item in value]
    return value.replace("{workdir}", workdir) if isinstance(value, str) else value
