"""An ASGI application that shows workers to an orchestrator and to Prometheus.

    app = FastAPI(lifespan=lifespan(worker))
    app.mount("/worker", asgi(worker))

It needs no package but the server that runs it. It does not run the workers: `lifespan`, `run`, or
the command line does.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokclient import threads
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.telemetry.exposition import CONTENT_TYPE, expose, write_text
from aiokclient.telemetry.series import SeriesOfClients
from aiokclient.worker.worker import Worker

if TYPE_CHECKING:
    from aiokclient.worker.health import WorkerHealth

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON: Final = "application/json"
METHODS: Final = ("GET", "HEAD")


def asgi(*workers: Worker) -> AsgiApplication:
    """Return an ASGI application with the routes `/live`, `/ready`, and `/metrics`. Synchronous.

    `/live` and `/ready` answer 200 if that holds for all workers, and 503 otherwise. The body is a
    JSON object with `reasons`, a list of texts, and `workers`, a list of their states. `/metrics`
    has the metrics of the workers and of their clients, in the text format of Prometheus. Other
    paths get 404, methods other than GET and HEAD 405. The paths are those below the path at which
    the application is mounted.

    The application does not run the workers, and answers before and after their run, too. Serve it
    in the event loop of the workers. Raises ArgumentTypeError for anything but workers, and
    ArgumentValueError if there are none.
    """
    if not workers:
        raise ArgumentValueError("asgi() has no worker to show. Pass at least one Worker.")
    for worker in workers:
        if not isinstance(worker, Worker):
            raise ArgumentTypeError(f"{worker!r} is not a Worker. Pass objects of that class.")
    return _Application(workers)


class _Response:
    """A response with a status, a body, and further headers."""

    def __init__(
        self,
        status: HTTPStatus,
        body: str | Mapping[str, Any],
        content_type: str = JSON,
        **headers: str,
    ) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.status = status
        self.body = text.encode("utf-8", "replace")
        self.headers = {
            "content-type": content_type,
            "content-length": str(len(self.body)),
            "cache-control": "no-store",
            **headers,
        }

    async def send_to(self, send: Send, *, has_body: bool) -> None:
        headers = [(name.encode(), text.encode("latin-1")) for name, text in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body if has_body else b""})


class _Application:
    """The ASGI application for some workers."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self._workers = tuple(workers)
        self._series = SeriesOfClients()
        for worker in self._workers:
            self._series.add_client(worker._consumer)
        self._routes: dict[str, Callable[[], Awaitable[_Response]]] = {
            "/live": self._answer_live,
            "/ready": self._answer_ready,
            "/metrics": self._answer_metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            response = await self._answer(scope)
            await response.send_to(send, has_body=scope["method"] != "HEAD")
        else:
            raise NotImplementedError(
                f"The ASGI server has opened a connection of the type {scope['type']!r}, which "
                "aiokclient.worker.asgi does not serve."
            )

    async def _answer(self, scope: Scope) -> _Response:
        path = _path_of(scope)
        route = self._routes.get(path)
        if route is None:
            text = f"There is no {path or '/'} here. The paths are {', '.join(self._routes)}."
            return _Response(HTTPStatus.NOT_FOUND, {"reasons": [text]})
        if scope["method"] not in METHODS:
            text = f"{path} can only be read. Use GET or HEAD."
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return _Response(status, {"reasons": [text]}, allow=", ".join(METHODS))
        return await route()

    async def _answer_live(self) -> _Response:
        return self._answer_health("live")

    async def _answer_ready(self) -> _Response:
        return self._answer_health("ready")

    def _answer_health(self, question: str) -> _Response:
        shown = [worker.health() for worker in self._workers]
        wrong = [health for health in shown if not getattr(health, question)]
        reasons = [_reason(health, text) for health in wrong for text in health.reasons or ("",)]
        status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
        body = {question: not wrong, "reasons": reasons, "workers": list(map(_as_json, shown))}
        return _Response(status, body)

    async def _answer_metrics(self) -> _Response:
        # The numbers are taken in the event loop of each client, and written in the thread, because
        # a client with thousands of partitions has as many lines.
        text = await threads.run_blocking(self._write_metrics)
        return _Response(HTTPStatus.OK, text, CONTENT_TYPE)

    def _write_metrics(self) -> str:
        return write_text(expose(self._series.read_series()))


def _path_of(scope: Scope) -> str:
    """Return the path below the one at which the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    # By the specification, the path includes `root_path`. Older frameworks leave it out.
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.rstrip("/")


def _reason(health: WorkerHealth, text: str) -> str:
    return f"{health.name}: {text or 'no reason is known'}"


def _as_json(health: WorkerHealth) -> dict[str, Any]:
    oldest = health.oldest
    return {
        "name": health.name,
        "live": health.live,
        "ready": health.ready,
        "reasons": list(health.reasons),
        "lag": {f"{tp.topic}-{tp.partition}": lag for tp, lag in health.lag.items()},
        "oldest": oldest
        and {
            "topic": oldest.topic_partition.topic,
            "partition": oldest.topic_partition.partition,
            "offset": oldest.offset,
            "age_s": round(oldest.age_s, 3),
        },
        "lanes_busy": health.lanes_busy,
        "lanes_waiting": health.lanes_waiting,
        "retries_waiting": health.retries_waiting,
        "last_commit_ms": health.last_commit_ms,
    }


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    """Answer the events of a server's start and end, for which there is nothing to do."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
