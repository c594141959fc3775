"""A model server on loopback that plays scenarios: what the real agent CLIs are driven against, offline.

It speaks the Messages API, streamed and whole. One server serves any number of scenarios at once, each below a path
of its own (`server.url(name)` is the base URL to hand to a CLI), and keeps every request that it got.

A scenario is `{"turns": [TURN…]}`. Turn after turn answers one request of a conversation; after the last one the
answer is "done". Every CLI session is a conversation of its own, so parallel attempts do not eat each other's turns;
with `"shared": true` all sessions draw from one row of turns (a throttle that ends after n calls).

    judge    turns for requests that offer no tools, which is how a judge asks
    when     [{"text": …, "turns": […]}]: turns for conversations whose user messages hold that text; first match wins

Keys of a TURN, to be combined:

    text         what the model says; a list is one delta each
    thinking     a thinking block before it
    tools        [{"name", "input"}…]: tool calls after it
    stop_reason, usage, model          instead of the usual ones
    status, error_type, message        an HTTP error in the API's own shape; headers are sent along
    raw_body, ctype                    anything else, a page of HTML for instance
    stream_error                       an `error` event after the content: {"type", "message"}, or true for overloaded
    cut, hang, hang_mid, delay         drop the connection after the content; never answer; stall after the
                                       content; wait that many seconds first
    repeat                             play the turn that often

`{workdir}` in a tool's input becomes the working directory that the request names.
"""

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 20,
}
OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}
_WORKDIR = re.compile(r"[Ww]orking directory: (/[^\n\"\\]*)")


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names of the tools offered to the model."""
        return [str(tool.get("name")) for tool in self.body.get("tools") or []]

    @property
    def text(self) -> str:
        """All text of the conversation so far, system prompt included."""
        return "\n".join(_texts([self.body.get("system"), self.body.get("messages")]))

    @property
    def user_text(self) -> str:
        users = [m.get("content") for m in self.body.get("messages") or [] if m.get("role") == "user"]
        return "\n".join(_texts(users))

    @property
    def session(self) -> str:
        return str((self.body.get("metadata") or {}).get("user_id", ""))


@dataclass
class _Played:
    scenario: dict[str, Any]
    requests: list[Request] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)


class ModelServer:
    """A context manager; scenarios may be added while it serves."""

    def __init__(self) -> None:
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
        return f"http://127.0.0.1:{self._http.server_address[1]}/s/{name}"

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
    if "judge" in scenario and not request.tools:
        return "judge", scenario["judge"]
    for number, rule in enumerate(scenario.get("when", [])):
        if rule["text"] in request.user_text:
            return f"when {number}", rule["turns"]
    return "", scenario.get("turns", [])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key in ("text", "content"):
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
        turn = self.server_state.next_turn(request)
        if turn is None or not request.path.endswith("/v1/messages"):
            self._send(404, _error("not_found_error", f"nothing is served at {self.path}"))
            return
        if turn.get("delay"):
            self.server_state.wait_until_closing(turn["delay"])
        if turn.get("hang"):
            self.server_state.wait_until_closing()
            self.close_connection = True
        elif "raw_body" in turn:
            self._send(turn.get("status", 200), turn["raw_body"].encode(), turn.get("ctype", "text/html"))
        elif turn.get("status", 200) != 200:
            body = _error(turn.get("error_type", "api_error"), turn.get("message", "refused"))
            self._send(turn["status"], body, headers=turn.get("headers"))
        elif request.body.get("stream"):
            self._stream(turn, request)
        else:
            self._send(200, json.dumps(_message(turn, request)).encode())

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

    def _stream(self, turn: dict[str, Any], request: Request) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        broken = any(turn.get(key) for key in ("stream_error", "cut", "hang_mid"))
        for event in _events(turn, request, whole=not broken):
            self._event(event)
        if turn.get("cut"):
            # Closed without the chunk that ends a body: the other side sees a lost connection.
            self.close_connection = True
        elif turn.get("hang_mid"):
            self.server_state.wait_until_closing()
            self.close_connection = True
        else:
            if turn.get("stream_error"):
                error = OVERLOADED if turn["stream_error"] is True else turn["stream_error"]
                self._event({"type": "error", "error": error})
            self.wfile.write(b"0\r\n\r\n")

    def _event(self, event: dict[str, Any]) -> None:
        data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def _blocks(turn: dict[str, Any], request: Request) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if "thinking" in turn:
        blocks.append({"type": "thinking", "thinking": turn["thinking"], "signature": "c2ln"})
    if "text" in turn:
        deltas = turn["text"] if isinstance(turn["text"], list) else [turn["text"]]
        blocks.append({"type": "text", "text": "".join(deltas), "deltas": deltas})
    for tool in turn.get("tools", []):
        call = {"type": "tool_use", "id": "toolu_" + uuid.uuid4().hex[:24], "name": tool["name"]}
        blocks.append(call | {"input": _filled(tool.get("input", {}), request)})
    return blocks


def _filled(value: Any, request: Request) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, request) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, request) for item in value]
    if isinstance(value, str) and "{workdir}" in value:
        found = _WORKDIR.search(request.text)
        return value.replace("{workdir}", found[1].strip() if found else ".")
    return value


def _message(turn: dict[str, Any], request: Request) -> dict[str, Any]:
    content = [{k: v for k, v in block.items() if k != "deltas"} for block in _blocks(turn, request)]
    return {
        "id": "msg_" + uuid.uuid4().hex[:20],
        "type": "message",
        "role": "assistant",
        "model": turn.get("model", request.body.get("model")),
        "content": content,
        "stop_reason": turn.get("stop_reason", "tool_use" if turn.get("tools") else "end_turn"),
        "stop_sequence": None,
        "usage": USAGE | turn.get("usage", {}),
    }


def _events(turn: dict[str, Any], request: Request, *, whole: bool) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer; not `whole`: up to the last delta, without an end."""
    message = _message(turn, request)
    usage, stop_reason = message["usage"], message["stop_reason"]
    start = message | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(_blocks(turn, request)):
        kind = block["type"]
        if kind == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in block["deltas"]]
        elif kind == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            empty = block | {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if whole or turn.get("stream_error") or turn.get("hang_mid"):
            yield {"type": "content_block_stop", "index": index}
    if whole:
        change = {"stop_reason": stop_reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": change, "usage": {"output_tokens": usage["output_tokens"]}}
        yield {"type": "message_stop"}
