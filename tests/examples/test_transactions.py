"""The examples with transactions: exact results, also after an error of each category."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from aiokclient import Consumer
from aiokclient.errors import (
    IllegalGenerationError,
    InvalidTxnStateError,
    ProducerFencedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnknownServerError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[2]
LINES = [b"tea coffee tea", b"coffee milk", b"tea"] * 20
WORDS = Counter(word for line in LINES for word in line.decode().split())
SHOUTED = Counter(line.upper().decode() for line in LINES)
PROGRAMS = {"word_count": WORDS, "transform": SHOUTED}
"""The expected results of each program."""

every_program = pytest.mark.parametrize("program", PROGRAMS)
Fault = Callable[[EmbeddedCluster], AbstractContextManager[Any]]


def failing(api: ApiKey, error: type[Exception], times: int | None = 1) -> Fault:
    return lambda cluster: cluster.fail(api, error, times=times)


ABORTABLE: dict[str, Fault] = {
    "a record": failing(ApiKey.PRODUCE, TransactionAbortableError),
    "a record, at the produce call only": failing(ApiKey.PRODUCE, InvalidTxnStateError),
    "the commit": failing(ApiKey.END_TXN, TransactionAbortableError),
}
RECOVERABLE: dict[str, Fault] = {
    "a record": failing(ApiKey.PRODUCE, ProducerFencedError),
    "the offsets": failing(ApiKey.TXN_OFFSET_COMMIT, IllegalGenerationError),
    "the commit": failing(ApiKey.END_TXN, UnknownServerError),
}
UNNOTICED: dict[str, Fault] = {
    "nothing fails": lambda cluster: nullcontext(),
    "a commit without a response": lambda cluster: cluster.drop(
        ApiKey.END_TXN, when="after", times=1
    ),
}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, topics={"input": 2, "output": 2}) as started:
        started.produce("input", LINES[::2], partition=0)
        started.produce("input", LINES[1::2], partition=1)
        yield started


@contextmanager
def started(program: str, cluster: EmbeddedCluster) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, f"examples/{program}.py", cluster.bootstrap_servers]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def results(program: str, cluster: EmbeddedCluster, total: int) -> Counter[str]:
    """Return the results that a read_committed consumer sees, once there are at least `total`."""
    found: Counter[str] = Counter()
    async with Consumer(
        "output",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        async with asyncio.timeout(60):
            while found.total() < total:
                for record in await consumer.poll():
                    if program == "word_count":
                        assert record.key is not None
                        found[record.key.decode()] += int(record.value)
                    else:
                        found[record.value.decode()] += 1
    return found


def until_done(program: str, cluster: EmbeddedCluster) -> str:
    """Run a program until all results are there; check them, and return what it has printed."""
    expected = PROGRAMS[program]
    with started(program, cluster) as process:
        assert asyncio.run(results(program, cluster, expected.total())) == expected
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed
    assert asyncio.run(results(program, cluster, expected.total())) == expected
    assert cluster.committed("word-count" if program == "word_count" else "shouting")
    return printed


@every_program
@pytest.mark.parametrize("fault", UNNOTICED)
def test_each_record_is_counted_once(program: str, fault: str, cluster: EmbeddedCluster) -> None:
    with UNNOTICED[fault](cluster):
        printed = until_done(program, cluster)
    assert "aborting" not in printed
    assert "restarting" not in printed


@every_program
@pytest.mark.parametrize("fault", ABORTABLE)
def test_after_an_abortable_error_the_records_are_processed_again(
    program: str, fault: str, cluster: EmbeddedCluster
) -> None:
    with ABORTABLE[fault](cluster) as injected:
        printed = until_done(program, cluster)
        assert injected.hits == 1
    assert printed.count("aborting: ") == (program == "word_count")
    assert "restarting" not in printed


@every_program
@pytest.mark.parametrize("fault", RECOVERABLE)
def test_example_programs_restart_after_an_application_recoverable_error(
    program: str, fault: str, cluster: EmbeddedCluster
) -> None:
    with RECOVERABLE[fault](cluster) as injected:
        printed = until_done(program, cluster)
        assert injected.hits == 1
    assert printed.count("restarting: ") == (program == "word_count")
    assert "aborting" not in printed


@every_program
def test_after_an_invalid_configuration_the_program_ends_and_nothing_is_committed(
    program: str, cluster: EmbeddedCluster
) -> None:
    refused = failing(ApiKey.PRODUCE, TopicAuthorizationError, None)
    with refused(cluster), started(program, cluster) as process:
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "TopicAuthorizationError" in printed
        assert printed.count("giving up: ") == (program == "word_count")
    assert not cluster.committed("word-count" if program == "word_count" else "shouting")
    # After the cause of the error is corrected, the program processes every record.
    until_done(program, cluster)
