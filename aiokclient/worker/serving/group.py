"""Workers in one event loop: their clients are started, all of them run, are drained, and closed.

`lifespan` and the command line use it. The clients are those given, and those that the workers use:
their consumers and producers, and the `Client`s that these share. Only clients that are new are
started, and only those are closed at the end. A shared `Client` starts before, and closes after,
what uses it.

    drain all workers ──▶ close consumers ──▶ close producers ──▶ close shared clients
    ├───────────────────────────── bounded ────────────────────────────────────────┤

The bound is the largest `drain_timeout` of the workers, and the largest `close_timeout_ms` of the
clients, together. Without it, a producer would wait for its last records for two minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from aiokclient.background import ended, loop_ends
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.errors.local import ArgumentTypeError, IllegalStateError
from aiokclient.log.client_log import ClientLog
from aiokclient.types import State
from aiokclient.worker.worker import Worker

DRAIN_S: Final = 20.0
"""Seconds that clients without a worker may take for their work, beyond `close_timeout_ms`."""

Resource: TypeAlias = AbstractAsyncContextManager[Any]
"""Other things that workers need, besides clients, such as a registry of schemas."""


class WorkerGroup:
    """Workers, and the clients and resources that are open while they run.

    A context manager: its start begins the workers, its end drains them. If the body raises, the
    workers are cancelled. When a worker fails, the group calls `on_worker_failed`, which a subclass
    defines. The end raises the first error of a worker, when all clients are closed.
    """

    def __init__(self, *items: Worker | Lifecycle | Resource) -> None:
        for item in items:
            if not isinstance(item, Worker) and not _can_be_entered(item):
                raise ArgumentTypeError(
                    f"{item!r} cannot be started with workers. Pass Workers, clients, and other "
                    "asynchronous context managers."
                )
        self.workers = [item for item in items if isinstance(item, Worker)]
        self._clients = find_clients(self.workers, items)
        self._resources = [item for item in items if not isinstance(item, Worker | Lifecycle)]
        self._failure: BaseException | None = None
        """The first error of a worker."""
        self._open = AsyncExitStack()
        self._close_by: float | None = None
        """The time on the loop's clock at which the closing of clients must have ended."""
        self._runs: dict[Worker, asyncio.Task[None]] = {}
        self._has_cancelled = False
        """Whether the group itself has cancelled the workers."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for resource in self._resources:
                await opened.enter_async_context(resource)
            for client in self._clients:
                if client.state is State.NEW:
                    # A failed start leaves nothing open, and closes what was opened before it.
                    await client.start()
                    opened.push_async_callback(self._close_client, client)
            self._open = opened.pop_all()
        for worker in self.workers:
            run = asyncio.create_task(worker.run(), name=f"worker {worker.name}")
            self._runs[worker] = run
            run.add_done_callback(partial(self._on_run_ended, worker))
        return self

    async def wait_until_ended(self) -> None:
        """Return when no worker runs any more. Cancelling the call cancels no worker."""
        if self._runs:
            await asyncio.wait(self._runs.values())

    def stop_workers(self) -> None:
        """Let each worker finish its current records, within its bound. Synchronous."""
        for worker, run in self._runs.items():
            if not run.done():
                worker.stop()

    def cancel_workers(self) -> None:
        """Cancel the handlers at once. Synchronous."""
        self._has_cancelled = True
        for run in self._runs.values():
            run.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        drain_s = max((worker._options.drain_timeout_s for worker in self.workers), default=DRAIN_S)
        close_s = max((client._config.close_timeout_ms for client in self._clients), default=0)
        self._close_by = asyncio.get_running_loop().time() + drain_s + close_s / 1000
        try:
            if error is None:
                self.stop_workers()
                await self.wait_until_ended()
        finally:
            self.cancel_workers()
            for run in self._runs.values():
                await ended(run)
            await self._open.aclose()
        if self._failure is not None and error is None:
            raise self._failure

    async def _close_client(self, client: Lifecycle) -> None:
        timeout = None
        if self._close_by is not None:
            timeout = max(self._close_by - asyncio.get_running_loop().time(), 0.0)
        await client.close(timeout)

    def on_worker_failed(self, worker: Worker, error: BaseException) -> None:
        """React to the failure of a worker, as soon as its run has ended. Synchronous."""

    def _on_run_ended(self, worker: Worker, run: asyncio.Task[None]) -> None:
        error: BaseException | None
        if not run.cancelled():
            error = run.exception()
        elif self._has_cancelled or loop_ends(run.get_loop()):
            return
        else:
            error = IllegalStateError(
                f"The task of the worker {worker.name} was cancelled from outside. Nothing handles "
                f"its records any more. Cancel only tasks of the application."
            )
        if error is not None:
            self._failure = self._failure or error
            self.on_worker_failed(worker, error)


def _can_be_entered(item: object) -> bool:
    kind = type(item)
    return hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__")


def find_clients(workers: Iterable[Worker], items: Iterable[object] = ()) -> list[Lifecycle]:
    """Return the clients among these items and of the workers, in the order of their start."""
    every = [item for item in items if isinstance(item, Lifecycle)]
    for worker in workers:
        every += [
            client for client in (worker._consumer, worker._options.producer) if client is not None
        ]
    shared = [client._client for client in every if client._client is not None]
    # Consumers start last, when all is ready that their records need, and close first.
    return sorted(
        dict.fromkeys([*shared, *every]),
        key=lambda client: (not isinstance(client, Parent), -client.closing_rank),
    )


def log_failure(worker: Worker, error: BaseException, consequence: str) -> None:
    """Log the error of a worker, with its traceback. `consequence` is a sentence."""
    ClientLog.of("aiokclient.worker", worker._consumer._config).log(
        logging.ERROR,
        "The worker %s has failed. %s",
        worker.name,
        consequence,
        exc_info=error,
        extra={"event": "worker_failed", "worker": worker.name},
    )
