"""The first connection of a client: from its start to the first metadata response."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from abc import abstractmethod
from typing import Any

from measuring.spec import Counts, Spec
from measuring.subject import Meter, NotMeasuredError, PythonSubject

from subjects import aio_kafka, confluent, own

LATER = 10
"""The number of clients that connect after the first one, in the same process."""
WAIT_S = 30.0
POLL_S = 0.01


class MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the CPU time of its longest iteration.

    It is the CPU time of the loop's thread, on which the load of the machine has little influence.
    """

    longest_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - began)


class Connecting(PythonSubject):
    """A client that connects, measured in a process in which no client has connected before."""

    warming = 0.0

    def command(self, spec: Spec) -> list[str]:
        if spec.mechanism == "GSSAPI" and not (spec.keytab and self.has_kerberos()):
            raise NotMeasuredError("There is no KDC, or the package was built without GSSAPI.")
        return super().command(spec)

    def has_kerberos(self) -> bool:
        return True

    def run(self, spec: Spec) -> Counts:
        meter = Meter()
        self.work(spec, meter)
        return meter.counts

    def work(self, spec: Spec, meter: Meter) -> None:
        figures = meter.counts.figures
        self.bring_in()
        with meter:
            first = self.connect(spec)
        meter.counts.messages = 1
        later = [self.connect(spec) for _ in range(LATER)]
        figures["first_ms"] = first[0] * 1e3
        figures["later_ms"] = statistics.median(wall_s for wall_s, _ in later) * 1e3
        if first[1] is not None:
            figures["held_ms"] = first[1] * 1e3
            figures["later_held_ms"] = max(held_s or 0.0 for _, held_s in later) * 1e3

    def bring_in(self) -> None:
        """Import the modules that a program would usually import before it connects."""

    @abstractmethod
    def connect(self, spec: Spec) -> tuple[float, float | None]:
        """Connect a new client, and close it.

        Returns the seconds until the first metadata response, and the CPU seconds of the longest
        iteration of the event loop until then. For a client without an event loop, the second value
        is None.
        """


class AsyncioConnecting(Connecting):
    def connect(self, spec: Spec) -> tuple[float, float]:
        with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            return runner.run(self._connect(spec))

    async def _connect(self, spec: Spec) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        client = self.new(spec)
        await asyncio.sleep(0)  # End the iteration in which the client was made.
        loop.longest_s = 0.0
        began = time.perf_counter()
        await client.start()
        wall_s = time.perf_counter() - began
        await asyncio.sleep(0)  # End the last iteration, so that it is measured.
        held_s = loop.longest_s
        await self.close(client)
        return wall_s, held_s

    @abstractmethod
    def new(self, spec: Spec) -> Any:
        """Return a client that is not started."""

    @abstractmethod
    async def close(self, client: Any) -> None: ...


class OwnConnecting(AsyncioConnecting):
    name = "aiokclient"
    family = "aiokclient"
    requires = "aiokclient"

    def bring_in(self) -> None:
        from aiokclient import Client  # noqa: F401  (only its cost)

    def new(self, spec: Spec) -> Any:
        from aiokclient import Client

        return Client(**own.connection_options(spec))

    async def close(self, client: Any) -> None:
        await client.close()


class AiokafkaConnecting(AsyncioConnecting):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"

    def bring_in(self) -> None:
        from aiokafka import AIOKafkaProducer  # noqa: F401  (only its cost)

    def new(self, spec: Spec) -> Any:
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(**aio_kafka.connection_options(spec))

    async def close(self, client: Any) -> None:
        await client.stop()


class ConfluentConnecting(Connecting):
    name = "confluent-kafka"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def has_kerberos(self) -> bool:
        return False  # Its wheels are built without GSSAPI.

    def bring_in(self) -> None:
        import confluent_kafka  # noqa: F401  (only its cost)

    def connect(self, spec: Spec) -> tuple[float, None]:
        from confluent_kafka import Producer

        began = time.perf_counter()
        settings = confluent.connection_settings(spec)
        fetch, fetched = settings.get("oauth_cb"), threading.Event()

        def provide(config: str) -> Any:
            fetched.set()
            return fetch(config)

        if fetch is not None:
            settings["oauth_cb"] = provide
        producer = Producer(settings)
        while fetch is not None and not fetched.is_set():
            producer.poll(POLL_S)  # poll() calls the token provider.
        producer.list_topics(timeout=WAIT_S)
        return time.perf_counter() - began, None


CONNECTING = (OwnConnecting(), ConfluentConnecting(), AiokafkaConnecting())
