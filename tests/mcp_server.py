"""A small MCP server for tests, over stdio, streamable HTTP or SSE. It needs nothing but the standard library, so it
starts in 60 ms, and it misbehaves when told to.

    python tests/mcp_server.py --log FILE                          stdio, as a spec's `command` and `args`
    with McpServer("http", token="secret") as server: server.url   on loopback, inside a test

Tools: `echo` answers `echo: TEXT`, `shout` answers in capitals, `env` answers with a variable of its environment.

Whatever is received goes to the log, one JSON object a line: `{"start": {cwd, env, argv}}` when it begins, then each
message; over HTTP with its `headers`.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

SCRIPT = Path(__file__).resolve()
_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "echo", "description": "Repeats a text.", "inputSchema": _TEXT},
    {"name": "shout", "description": "Repeats a text in capitals.", "inputSchema": _TEXT},
    {"name": "env", "description": "Tells the value of a variable.", "inputSchema": _TEXT},
]


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """What is sent back. `None`: nothing, since it was no request."""
    method, call = message.get("method"), message.get("id")
    if method is None or call is None:
        return None
    params = message.get("params") or {}
    result: dict[str, Any] | None = None
    if method == "initialize":
        wanted = str(params.get("protocolVersion"))
        result = {
            "protocolVersion": wanted if wanted.startswith(("2024-", "2025-")) else "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test-server", "version": "1.0"},
        }
    elif method == "ping":
        result = {}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        text = str((params.get("arguments") or {}).get("text", ""))
        said = {"echo": f"echo: {text}", "shout": text.upper(), "env": os.environ.get(text, "(not set)")}
        result = {"content": [{"type": "text", "text": said.get(params.get("name"), "no such tool")}]}
    if result is None:
        error = {"code": -32601, "message": f"Method not found: {method}"}
        return {"jsonrpc": "2.0", "id": call, "error": error}
    return {"jsonrpc": "2.0", "id": call, "result": result}


class Log:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def keep(self, **entry: Any) -> None:
        if self._path is not None:
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """What a server kept; nothing when it never began."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


class McpServer:
    """A context manager; `kind` is `http` or `sse`. With a token, other requests get 401."""

    def __init__(self, kind: str, *, token: str | None = None, log: Path | None = None) -> None:
        self.kind = kind
        self.token = token
        self.log = Log(log)
        self.streams: dict[str, queue.SimpleQueue[dict[str, Any] | None]] = {}
        owner = self

        class Handler(_Handler):
            server_state = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/{'mcp' if self.kind == 'http' else 'sse'}"

    def __enter__(self) -> "McpServer":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for stream in self.streams.values():
            stream.put(None)
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: McpServer

    def log_message(self, *args: Any) -> None:
        """Nothing on the terminal of a test."""

    def do_POST(self) -> None:
        state = self.server_state
        message = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if not self._welcome():
            return
        state.log.keep(**message, headers={name.lower(): value for name, value in self.headers.items()})
        reply = answer(message)
        if state.kind == "sse":
            self._send(202, b"")
            stream = state.streams.get(self.path.partition("?session=")[2])
            if stream is not None and reply is not None:
                stream.put(reply)
        elif reply is None:
            self._send(202, b"")
        else:
            self._send(200, json.dumps(reply).encode())

    def do_GET(self) -> None:
        state = self.server_state
        if not self._welcome():
            return
        if state.kind != "sse":
            self._send(405, b"")
            return
        session = str(len(state.streams) + 1)
        stream = state.streams[session] = queue.SimpleQueue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self._event("endpoint", f"/messages?session={session}")
        while (reply := stream.get()) is not None:
            self._event("message", json.dumps(reply))

    def do_DELETE(self) -> None:
        self._send(405, b"")

    def _welcome(self) -> bool:
        token = self.server_state.token
        if token is None or self.headers.get("authorization") == f"Bearer {token}":
            return True
        self._send(401, b'{"error": "invalid_token"}')
        return False

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _event(self, name: str, data: str) -> None:
        self.wfile.write(f"event: {name}\ndata: {data}\n\n".encode())
        self.wfile.flush()


def stdio_args(log: Path | None = None, *more: str) -> list[str]:
    """The arguments behind `sys.executable` that start the server over stdio."""
    return [str(SCRIPT), *([] if log is None else ["--log", str(log)]), *more]


def _serve_stdio(options: argparse.Namespace, log: Log) -> None:
    log.keep(start={"cwd": str(Path.cwd()), "env": dict(os.environ), "argv": sys.argv})
    if options.child:
        # In a session of its own, as servers that start browsers or databases do.
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(options.child).write_text(str(child.pid), encoding="utf-8")
    if options.banner:
        _write("Welcome to the test server!")
    time.sleep(options.slow)
    for message in _messages():
        log.keep(**message)
        if options.mute:
            continue
        if message.get("method") in options.asks:
            # A server may ask too, and wait for the answer before it goes on.
            for number, method in enumerate(("ping", "roots/list", "sampling/createMessage", "no/such/method")):
                _say({"jsonrpc": "2.0", "id": f"mine-{number}", "method": method, "params": {}})
                log.keep(**next(_messages()))
        reply = answer(message)
        if reply is not None:
            _say(reply)


def _messages() -> Iterator[dict[str, Any]]:
    while line := sys.stdin.readline():
        if line.strip():
            yield json.loads(line)


def _say(message: dict[str, Any]) -> None:
    _write(json.dumps(message))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path)
    parser.add_argument("--child", help="start a process that outlives the server; its pid goes to this file")
    parser.add_argument("--banner", action="store_true", help="write a line that is no message first")
    parser.add_argument("--mute", action="store_true", help="never answer")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds before the first answer")
    parser.add_argument("--asks", action="append", default=[], help="ask questions of its own before answering this")
    options = parser.parse_args()
    _serve_stdio(options, Log(options.log))


if __name__ == "__main__":
    main()
