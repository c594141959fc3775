"""MCP servers through the official SDK, whose tools are offered as `mcp__<server>__<tool>`.

The SDK is asynchronous: an event loop in a thread of its own holds the connections, and calls wait for it. Most servers
speak the protocol with a handshake; one that refuses it is asked again in the newer way, on a new connection.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import AsyncExitStack
from typing import Any

from .events import clean
from .failures import RequestFailed
from .talk import Result, Tool

CONNECT_SECONDS = 30.0
CALL_SECONDS = 120.0
_MODES = ("legacy", "auto")
_LONGEST_NAME = 64
_MOST_PAGES = 100
_RESULT_CHARS = 60_000


class Servers:
    """A context manager: connected inside. Raises `RequestFailed` when one does not answer; without its tools the
    task would be another."""

    def __init__(
        self,
        declared: Sequence[Mapping[str, Any]],
        env: Mapping[str, str],
        workdir: str,
        seconds_left: Callable[[], float],
    ) -> None:
        self._declared = declared
        self._env = env
        self._workdir = workdir
        self._seconds_left = seconds_left
        self.tools: dict[str, tuple[Tool, Callable[[dict[str, Any]], Result]]] = {}

    def __enter__(self) -> "Servers":
        if not self._declared:
            return self
        import anyio
        from anyio.from_thread import start_blocking_portal

        self._anyio = anyio
        self._holder = start_blocking_portal()
        self._portal = self._holder.__enter__()
        self._over = self._portal.call(anyio.Event)
        waiting: list[tuple[str, Future[Any]]] = []
        for server in self._declared:
            ready: Future[Any] = Future()
            self._portal.start_task_soon(self._hold, server, ready)
            waiting.append((server["name"], ready))
        for name, ready in waiting:
            try:
                client, tools = ready.result(min(CONNECT_SECONDS, max(0.1, self._seconds_left())))
            except Late:
                raise _unusable(name, f"no answer within {CONNECT_SECONDS:g} s") from None
            except Exception as error:
                raise _unusable(name, _reason(error)) from error
            for tool in tools:
                self._offer(name, client, tool)
        return self

    def __exit__(self, *exc: object) -> None:
        """Servers get a moment to close; who fails or hurries leaves that to whoever ends this process."""
        if self._declared and exc[0] is None:
            self._portal.call(self._over.set)
            self._holder.__exit__(None, None, None)

    async def _hold(self, server: Mapping[str, Any], ready: "Future[Any]") -> None:
        """Keeps one server connected until the end."""
        for mode in _MODES:
            try:
                async with AsyncExitStack() as stack:
                    client, tools = await self._connect(stack, server, mode)
                    ready.set_result((client, tools))
                    await self._over.wait()
                    return
            except BaseException as error:
                if ready.done():
                    return  # at the end, whatever a server makes of it
                if mode == _MODES[-1] or not _is_answer(error):
                    ready.set_exception(error if isinstance(error, Exception) else ConnectionError(str(error)))
                    return

    async def _connect(self, stack: AsyncExitStack, server: Mapping[str, Any], mode: str) -> tuple[Any, list[Any]]:
        from mcp import Client

        client = await stack.enter_async_context(Client(await self._transport(stack, server), mode=mode))
        tools: list[Any] = []
        if client.server_capabilities is None or client.server_capabilities.tools is None:
            return client, tools
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return client, tools

    async def _transport(self, stack: AsyncExitStack, server: Mapping[str, Any]) -> Any:
        if server["kind"] == "stdio":
            from mcp import StdioServerParameters, stdio_client

            parameters = StdioServerParameters(
                command=server["command"],
                args=list(server["args"]),
                env={**self._env, **server["env"]},
                cwd=self._workdir,
                encoding_error_handler="replace",
            )
            return stdio_client(parameters)
        if server["kind"] == "sse":
            from mcp.client.sse import sse_client

            return sse_client(server["url"], headers=dict(server["headers"]), timeout=CONNECT_SECONDS)
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        limits = httpx2.Timeout(CONNECT_SECONDS, read=CALL_SECONDS + CONNECT_SECONDS)
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(server["headers"]), timeout=limits))
        return streamable_http_client(server["url"], http_client=http)

    def _offer(self, server: str, client: Any, tool: Any) -> None:
        name = tool_name(server, tool.name)
        described = tool.model_dump(mode="json", by_alias=True)
        offered = Tool(name, clean(described.get("description") or ""), clean(described.get("inputSchema") or {}))

        def act(given: dict[str, Any]) -> Result:
            return self._call(client, tool.name, given)

        self.tools[name] = (offered, act)

    def _call(self, client: Any, tool: str, given: dict[str, Any]) -> Result:
        seconds = max(0.1, min(CALL_SECONDS, self._seconds_left()))
        asked = self._portal.start_task_soon(client.call_tool, tool, given)
        try:
            return _result(asked.result(seconds).model_dump(mode="json", by_alias=True))
        except Late:
            asked.cancel()
            return Result(f"The server gave no answer within {seconds:g} s.", failed=True)
        except Exception as error:
            return Result(_reason(error), failed=True)


def tool_name(server: str, tool: str) -> str:
    """The name that a model may call it by: both services take 64 letters, digits, `_` and `-`."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp__{server}__{tool}")
    if len(name) <= _LONGEST_NAME:
        return name
    mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{mark}"


def _result(told: Mapping[str, Any]) -> Result:
    """The answer as text; blocks that are no text are named, not shown."""
    parts = []
    for block in told.get("content") or ():
        resource = block.get("resource") or {}
        text = block.get("text", resource.get("text"))
        parts.append(text if isinstance(text, str) else f"[{block.get('type', '?')}]")
    text = clean("\n".join(parts))[:_RESULT_CHARS]
    if not text and told.get("structuredContent") is not None:
        text = str(clean(told["structuredContent"]))[:_RESULT_CHARS]
    return Result(text or "(nothing)", failed=told.get("isError") is True)


def _unusable(server: str, reason: str) -> RequestFailed:
    return RequestFailed(f"the MCP server {server} cannot be used: {reason}"[:500], code="mcp")


def _is_answer(error: BaseException) -> bool:
    """The server itself refused, as one does that does not know the handshake."""
    return type(_leaf(error)).__name__ in ("MCPError", "McpError")


def _reason(error: BaseException) -> str:
    leaf = _leaf(error)
    return str(leaf) or type(leaf).__name__


def _leaf(error: BaseException) -> BaseException:
    """The first exception of a group that is none itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
