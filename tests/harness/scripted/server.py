"""A TCP server for one test, which leaves nothing open."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

Session = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A server that runs `session` for each connection. `opened` counts the connections."""

    def __init__(self, session: Session) -> None:
        self.opened = 0
        self.port = 0
        self._session = session
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=tls, limit=2**24
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self._writers.append(writer)
        self._tasks.append(asyncio.create_task(self._run(reader, writer)))

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._session(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    def cut(self) -> None:
        """Reset all connections. The server still listens."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.cut()
        # The transports close in the next iterations of the loop.
        for _ in range(3):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def raw_server(session: Session, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(session)
    await server.start(tls)
    try:
        yield server
    finally:
        await server.stop()
