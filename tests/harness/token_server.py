"""A small token endpoint on loopback, whose responses a test determines."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from aiokclient.testing.tokens import unsecured_token


class Asked(NamedTuple):
    """One request: its path, its headers with lower-case names, and its form."""

    path: str
    headers: dict[str, str]
    form: dict[str, str]


Respond = Callable[[Asked], tuple[int, bytes] | None]


class TokenServer:
    """The endpoint. `respond` returns a status and a body, or None to be silent."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Asked] = []
        self.connections = 0
        self.left = asyncio.Event()
        """Set when a client has closed its connection."""
        self.asked = asyncio.Event()
        self.respond: Respond = grant

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(
                line.lower().split(": ", 1)[:1] + line.split(": ", 1)[1:] for line in head[1:-2]
            )
            body = await reader.readexactly(int(headers["content-length"]))
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            self.requests.append(Asked(head[0].split(" ")[1], headers, form))
            self.asked.set()
            answer = self.respond(self.requests[-1])
            if answer is None:
                await reader.read()
                return
            status, content = answer
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode())
            writer.write(content)
            await writer.drain()
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.left.set()
            writer.close()


def grant(asked: Asked) -> tuple[int, bytes]:
    return granted(unsecured_token("alice"))


def granted(token: object, **members: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": token, "token_type": "Bearer"} | members).encode()


def refused(error: str, description: str | None = None, status: int = 400) -> tuple[int, bytes]:
    return status, json.dumps({"error": error, "error_description": description}).encode()


@asynccontextmanager
async def token_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[TokenServer]:
    made = TokenServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    made.url = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{port}/token"
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
