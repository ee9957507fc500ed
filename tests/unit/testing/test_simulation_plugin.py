"""The fixture `kafka_simulation` and its marker, in a pytest of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SERVICE = """
import pytest
from aiokclient import Consumer
from aiokclient.testing import Feed, KillService, handled_at_least_once

TOPICS = {"orders": Feed(6, seconds=1.0)}
FAULTS = [KillService(at=0.6, after="commit")]

async def service(sim, early=False):
    async with Consumer(
        "orders", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
        bootstrap_servers=sim.bootstrap_servers, **sim.options,
    ) as consumer:
        async for record in consumer:
            if early:
                await consumer.commit(record)
            await sim.work()
            sim.handled(record)
            await consumer.commit(record)
"""


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a test file in a separate pytest, and returns its output."""

    def run(text: str, *options: str) -> str:
        (tmp_path / "test_it.py").write_text(SERVICE + text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "aiokclient.testing.plugin"]
        command += ["-W", "error", "--strict-markers", "-p", "xdist.plugin", *options]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        return done.stdout + done.stderr

    return run


def test_seeds_of_a_service_are_blocks_that_xdist_distributes(
    run_pytest: Callable[..., str],
) -> None:
    text = """
@pytest.mark.kafka_faults(seeds=27, first_seed=5, topics=TOPICS, faults=[])
def test_orders(kafka_simulation):
    assert kafka_simulation(service, seeds=1).seeds == 1
"""
    listed = run_pytest(text, "--collect-only")
    assert "test_orders[seeds 5-29]" in listed, listed
    assert "test_orders[seeds 30-31]" in listed
    assert "2 passed" in run_pytest(text, "-n2")


def test_a_counterexample_is_shown_with_its_test_and_a_picture(
    run_pytest: Callable[..., str], tmp_path: Path
) -> None:
    output = run_pytest(
        """
async def early(sim):
    await service(sim, early=True)

@pytest.mark.kafka_faults(seeds=1, topics=TOPICS, faults=FAULTS, limit_s=300.0, recovery_s=55.0)
def test_orders(kafka_simulation):
    kafka_simulation(early, invariants=[handled_at_least_once])
"""
    )
    assert "1 failed" in output, output
    assert "never handled" in output
    assert "def test_seed_0() -> None:" in output
    (picture,) = tmp_path.rglob("seed-0.svg")
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_a_test_that_is_a_coroutine_function_is_the_service(
    run_pytest: Callable[..., str], mode: str
) -> None:
    options = ["-p", "pytest_asyncio.plugin", f"--asyncio-mode={mode}"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function"]
    output = run_pytest(
        """
@pytest.fixture
def name():
    return "orders"

@pytest.mark.kafka_faults(seeds=2, topics=TOPICS, faults=FAULTS)
async def test_orders(name, kafka_simulation):
    assert name == "orders"
    await service(kafka_simulation)

@pytest.mark.kafka_faults(seeds=1, topics=TOPICS, faults=FAULTS, limit_s=5.0)
async def test_limit(kafka_simulation):
    await service(kafka_simulation)
""",
        *options,
    )
    assert "1 failed, 1 passed" in output, output
    assert "still running after 5 s" in output
