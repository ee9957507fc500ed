"""Tests of the library's own threads, which the application cannot occupy, and of how they end."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokclient import Consumer, Producer, threads
from aiokclient.consumer.assignors.strategy import Range
from aiokclient.errors import AssignmentFailedError
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        yield cluster


@asynccontextmanager
async def occupied() -> AsyncIterator[threading.Event]:
    """Occupy all threads of the loop's default executor until the yielded event is set."""
    loop, end, began = asyncio.get_running_loop(), threading.Event(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))

    def occupy() -> None:
        began.set()
        end.wait()

    work = loop.run_in_executor(None, occupy)
    began.wait()
    try:
        yield end
    finally:
        end.set()
        await work


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_records_are_sent_and_read_while_the_default_executor_is_full(
    cluster: EmbeddedCluster, compression: Any
) -> None:
    servers = cluster.bootstrap_servers
    values = [os.urandom(700_000) for _ in range(3)]
    options: Any = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
    async with (
        Producer(bootstrap_servers=servers, compression_type=compression) as producer,
        Consumer("t", **options) as reader,
        Consumer("t", **options) as arrow_reader,
        occupied(),
    ):
        await producer.gather([producer.send("t", value) for value in values])
        assert [record.value async for record in reader.until_end()] == values
        assert (await anext(arrow_reader.arrow_batches())).num_rows


class Own(Range):
    name = "own"


async def test_an_assignor_that_gets_no_thread_fails_the_assignment_within_the_rebalance_timeout(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokclient.consumer.membership.classic.AT_ONCE", 0)
    consumer: Consumer[Any, Any] = Consumer(
        group_id="g",
        bootstrap_servers=cluster.bootstrap_servers,
        partition_assignment_strategy=[Own],
        max_poll_interval_ms=1_000,
    )
    async with consumer, occupied():
        consumer.subscribe(["t"])
        with pytest.raises(AssignmentFailedError, match=r"waited .* for a thread"):
            await consumer.get(30.0)


async def test_a_built_in_assignor_needs_no_thread_of_the_application(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokclient.consumer.membership.classic.AT_ONCE", 0)
    cluster.produce("t", [b"v"])
    consumer: Consumer[bytes, bytes] = Consumer(
        group_id="g",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
    )
    async with consumer, occupied():
        consumer.subscribe(["t"])
        assert await consumer.get(30.0) is not None


async def test_a_call_knows_whether_a_thread_has_begun_it() -> None:
    job = threads.Job(int, "7")
    assert not job.begun
    assert await threads.run(job) == 7
    assert job.begun


async def test_what_a_call_raises_is_raised() -> None:
    for run in (threads.run, threads.run_blocking):
        with pytest.raises(ZeroDivisionError):
            await run(divmod, 1, 0)


async def test_calls_that_hang_delay_no_computation() -> None:
    end = threading.Event()
    hanging = [threads.run_blocking(end.wait) for _ in range(threads.BLOCKING_THREADS + 1)]
    assert await threads.run(int, "7") == 7
    end.set()
    assert all(await asyncio.gather(*hanging))


async def test_a_cancelled_call_is_not_begun_if_it_waits() -> None:
    end, begun = threading.Event(), []
    count = max(2, os.cpu_count() or 2)
    running = [threads.run(end.wait) for _ in range(count)]
    waiting = threads.run(begun.append, 1)
    waiting.cancel()
    await asyncio.sleep(0)
    end.set()
    await asyncio.gather(*running)
    assert await threads.run(int) == 0
    assert not begun


def test_a_call_that_outlives_its_loop_is_dropped_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, end, ended = threading.Event(), threading.Event(), threading.Event()

    def outlive() -> None:
        begun.set()
        end.wait()

    async def main() -> None:
        threads.run_blocking(outlive)
        begun.wait()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())
        end.set()
        asyncio.run(_after(ended))
    assert ended.is_set()
    assert "exception" not in caplog.text


async def _after(ended: threading.Event) -> None:
    await threads.run_blocking(ended.set)


def test_the_interpreter_exits_while_a_call_hangs() -> None:
    code = (
        "import asyncio, threading\n"
        "from aiokclient import threads\n"
        "async def main():\n"
        "    threads.run_blocking(threading.Event().wait)\n"
        "    threads.run(threading.Event().wait)\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "print('over')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("over\n", "", 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    code = (
        "import asyncio, os\n"
        "from aiokclient import threads\n"
        "async def use():\n"
        "    assert await threads.run(int, '7') == 7\n"
        "    assert await threads.run_blocking(int, '7') == 7\n"
        "asyncio.run(use())\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    asyncio.run(use())\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("7\n", "")
