"""The public names, and the cost of importing them."""

import json
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

import aiokclient
from aiokclient import _native, admin
from aiokclient.background import (
    LATE_ADMIN,
    LATE_CLIENT,
    LATE_CONSUMER,
    LATE_PRODUCER,
    LATE_REPORTER,
)

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ["asyncio", "anyio", "ssl", "pyarrow", "cramjam", "zstandard", "lz4", "opentelemetry"]


def modules_after(code: str) -> set[str]:
    """Return the modules that a new interpreter has imported after running the code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="Prodcuer"):
        aiokclient.Prodcuer


STARTS = """
import asyncio, contextlib, json, sys, threading
from aiokclient import {name}
from aiokclient.errors import BootstrapError

imports = {True: [], False: []}

class Recorder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("anyio", "aiokclient"):
            imports[threading.current_thread() is threading.main_thread()].append(name)

async def start():
    client = {name}(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=300)
    with contextlib.suppress(BootstrapError):
        await client.start()

async def main():
    await asyncio.gather(start(), start())

sys.meta_path.insert(0, Recorder())
asyncio.run(main())
print(json.dumps([imports[True], imports[False]]))
"""


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("Admin", LATE_ADMIN),
        ("Client", LATE_CLIENT),
        ("Consumer", LATE_CONSUMER),
        ("Producer", LATE_PRODUCER),
    ],
)
def test_a_start_imports_the_modules_that_it_needs_in_a_thread(
    name: str, late: tuple[str, ...]
) -> None:
    """An import of these modules on the event loop would block it for a long time."""
    script = STARTS.replace("{name}", name)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    by_the_loop, by_threads = json.loads(done.stdout)
    assert by_the_loop == []
    uses_anyio = name in ("Consumer", "Producer")
    assert {*late, *LATE_REPORTER} <= set(by_threads)
    assert ("anyio._backends._asyncio" in by_threads) is uses_anyio
    assert any(module.startswith("anyio") for module in by_threads) is uses_anyio


def test_importing_it_is_light() -> None:
    modules = modules_after("import aiokclient")
    assert modules & set(HEAVY) == set()
    assert [name for name in modules if name.startswith("aiokclient.")] == []


@pytest.mark.parametrize("pure", ["", "0", "1"])
def test_native_tells_which_implementation_is_in_use(pure: str) -> None:
    code = "import aiokclient; from aiokclient.record.batch import RecordBatch; import json\n"
    code += "from aiokclient.producer.batching import queue\n"
    code += "from aiokclient.producer.sending import sender\n"
    code += "files = [queue.__file__, sender.__file__]\n"
    code += "print(json.dumps([aiokclient.native, RecordBatch.__module__, files]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "AIOKCLIENT_PURE": pure},
    )
    native, module, files = json.loads(done.stdout)
    assert native is (module == "aiokclient._native.record")
    compiled = native and not _native.are_sources_newer()
    assert {path.endswith(tuple(EXTENSION_SUFFIXES)) for path in files} == {compiled}
    assert not (native and pure == "1")


def test_native_is_false_when_one_module_is_missing(tmp_path: Path) -> None:
    for name in _native.EXTENSIONS:
        assert not _native.are_built(str(tmp_path))
        (tmp_path / f"{name}{EXTENSION_SUFFIXES[0]}").touch()
    assert _native.are_built(str(tmp_path))


@pytest.mark.parametrize(
    "error", [ImportError("undefined symbol: aiok"), ValueError("SharedFields size changed")]
)
def test_a_native_module_that_cannot_be_imported_says_what_to_do(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> ModuleType:
        raise error

    monkeypatch.setattr(_native, "in_use", lambda: True)
    monkeypatch.setattr(_native, "import_module", fail)
    with pytest.raises(ImportError, match=f"'record' .* cannot be used: {error}. Install"):
        _native.twin("record")


def test_a_native_module_without_a_twin_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "in_use", lambda: True)
    monkeypatch.setattr(_native, "import_module", ModuleType)
    with pytest.raises(ImportError, match="AIOKCLIENT_PURE=1 to run in Python"):
        _native.twin("record")(print)


def test_every_native_module_is_listed_once() -> None:
    package = Path(aiokclient.__file__).parent
    found = sorted(path.relative_to(package) for path in package.rglob("*.pyx"))
    assert found == sorted(Path("_native", f"{name}.pyx") for name in _native.EXTENSIONS)
    assert len(found) <= 4


def test_using_it_needs_no_arrow() -> None:
    modules = modules_after("from aiokclient import Admin, Client, Consumer, Producer")
    assert modules & {"pyarrow", "pyspark", "numpy", "opentelemetry"} == set()


UNUSED = {
    "aiokclient.cli",
    "aiokclient.config.security.oidc",
    "aiokclient.config.security.sasl",
    "aiokclient.config.security.tls",
    "aiokclient.log.hints",
    "aiokclient.network.authentication",
    "aiokclient.network.probe",
    "aiokclient.network.sasl",
    "aiokclient.patterns",
    "aiokclient.telemetry.collector",
    "aiokclient.testing",
    "anyio._backends._asyncio",
    "opentelemetry",
    "prometheus_client",
}
"""The modules that a client without SASL and TLS uses only after its start, or never."""

AFTER_START = {
    *LATE_CLIENT,
    "aiokclient.cluster.metadata.updater",
    "aiokclient.network.pool",
    "aiokclient.network.tls",
    "aiokclient.protocol.schema",
    "aiokclient.telemetry.reporter",
}
"""The modules that the start of a producer, a consumer, or an admin imports, or a later call."""

SUBJECTS = {
    f"aiokclient.admin.{name}"
    for name in (
        "cluster",
        "configs",
        "group_descriptions",
        "groups",
        "hanging_transactions",
        "log_dirs",
        "offsets",
        "quorum",
        "replicas.moves",
        "replicas.partitions",
        "replicas.plan",
        "replicas.planning",
        "replicas.throttle",
        "results",
        "security.acls",
        "security.client_quotas",
        "security.delegation_tokens",
        "security.scram_credentials",
        "share_groups",
        "streams_groups",
        "topics",
        "transactions",
    )
}
"""The modules of admin calls that the first call imports."""


@pytest.mark.parametrize(
    ("name", "others"),
    [
        (
            "Producer",
            {
                "aiokclient.admin",
                "aiokclient.consumer",
                "aiokclient.group.member",
                "aiokclient.producer.transaction",
                *LATE_PRODUCER,
                *AFTER_START,
            },
        ),
        (
            "Consumer",
            {
                "aiokclient.admin",
                "aiokclient.consumer.fetching",
                "aiokclient.consumer.membership",
                "aiokclient.producer",
                "aiokclient.record",
                *LATE_CONSUMER,
                *AFTER_START,
            },
        ),
        ("Client", {"aiokclient.admin", "aiokclient.consumer", "aiokclient.producer"}),
        (
            "Admin",
            {
                "aiokclient.consumer",
                "aiokclient.producer",
                *LATE_ADMIN,
                *AFTER_START,
                *SUBJECTS,
            },
        ),
    ],
)
def test_a_client_imports_only_what_it_uses(name: str, others: set[str]) -> None:
    modules = modules_after(f"from aiokclient import {name}")
    assert modules & (UNUSED | others) == set()


GENERATED = """
import anyio, asyncio, collections, random, sys, uuid
others_need_dataclasses = "dataclasses" in sys.modules
made = []
generate = collections.namedtuple
collections.namedtuple = lambda name, *args, **options: (
    made.append(name) or generate(name, *args, **options)
)
from aiokclient import {name}
import json
print(json.dumps([made, "dataclasses" in sys.modules and not others_need_dataclasses]))
"""


@pytest.mark.parametrize("name", ["Admin", "Client", "Consumer", "Producer"])
def test_an_import_generates_no_classes(name: str) -> None:
    """Python compiles the methods of such classes: each costs as much as ten other classes."""
    script = GENERATED.replace("{name}", name)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    named_tuples, has_dataclasses = json.loads(done.stdout)
    assert named_tuples == []
    assert not has_dataclasses


@pytest.mark.skipif(not aiokclient.native, reason="needs the native modules")
def test_python_twins_of_record_batches_are_not_imported_beside_native_ones() -> None:
    code = "from aiokclient import Producer, Consumer; from aiokclient.background import *\n"
    modules = modules_after(f"{code}import_late()")
    assert [name for name in modules if name.startswith("aiokclient.record._pure")] == []


def test_names_of_rare_admin_calls_are_imported_on_first_use() -> None:
    modules = modules_after("from aiokclient.admin import *; AclBinding, ScramMechanism")
    assert {
        "aiokclient.admin.security.acls",
        "aiokclient.admin.security.scram_credentials",
    } <= modules
    assert set(admin.__all__) <= set(dir(admin))
    with pytest.raises(AttributeError, match="no attribute 'AclBindings'"):
        admin.AclBindings


def test_public_names_are_written_from_the_import_blocks_of_their_packages() -> None:
    command = [sys.executable, str(ROOT / ".ci" / "write-names"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
