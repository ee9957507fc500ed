"""HTTP in memory: clients of ASGI applications in a simulation, with faults.

`sim.http(app)` is an `AsyncClient` of httpx, or of httpx2, if one of them is installed, and
otherwise a `MemoryHttpClient` with the same calls. Timeouts are in virtual time.

The application is a process of its own, which a killed service does not take with it. With
`async with sim.http(app)`, it is a part of the program that enters the block: its lifespan begins
and ends with the block.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import Context, copy_context
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from types import TracebackType

    from aiokclient.testing.simulation.simulation import Simulation

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = "Callable[[], Awaitable[Any]]"
Send: TypeAlias = "Callable[[Any], Awaitable[None]]"
Application: TypeAlias = "Callable[[Any, Receive, Send], Awaitable[None]]"
_LIBRARIES: Final = ("httpx2", "httpx")
_TIMEOUT_S: Final = 5.0
_BUSY: Final = 503


class HttpResponse(NamedTuple):
    """The response of an application."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class ServiceConditions:
    """The conditions that faults change for a service: slow work, and HTTP that fails."""

    def __init__(self) -> None:
        self.work_delay = 0.0
        """The seconds by which `sim.work()` and HTTP requests are delayed."""
        self.http: list[str] = []
        """The failures of the next HTTP requests: "refuse", "lose", "hang", or "busy"."""
        self.http_in_flight = 0

    def clear(self) -> None:
        """End all faults. Requests that hang stay so."""
        self.work_delay = 0.0
        self.http.clear()

    def take_failure(self) -> str:
        return self.http.pop(0) if self.http else ""


class AsgiServer:
    """An application with its lifespan, and the requests to it."""

    def __init__(self, sim: Simulation, app: Application) -> None:
        self._sim, self._app = sim, app
        self._context: Context = sim.context
        self._state: dict[str, Any] = {}
        self._lifespan: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._replies: asyncio.Queue[Message] = asyncio.Queue()
        self._requests: set[asyncio.Task[None]] = set()

    # -- the lifespan --------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the lifespan. Raises RuntimeError if the application says that it failed."""
        self._context = copy_context()
        self._lifespan = asyncio.create_task(self._run_lifespan())
        self._sim.keep_task(self._lifespan)
        try:
            message = await self._exchange("startup")
        except BaseException:  # A cancelled start leaves nothing.
            await self._cancel_tasks()
            raise
        if message.get("type") == "lifespan.startup.failed":
            raise RuntimeError(f"The application did not start: {message.get('message', '')}")

    async def close(self) -> None:
        """Finish the requests that are being served, and end the lifespan. Raises what it raises.

        If it is cancelled, so are the requests and the lifespan.
        """
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is None:
            return
        if not lifespan.done():
            self._lifespan = lifespan
            try:
                if self._requests:  # Their clients may have given them up.
                    await asyncio.wait(list(self._requests))
                await self._exchange("shutdown")
                await asyncio.wait([lifespan])
            except BaseException:
                await self._cancel_tasks()
                raise
            self._lifespan = None
        lifespan.result()

    async def _cancel_tasks(self) -> None:
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            tasks = [lifespan, *self._requests]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _exchange(self, step: str) -> Message:
        """Send an event of the lifespan, and return the reply; an empty one if it has ended."""
        assert self._lifespan is not None
        self._events.put_nowait({"type": f"lifespan.{step}"})
        reply = asyncio.create_task(self._replies.get())
        try:
            await asyncio.wait([reply, self._lifespan], return_when=asyncio.FIRST_COMPLETED)
            return reply.result() if reply.done() else {}
        finally:
            reply.cancel()

    async def _run_lifespan(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self._state}
        began = False

        async def receive() -> Message:
            nonlocal began
            message = await self._events.get()
            began = message["type"] == "lifespan.shutdown"
            return message

        async def send(message: Message) -> None:
            self._replies.put_nowait(message)

        try:
            await self._app(scope, receive, send)
        except Exception:
            if began:
                raise
            # Applications that know no lifespan raise, as the specification of ASGI says.

    # -- requests ------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        url: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        timeout: float | None,
    ) -> HttpResponse:
        """Send a request. Raises ConnectionRefusedError, ConnectionResetError, TimeoutError."""
        self._sim.note_task()
        conditions = self._sim.conditions
        conditions.http_in_flight += 1
        try:
            async with asyncio.timeout(timeout):
                return await self._pass_request(method, url, headers, body)
        finally:
            conditions.http_in_flight -= 1

    async def _pass_request(
        self, method: str, url: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> HttpResponse:
        sim = self._sim
        if sim.is_killed:
            raise ConnectionResetError("the process of the client was killed")
        failure = sim.conditions.take_failure()
        await asyncio.sleep(sim.conditions.work_delay + sim.network.draw_latency())
        if failure == "refuse":
            raise ConnectionRefusedError("the simulated application refused the connection")
        if failure == "hang":
            await asyncio.get_running_loop().create_future()
        if failure == "busy":
            return HttpResponse(_BUSY, [], b"")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[HttpResponse] = loop.create_future()
        # The application goes on when its client has gone, as servers let it.
        task = loop.create_task(
            self._serve(method, url, headers, body, answer), context=self._context.copy()
        )
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        response = await answer
        sim.on_moment("http")
        await asyncio.sleep(sim.network.draw_latency())
        if failure == "lose":
            raise ConnectionResetError("the simulated connection was reset before the answer")
        return response

    async def _serve(
        self,
        method: str,
        url: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        answer: asyncio.Future[HttpResponse],
    ) -> None:
        parts = urlsplit(url)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method.upper(),
            "scheme": parts.scheme or "http",
            "path": parts.path or "/",
            "raw_path": (parts.path or "/").encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": headers,
            "server": (parts.hostname or "app", parts.port or 80),
            "client": ("127.0.0.1", 1),
            "state": dict(self._state),
        }
        status, sent = 500, bytearray()
        received: list[tuple[bytes, bytes]] = []
        is_read = False

        async def receive() -> Message:
            nonlocal is_read
            if is_read:
                await asyncio.wait([answer])
                return {"type": "http.disconnect"}
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                received.extend((bytes(k), bytes(v)) for k, v in message.get("headers", ()))
            elif message["type"] == "http.response.body":
                sent.extend(message.get("body", b""))
                if not message.get("more_body") and not answer.done():
                    answer.set_result(HttpResponse(status, received, bytes(sent)))

        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not answer.done():
                text = "the simulated application cancelled the request"
                answer.set_exception(ConnectionResetError(text))
            raise
        except Exception as error:
            self._sim.note_error("application", f"{method} {parts.path} failed: {error!r}")
        finally:
            if not answer.done():  # Servers answer so if an application raises.
                answer.set_result(HttpResponse(500, received, b"Internal Server Error"))


