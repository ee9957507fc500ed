"""Checks of the README: its programs run unchanged, and the names in it exist."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokclient import Consumer, Producer
from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
ADDRESS = "localhost:9092"
LINES = 10


class Block(NamedTuple):
    """A fenced block, with the heading above it."""

    heading: str
    language: str
    code: str


def blocks() -> list[Block]:
    found, heading = [], ""
    for match in re.finditer(r"^#+ ([^\n]+)$|^```(\w*)\n(.*?)^```$", README, re.M | re.S):
        if match[1] is not None:
            heading = match[1]
        else:
            found.append(Block(heading, match[2], match[3]))
    return found


PYTHON = {block.heading: block.code for block in blocks() if block.language == "python"}


def command(heading: str, servers: str = "") -> list[str]:
    """Return a command that runs the block, in which only the address is changed."""
    code = PYTHON[heading]
    assert not servers or ADDRESS in code
    return [sys.executable, "-u", "-W", "error", "-c", code.replace(ADDRESS, servers or ADDRESS)]


def run(*arguments: str) -> str:
    done = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_program_is_run_here() -> None:
    programs = [block.heading for block in blocks() if block.language == "python"]
    # The programs for Spark run in tests/spark/test_documentation.py.
    assert [heading for heading in programs if "Spark" not in heading] == [
        "Produce",
        "Consume",
        "Share work in a group",
        "Process exactly once",
        "Test your own code",
    ]


@pytest.mark.parametrize(
    "heading", ["Produce", "Consume", *(heading for heading in PYTHON if "Spark" in heading)]
)
def test_ten_lines_are_enough(heading: str) -> None:
    assert len([line for line in PYTHON[heading].splitlines() if line.strip()]) <= LINES


@pytest.fixture
def orders(cluster_servers: Any) -> str:
    """The address of a cluster with the topic that the README writes to."""
    kafka = cluster_servers.kafka
    if not kafka.metadata(["orders"]).topics.get("orders"):
        kafka.create_topic("orders", 6)
    bootstrap: str = cluster_servers.bootstrap
    return bootstrap


@pytest.mark.parametrize("heading", ["Consume", "Share work in a group"])
def test_programs_of_the_readme_read_what_its_producer_wrote(orders: str, heading: str) -> None:
    partition, offset = map(int, run(*command("Produce", orders)).split())
    wanted = {f"{partition} {offset} b'customer-7' b'tea'"}
    wanted_values = {"b'one'", "b'two'", "b'three'"}
    with subprocess.Popen(
        command(heading, orders), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # The program reads forever. If it does not print all values, the test ends by its timeout.
        try:
            for line in process.stdout:
                wanted.discard(line.rstrip("\n"))
                wanted_values.discard(line.split()[-1])
                if not wanted and not wanted_values:
                    break
            process.send_signal(signal.SIGINT)
            errors = process.stderr.read()
        except BaseException:
            process.kill()
            raise
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert not re.search("never retrieved|was destroyed|ResourceWarning", errors)


def test_process_exactly_once(orders: str, cluster_servers: Any) -> None:
    kafka = cluster_servers.kafka
    if not kafka.metadata(["invoices"]).topics.get("invoices"):
        kafka.create_topic("invoices", 1)
    run(*command("Produce", orders))
    options: Any = {"bootstrap_servers": orders, "auto_offset_reset": "earliest"}

    async def first() -> bytes | None:
        async with Consumer("invoices", isolation_level="read_committed", **options) as consumer:
            record = await consumer.get(timeout=60)
            assert record is not None
            return record.value

    process = subprocess.Popen(
        command("Process exactly once", orders), stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert asyncio.run(first()).startswith(b"for ")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert not re.search("never retrieved|was destroyed|ResourceWarning", errors)


def test_test_your_own_code() -> None:
    run(*command("Test your own code"))


def test_the_make_targets_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z][\w-]*)", README))
    targets = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.M))
    assert {"demo", "test"} <= named
    assert named <= targets


@pytest.mark.parametrize("jobs", ["-j1", "-j2"])
def test_the_demo_shows_its_first_half_before_it_downloads_spark(jobs: str) -> None:
    command = ["make", "--dry-run", jobs, "--what-if=pyproject.toml", "demo", "JAVA=17"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    steps = ("examples/demo.py", '".[spark]"', "examples/telemetry_pipeline.py")
    positions = [done.stdout.index(step) for step in steps]
    assert positions == sorted(positions)
    assert done.stdout.count("examples/demo.py") == 1


def test_the_variables_are_read() -> None:
    sources = [ROOT / "examples" / "demo.py", ROOT / "tests" / "conftest.py"]
    text = "".join(source.read_text() for source in sources)
    for name in set(re.findall(r"\b([A-Z_]+)=host", README)):
        assert f'"{name}"' in text


def test_the_comparison_names_nothing_that_is_to_come() -> None:
    rows = re.findall(r"^\| ([^|]+?)(?: \(KIP-\d+\))? \| ([^|]+?) \|", README, re.M)
    assert ("consumer of share groups", "yes, with renewed locks") in rows
    assert [name for name, has in rows if "not yet" in has] == []


def test_the_project_has_addresses_in_its_metadata() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= set(urls)


def test_the_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"\.\[(\w+)\]", README)
    assert named
    assert set(named) <= set(extras["optional-dependencies"])


def test_the_methods_exist() -> None:
    for owner, name in re.findall(r"\b(producer|consumer)\.(\w+)", README):
        assert hasattr({"producer": Producer, "consumer": Consumer}[owner], name), name
    for name in re.findall(r"`(\w+)\(\)`", README):
        assert any(hasattr(each, name) for each in (Producer, Consumer, EmbeddedCluster)), name


def test_the_command_takes_what_it_says() -> None:
    (line,) = re.findall(r"`python -m (aiokclient\.testing[^`]*)`", README)
    module, *arguments = line.split()
    usage = run(sys.executable, "-m", module, "--help")
    for argument in arguments:
        assert not argument.startswith("--") or argument in usage
