"""An HTTP proxy, through which tests reach schema registries."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit


class RegistryProxy:
    """An HTTP proxy: a tunnel for CONNECT, and one request of each connection for other methods."""

    def __init__(self, authorization: str | None = None) -> None:
        self.authorization = authorization
        self.requests: list[str] = []
        """The first line of each request, after which `headers` has its headers."""
        self.headers: list[dict[str, str]] = []
        self.echo = ""
        """The body of a refusal."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _accept(self, reader: Any, writer: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    async def _connect(self, host: str | None, port: int | None) -> Any:
        there, to_there = await asyncio.open_connection(host, port)
        self._writers.append(to_there)
        return there, to_there

    async def _serve(self, reader: Any, writer: Any) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in lines)
        }
        self.requests.append(first)
        self.headers.append(headers)
        if headers.get("proxy-authorization") != self.authorization:
            body = self.echo.encode()
            writer.write(b"HTTP/1.1 407 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
            return
        method, target, version = first.split()
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            there, to_there = await self._connect(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            parts = urlsplit(target)
            there, to_there = await self._connect(parts.hostname, parts.port)
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            kept = "".join(f"{line}\r\n" for line in lines if not line.lower().startswith("proxy-"))
            to_there.write(f"{method} {path} {version}\r\n{kept}\r\n".encode())
        await asyncio.gather(_pass(reader, to_there), _pass(there, writer))


async def _pass(reader: Any, writer: Any) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