# -- clients -----------------------------------------------------------------------------------


def make_http_client(sim: Simulation, app: Application, options: Mapping[str, Any]) -> Any:
    """Return a client of the application: that of the installed library, or one of our own."""
    server = AsgiServer(sim, app)
    name = next((each for each in _LIBRARIES if each in sys.modules), None)
    name = name or next((each for each in _LIBRARIES if find_spec(each)), None)
    if name is None:
        return MemoryHttpClient(server, **options)
    library = import_module(name)
    options = {"base_url": "http://app", **options}
    return library.AsyncClient(transport=_make_transport(library, server), **options)


def _make_transport(library: Any, server: AsgiServer) -> Any:
    class AsgiTransport(library.AsyncBaseTransport):  # type: ignore[misc]
        """A transport of httpx whose requests go to the application."""

        async def __aenter__(self) -> Any:
            await server.start()
            return self

        async def __aexit__(self, *_: object) -> None:
            await server.close()

        async def handle_async_request(self, request: Any) -> Any:
            seconds = (request.extensions.get("timeout") or {}).get("read")
            body = await request.aread()
            headers = [(name.lower(), value) for name, value in request.headers.raw]
            try:
                answer = await server.request(
                    request.method, str(request.url), headers, body, seconds
                )
            except ConnectionRefusedError as error:
                raise library.ConnectError(str(error), request=request) from error
            except ConnectionError as error:
                raise library.ReadError(str(error), request=request) from error
            except TimeoutError as error:
                text = f"no answer within {seconds} s"
                raise library.ReadTimeout(text, request=request) from error
            return library.Response(
                answer.status, headers=answer.headers, content=answer.body, request=request
            )

    return AsgiTransport()


class MemoryHttpResponse:
    """A response, with the attributes that responses of httpx have."""

    def __init__(self, answer: HttpResponse) -> None:
        self.status_code = answer.status
        self.content = answer.body
        self.headers = {name.decode().lower(): value.decode() for name, value in answer.headers}

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)

    def raise_for_status(self) -> MemoryHttpResponse:
        """Raise OSError for a status of 400 or more; return the response otherwise."""
        if self.status_code >= 400:
            raise OSError(f"The application answered with status {self.status_code}.")
        return self


class MemoryHttpClient:
    """A client for programs without httpx. `timeout` is in seconds; None waits forever.

    Requests raise ConnectionError and TimeoutError.
    """

    def __init__(
        self,
        server: AsgiServer,
        *,
        base_url: str = "http://app",
        headers: Mapping[str, str] = {},
        timeout: float | None = _TIMEOUT_S,
    ) -> None:
        self._server = server
        self._base_url, self._headers, self._timeout = base_url.rstrip("/"), headers, timeout

    async def __aenter__(self) -> MemoryHttpClient:
        await self._server.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        content: bytes = b"",
        headers: Mapping[str, str] = {},
        params: Mapping[str, str] = {},
        timeout: float | None = -1.0,
    ) -> MemoryHttpResponse:
        """Send a request, and return the response, whatever its status."""
        whole = url if "://" in url else self._base_url + url
        if params:
            whole += f"?{urlencode(params)}"
        sent = {"host": urlsplit(whole).netloc, **self._headers, **headers}
        if json is not None:
            content = _encode_json(json)
            sent.setdefault("content-type", "application/json")
        sent.setdefault("content-length", str(len(content)))
        pairs = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
        seconds = self._timeout if timeout == -1.0 else timeout
        answer = await self._server.request(method, whole, pairs, content, seconds)
        return MemoryHttpResponse(answer)

    async def get(self, url: str, **options: Any) -> MemoryHttpResponse:
        return await self.request("GET", url, **options)

    async def post(self, url: str, **options: Any) -> MemoryHttpResponse:
        return await self.request("POST", url, **options)

    async def put(self, url: str, **options: Any) -> MemoryHttpResponse:
        return await self.request("PUT", url, **options)

    async def patch(self, url: str, **options: Any) -> MemoryHttpResponse:
        return await self.request("PATCH", url, **options)

    async def delete(self, url: str, **options: Any) -> MemoryHttpResponse:
        return await self.request("DELETE", url, **options)


def _encode_json(value: Any) -> bytes:
    return json.dumps(value).encode()
