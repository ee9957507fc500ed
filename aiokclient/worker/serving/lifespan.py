"""Workers in a web service: started with it, and drained at its end.

app = FastAPI(lifespan=lifespan(worker, producer))
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokclient.worker.serving.group import WorkerGroup, log_failure

if TYPE_CHECKING:
    from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
    from aiokclient.worker.serving.group import Resource
    from aiokclient.worker.worker import Worker


class ServiceGroup(WorkerGroup):
    """Workers whose failure ends the process."""

    def on_worker_failed(self, worker: Worker, error: BaseException) -> None:
        log_failure(worker, error, "The process gets SIGTERM, so that it is started again.")
        signal.raise_signal(signal.SIGTERM)


def lifespan(
    *workers_and_clients: Worker | Lifecycle | Resource,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan for FastAPI, Starlette, and others that take one. Synchronous.

        app = FastAPI(lifespan=lifespan(worker, producer))

    The lifespan starts the clients, then the workers. Its end drains the workers, and closes the
    clients after them, within the largest `drain_timeout` of the workers and the largest
    `close_timeout_ms` of the clients together. Without workers, 20 s take the place of
    `drain_timeout`. Clients need not be passed if only the workers use them. Clients that were
    started before are not closed. Other asynchronous context managers, such as a SchemaRegistry,
    are entered before all clients.

    When a worker fails, or its task is cancelled from outside, its error is logged, and the process
    gets SIGTERM, at which the server drains requests and ends the lifespan, which raises the error.
    So a supervisor starts the process again. If a start fails, what was started is closed, and the
    error is raised.

    In a lifespan of the application, enter `lifespan(worker)(app)` with `async with`, and yield its
    own state. A lifespan can be entered once, because closed clients cannot be started again.
    Raises ArgumentTypeError for what is neither a worker nor an asynchronous context manager.
    """
    group = ServiceGroup(*workers_and_clients)

    @asynccontextmanager
    async def run_workers(app: Any) -> AsyncIterator[None]:
        async with group:
            yield

    return run_workers
