"""The command `python -m aiokclient.worker`: what it runs, its exit codes, and its messages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiokclient.testing import EmbeddedCluster
from aiokclient.worker.__main__ import main
from aiokclient.worker.serving.reloading import find_change, read_times

HEAD = """
    import asyncio, os, signal
    from aiokclient import Client, Consumer
    from aiokclient.worker import Retry, Worker

    def consume(group, **options):
        servers = os.environ.get("BOOTSTRAP", "localhost:1")
        options = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"} | options
        return Consumer("orders", group_id=group, **options)

    def stop(record):
        print("handled", record.value.decode(), flush=True)
        signal.raise_signal(signal.SIGTERM)
"""

Write = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", [b"tea"])
        yield cluster


@pytest.fixture
def write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Write]:
    """A function that writes the text of a module, and returns the module's name."""
    name = f"service_{abs(hash(request.node.name))}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(HEAD) + textwrap.dedent(text))
        return name

    yield write
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "app",
    [
        "app = Worker(consume('a'), stop)",
        "app = [Worker(consume('a'), stop)]",
        "def app(): return Worker(consume('a'), stop)",
        "async def app():\n    asyncio.get_running_loop()\n    return Worker(consume('a'), stop),",
        "class app:\n    inner = Worker(consume('a'), stop)",
    ],
    ids=["worker", "list", "function", "coroutine", "attribute"],
)
def test_a_signal_ends_the_workers_with_exit_code_0(
    app: str,
    cluster: EmbeddedCluster,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("BOOTSTRAP", cluster.bootstrap_servers)
    group = request.node.callspec.id
    name = write(app.replace("'a'", repr(group)))
    before = signal.getsignal(signal.SIGTERM)
    assert main([f"{name}:app.inner" if "class" in app else f"{name}:app"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
    printed = capfd.readouterr()
    assert printed.out == "handled tea\n"
    assert printed.err == ""
    assert cluster.groups[group].members == {}
    ((_, committed),) = cluster.committed(group).items()
    assert committed.offset == 1


def test_all_workers_stop_when_one_of_them_fails(
    cluster: EmbeddedCluster,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BOOTSTRAP", cluster.bootstrap_servers)
    name = write(
        """
        def fail(record):
            raise LookupError("no such order")

        client = Client(bootstrap_servers=os.environ["BOOTSTRAP"])

        def app():
            for group, handle in (("good", lambda record: None), ("bad", fail)):
                consumer = Consumer("orders", client=client, group_id=group,
                                    auto_offset_reset="earliest")
                yield Worker(consumer, handle, retry=Retry(1))
        """
    )
    assert main([f"{name}:app"]) == 1
    printed = capfd.readouterr().err
    assert "LookupError: no such order" in printed
    assert "in fail" in printed  # The traceback shows where.
    assert cluster.groups["good"].members == {}


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("", "{name}", "is not MODULE:NAME, such as service:app."),
        ("", "absent_module:app", "There is no module 'absent_module' in "),
        ("", "{name}:app", "has no 'app'."),
        ("app = 3", "{name}:app", "is an object of the class int. Name a Worker, a list of them"),
        ("app = []", "{name}:app", "contains no workers."),
        ("app = ['x']", "{name}:app", "contains an object of the class str, which is no Worker."),
        ("def app(x): ...", "{name}:app", "cannot be called without arguments: missing"),
        ("app = Worker(consume('g', linger_ms=1), stop)", "{name}:app", "linger_ms"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    text: str, target: str, message: str, write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([target.format(name=write(text))]) == 2
    printed = capfd.readouterr().err
    assert printed.startswith("python -m aiokclient.worker: ")
    assert message in printed
    assert printed.count("\n") == 1


def test_a_cluster_that_is_not_reached_is_one_line_and_exit_code_1(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    name = write("app = Worker(consume('g', default_api_timeout_ms=100), stop)")
    assert main([f"{name}:app"]) == 1
    printed = [line for line in capfd.readouterr().err.splitlines() if "WARNING" not in line]
    assert printed[-1].startswith("python -m aiokclient.worker: ")
    assert "localhost:1" in printed[-1]
    assert "Traceback" not in "".join(printed)


def test_an_error_of_the_program_has_its_traceback(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([f"{write('import absent_dependency')}:app"]) == 1
    printed = capfd.readouterr().err
    assert printed.startswith("Traceback")
    assert "No module named 'absent_dependency'" in printed


def spawn(name: str, *options: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "aiokclient.worker", *options, f"{name}:app"],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_process_ends_with_exit_code_3_when_a_handler_ignores_its_cancellation(
    cluster: EmbeddedCluster, write: Write
) -> None:
    name = write(
        """
        async def ignore(record):
            print("begun", flush=True)
            while True:
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    print("ignored", flush=True)

        app = Worker(consume("stuck"), ignore, drain_timeout=0.1)
        """
    )
    with spawn(name, BOOTSTRAP=cluster.bootstrap_servers) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            printed, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 3, said
    assert "ignored" in printed
    assert said.splitlines()[-1].startswith("python -m aiokclient.worker: ")
    assert "Traceback" not in said


def test_a_second_signal_cancels_and_the_exit_code_names_it(
    cluster: EmbeddedCluster, write: Write
) -> None:
    name = write(
        """
        async def wait(record):
            print("begun", flush=True)
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                print("cancelled", flush=True)
                raise

        app = Worker(consume("twice"), wait, drain_timeout=100)
        """
    )
    with spawn(name, BOOTSTRAP=cluster.bootstrap_servers) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            # Equal signals may become one; different ones never do.
            process.send_signal(signal.SIGINT)
            printed, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM), said
    assert printed == "cancelled\n"
    assert "Traceback" not in said
    assert all(each.offset == 0 for each in cluster.committed("twice").values())


def test_reload_starts_the_workers_again_after_a_change(
    cluster: EmbeddedCluster, write: Write
) -> None:
    text = 'app = Worker(consume("reloaded"), lambda record: print("{}", flush=True))'
    name = write(text.format("first"))
    with spawn(name, "--reload", BOOTSTRAP=cluster.bootstrap_servers) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "first\n"
            write(text.format("another"))
            cluster.produce("orders", [b"coffee"])
            seen = process.stdout.readline()
            while seen == "first\n":  # The record may come before the look at the file.
                cluster.produce("orders", [b"coffee"])
                seen = process.stdout.readline()
            assert seen == "another\n"
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert f"{name}.py has changed" in said


def test_changes_are_found_in_sources_only(tmp_path: Path) -> None:
    for path in ("a.py", "b.txt", ".hidden/c.py", "venv/lib/d.py", "pkg/e.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    before = read_times(tmp_path)
    assert {path.name for path in before} == {"a.py", "e.py"}
    assert find_change(before, before) is None
    (tmp_path / "pkg" / "f.py").write_text("")
    assert find_change(before, read_times(tmp_path)) == tmp_path / "pkg" / "f.py"
    (tmp_path / "pkg" / "f.py").unlink()
    (tmp_path / "a.py").unlink()
    assert find_change(before, read_times(tmp_path)) == tmp_path / "a.py"
