"""A member of a share group that uses this library, as a task of a process."""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiokclient import REJECT, RELEASE, ShareConsumer, ShareRecord
from aiokclient.errors import ApiTimeoutError, KafkaError, LockLostError, RecordError

WAYS = ("processing", "processing", "manual", "loop", "batches")
"""The ways to read."""


class FailedHandlerError(Exception):
    """The error of a handler that releases its record."""


def decide_fate(value: str | None, count: int) -> str:
    """Return what the handler of a record does with it at its delivery number `count`.

    The value is the fate of the record, and how often a handler fails before it accepts.
    """
    assert value is not None
    fate, _, failures = value.partition(":")
    if fate == "poison" or (fate == "flaky" and count <= int(failures)):
        return "release"
    return "reject" if fate in ("reject", "garbage") else "accept"


def read_value(value: bytes) -> str:
    """Deserialize a value; raises ValueError for the records that nobody can read."""
    if value.startswith(b"garbage"):
        raise ValueError("garbage")
    return value.decode()


class CrewMember:
    """A consumer of the group with its handlers, which report what they do.

    `broken` makes it wrong on purpose: "believing" ones hold the records that they have when they
    lose the locks, and accept them when they are told to `go`.
    """

    def __init__(
        self, spec: Mapping[str, Any], chosen: Mapping[str, Any], tell: Callable[..., None]
    ) -> None:
        self.name, self.how, self.tell = chosen["name"], chosen["how"], tell
        self.outstanding: int = chosen["outstanding"]
        self.rng = random.Random(chosen["seed"])
        self.lock_s: float = spec["lock_s"]
        self.slow: float = chosen.get("slow", 0.03)
        """The share of handlers that take longer than a lock."""
        self.broken: str = chosen.get("broken", "")
        hook: dict[str, Any] = {}
        if "choice" in chosen:
            choice = {"reject": REJECT, "release": RELEASE}[chosen["choice"]]
            hook = {"on_record_error": lambda error: choice}
        self.consumer: ShareConsumer[Any, Any] = ShareConsumer(
            spec["topic"],
            client_id=self.name,
            value_deserializer=read_value,
            on_acknowledge_error=self.report_error,
            **{**spec["options"], **chosen["options"]},
            **hook,
        )
        self.may_go = asyncio.Event()
        self.handlers: set[asyncio.Task[None]] = set()
        self.task: asyncio.Task[None] | None = None

    def report_error(self, error: KafkaError) -> None:
        expected = isinstance(error, LockLostError) or type(error).__name__ == "AcknowledgeError"
        self.tell("error", self.name, f"{error!r}", expected)

    async def run(self) -> None:
        """Run the member from start to end."""
        self.task = asyncio.current_task()
        try:
            async with self.consumer:
                self.tell("started", self.name)
                try:
                    await self.read()
                finally:
                    self.cancel_handlers()
                    if self.handlers:
                        await asyncio.wait(self.handlers)
        except asyncio.CancelledError:
            pass
        except Exception:
            self.tell("failed", self.name, traceback.format_exc())
        self.tell("left", self.name)

    # -- orders

    def leave(self) -> None:
        """Read nothing more, and end when all handlers have ended."""
        self.consumer.stop()

    def cancel(self) -> None:
        """Cancel the task of the member."""
        assert self.task is not None
        self.task.cancel()

    def go(self) -> None:
        """Settle what a believing member holds."""
        self.may_go.set()

    def cancel_handlers(self) -> None:
        for task in self.handlers:
            task.cancel()

    # -- ways to read

    async def read(self) -> None:
        while True:
            try:
                if self.how in ("processing", "manual"):
                    async for record in self.consumer.tracked(self.outstanding):
                        # Not in the task, which begins later: the lock may be lost until then.
                        self.begin(record)
                        task = asyncio.create_task(self.handle(record))
                        self.handlers.add(task)
                        task.add_done_callback(partial(self.end_handler, record))
                elif self.how == "loop":
                    async for record in self.consumer:
                        await self.handle_list([record])
                else:
                    async for records in self.consumer.batches(self.outstanding):
                        await self.handle_list(records)
            except RecordError:
                continue
            if self.handlers:
                await asyncio.wait(self.handlers)
            return

    def end_handler(self, record: ShareRecord[Any, Any], task: asyncio.Task[None]) -> None:
        self.handlers.discard(task)
        if task.cancelled():
            self.end(record)  # The task may not have begun.
        elif (error := task.exception()) is not None:
            self.tell("failed", self.name, "".join(traceback.format_exception(error)))

    # -- handlers

    def begin(self, record: ShareRecord[Any, Any]) -> None:
        if self.broken == "believing":
            assert record._acquisition is not None
            record._acquisition.deadline += 1000.0
        place = record.partition, record.offset, record.delivery_count
        self.tell("begin", self.name, *place, record.lock_deadline, record.lock_lost)

    def ask(self, record: ShareRecord[Any, Any], kind: str) -> None:
        place = record.partition, record.offset, record.delivery_count
        self.tell("ask", self.name, *place, kind)

    def end(self, record: ShareRecord[Any, Any]) -> None:
        self.tell("end", self.name, record.partition, record.offset, record.delivery_count)

    def draw_duration(self) -> float:
        draw = self.rng.random()
        if draw < self.slow:
            return self.rng.uniform(1.0, 3.0) * self.lock_s
        return self.rng.uniform(0.0, 0.5) if draw < 0.2 else self.rng.uniform(0.0, 0.02)

    async def handle(self, record: ShareRecord[Any, Any]) -> None:
        kind = decide_fate(record.value, record.delivery_count)
        held = False
        try:
            held = await (self.process if self.how == "processing" else self.settle)(record, kind)
        except LockLostError:
            pass
        finally:
            self.end(record)
        if held:
            await self.confirm(record, kind)

    async def process(self, record: ShareRecord[Any, Any], kind: str) -> bool:
        """Handle a record in a scope; return whether its lock was held to the end."""
        on_lost: Any = self.rng.choice(("raise", "return"))
        ended = False
        with contextlib.suppress(FailedHandlerError):
            async with self.consumer.processing(record, on_lost=on_lost):
                await asyncio.sleep(self.draw_duration())
                self.ask(record, kind)
                ended = not record.lock_lost
                if kind == "release":
                    raise FailedHandlerError
                if kind == "reject":
                    self.consumer.reject(record)
        return ended

    async def settle(self, record: ShareRecord[Any, Any], kind: str) -> bool:
        """Handle a record, and settle it; return whether its lock was held then."""
        await asyncio.sleep(self.draw_duration())
        if self.broken == "believing":
            await self.may_go.wait()
        self.ask(record, kind)
        settle = {
            "accept": self.consumer.done,
            "release": self.consumer.release,
            "reject": self.consumer.reject,
        }[kind]
        return settle(record)

    async def confirm(self, record: ShareRecord[Any, Any], kind: str) -> None:
        with contextlib.suppress(ApiTimeoutError):
            outcomes = await self.consumer.commit(record, 60.0, return_exceptions=True)
            error = outcomes[record]
            place = record.partition, record.offset, record.delivery_count
            self.tell("outcome", self.name, *place, kind, None if error is None else repr(error))

    async def handle_list(self, records: list[ShareRecord[Any, Any]]) -> None:
        """Handle records that the next request accepts."""
        held = list(records)
        for record in records:
            self.begin(record)
        try:
            for record in records:
                await asyncio.sleep(self.draw_duration() / len(records))
                kind = decide_fate(record.value, record.delivery_count)
                self.ask(record, kind)
                if kind == "accept":
                    continue
                (self.consumer.release if kind == "release" else self.consumer.reject)(record)
                held.remove(record)
                self.end(record)
        finally:
            for record in held:
                self.end(record)
