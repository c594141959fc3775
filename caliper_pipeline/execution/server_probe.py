"""The program that asks MCP servers whether they live. Run by path in a process of its own, never imported as part of
us: the SDK takes half a second to import and brings an event loop, and a server that hangs it can be killed with it.

It is told on standard input what to ask, and prints one line of JSON for each server as soon as that is known. What a
server asks of its client is answered by the SDK: pings with a pong, everything else with a refusal.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLOSING_SECONDS = 1.0 if sys.platform == "linux" else 6.0
"""How long servers get to end by themselves. On Linux whoever started us ends the tree; elsewhere the SDK has to."""
_MODES = ("legacy", "auto")
"""The handshake that servers know today; then, for one that refuses it, the newer way."""
_HEAD_CHARS = 200
_CLOSED = -32000
"""The SDK's code for a connection that ended."""


class _Server:
    def __init__(self, server: Mapping[str, Any], job: Mapping[str, Any]) -> None:
        self.server = server
        self.job = job
        self.known = asyncio.Event()
        self.status: int | None = None
        """Of the last HTTP answer that was an error."""
        self.noise: str | None = None
        """What came from the server that is no message."""
        self.stderr = Path(job["scratch"], f"{server['place']}.txt")

    async def ask(self) -> None:
        for mode in _MODES:
            self.status = None
            try:
                await self._ask(mode)
                return
            except Exception as error:
                if self.known.is_set():
                    return  # at the end, whatever a server makes of it
                if mode == _MODES[-1] or not self._refused(error):
                    self.tell(*self._reason(error))
                    return

    async def _ask(self, mode: str) -> None:
        from mcp import Client

        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                Client(await self._transport(stack), mode=mode, message_handler=self._heard)
            )
            capabilities = client.server_capabilities
            if capabilities is not None and capabilities.tools is not None:
                await client.list_tools()
            self.tell("")

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        server = self.server
        if server["kind"] == "stdio":
            from mcp import StdioServerParameters, stdio_client

            parameters = StdioServerParameters(
                command=server["command"],
                args=server["args"],
                env=server["env"],
                cwd=self.job["workdir"],
                encoding_error_handler="replace",
            )
            return stdio_client(parameters, errlog=stack.enter_context(self.stderr.open("a")))
        import httpx2

        async def answered(response: Any) -> None:
            # Over HTTP a server need not offer the stream that the client asks for besides.
            if response.status_code >= 400 and (server["kind"] == "sse" or response.request.method == "POST"):
                self.status = response.status_code

        def client(**given: Any) -> Any:
            return httpx2.AsyncClient(**given, event_hooks={"response": [answered]}, verify=_trusted())

        if server["kind"] == "sse":
            from mcp.client.sse import sse_client

            def made(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
                return client(headers=headers, timeout=timeout, auth=auth)

            return sse_client(server["url"], headers=server["headers"], httpx_client_factory=made)
        from mcp.client.streamable_http import streamable_http_client

        limits = httpx2.Timeout(self.job["seconds"])
        http = await stack.enter_async_context(client(headers=server["headers"], timeout=limits))
        return streamable_http_client(server["url"], http_client=http)

    async def _heard(self, message: Any) -> None:
        if isinstance(message, Exception) and self.noise is None:
            errors = message.errors() if hasattr(message, "errors") else []
            self.noise = str(errors[0].get("input") if errors else message)[:_HEAD_CHARS]

    def _refused(self, error: Exception) -> bool:
        """The server answered, and with a refusal of its own: it may speak the newer protocol only."""
        leaf = _leaf(error)
        return _is_answer(leaf) and getattr(leaf, "code", None) != _CLOSED and self.status not in (401, 403, 404)

    def _reason(self, error: Exception) -> tuple[str, str]:
        leaf = _leaf(error)
        if self.status is not None:
            return "status", str(self.status)
        if _is_answer(leaf):
            return ("ended", "") if getattr(leaf, "code", None) == _CLOSED else ("refused", str(leaf))
        if isinstance(leaf, OSError) and self.server["kind"] == "stdio":
            return "start", leaf.strerror or str(leaf)
        if type(leaf).__name__ in ("ValidationError", "RuntimeError", "SSEError"):
            return "foreign", str(leaf).splitlines()[0][:_HEAD_CHARS]
        return "unreachable", str(leaf) or type(leaf).__name__

    def tell(self, what: str, detail: str = "") -> None:
        if self.known.is_set():
            return
        self.known.set()
        said = self.stderr.read_bytes()[-4_000:].decode("utf-8", "replace") if self.stderr.exists() else ""
        line = {"name": self.server["name"], "what": what, "detail": detail, "stderr": said, "noise": self.noise}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _is_answer(error: BaseException) -> bool:
    return type(error).__name__ in ("MCPError", "McpError")


def _leaf(error: BaseException) -> BaseException:
    """The first exception of a group that is none itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _trusted() -> ssl.SSLContext:
    """The certificate authorities that agent commands believe: the usual ones, and those of the variable that the
    runtimes they are built on read besides."""
    context = ssl.create_default_context()
    with contextlib.suppress(OSError, ImportError):
        import certifi

        if not os.environ.get("SSL_CERT_FILE"):
            context.load_verify_locations(certifi.where())
    extra = os.environ.get("NODE_EXTRA_CA_CERTS")
    if extra:
        with contextlib.suppress(OSError):
            context.load_verify_locations(extra)
    return context


async def _ask_all(job: Mapping[str, Any]) -> None:
    servers = [_Server(server, job) for server in job["servers"]]
    asking = [asyncio.create_task(server.ask()) for server in servers]
    waiting = [asyncio.create_task(server.known.wait()) for server in servers]
    await asyncio.wait(waiting, timeout=job["seconds"])
    for server in servers:
        server.tell("silent")
    for task in (*asking, *waiting):
        task.cancel()
    await asyncio.wait(asking, timeout=CLOSING_SECONDS)


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    sys.path[:] = job["libraries"]
    logging.disable(logging.CRITICAL)
    gc.disable()  # importing the SDK makes 100,000 objects that stay
    import mcp  # before the clock of the servers starts

    del mcp

    async def ask() -> None:
        await _ask_all(job)
        os._exit(0)  # a server that would not end must not hold us

    asyncio.run(ask())


if __name__ == "__main__":
    main()
